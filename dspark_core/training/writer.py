"""The target writes conversations with itself: a user turn from a short opening, then its answer, many side by side.

Symbols: R rows (conversations in the making), V vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from dspark_core.errors import ParameterError
from dspark_core.target.llama import LlamaTarget
from dspark_core.target.lockstep import Lockstep
from dspark_core.target.tokenizer import ChatTokenizer
from dspark_core.training.data import Conversation
from dspark_core.training.openings import Openings, common_words, measured_prompts, plain_words

_USER_TEMPERATURES = (0.7, 0.85, 1.0)
_TOP_K = 256  # sampled turns draw from the most likely tokens: the tail of a small model is noise
_FEWEST_LETTERS = 8  # a user turn shorter than this is a slip


@dataclass(frozen=True)
class WriterSettings:
    """Tokens are counted without the template's own; `temperatures` are drawn from evenly, 0 is greedy."""

    rows: int = 96
    user_tokens: int = 56
    answer_tokens: int = 224
    temperatures: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.7, 0.7, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot write."""
        for name, least in (("rows", 1), ("user_tokens", 4), ("answer_tokens", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise ParameterError(f"{name} is {getattr(self, name)}; give at least {least}.")
        if not self.temperatures or not all(0 <= t <= 2 for t in self.temperatures):
            raise ParameterError(f"temperatures are {self.temperatures}; give one or more from 0 to 2.")


@dataclass
class _Row:
    """One conversation in the making. `forced` tokens are given, not drawn; `prompt_length` is 0 in the user's turn."""

    forced: list[int]
    user_temperature: float
    answer_temperature: float
    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0

    @property
    def temperature(self) -> float:
        return self.answer_temperature if self.prompt_length else self.user_temperature


class Writer:
    """Endless conversations; the same settings and target give the same ones in the same order."""

    def __init__(self, target: LlamaTarget, tokenizer: ChatTokenizer, settings: WriterSettings) -> None:
        """Prepare; ParameterError when the template puts a user's words nowhere or the context is too short."""
        self._target, self._tokenizer, self._settings = target, tokenizer, settings
        self._before, self._after = template_around_user(tokenizer)
        length = len(self._before) + len(self._after) + settings.user_tokens + settings.answer_tokens
        self._block = Lockstep(target, settings.rows, length)
        self._openings = Openings(common_words(tokenizer))
        self._measured = measured_prompts()
        self._rng = random.Random(settings.seed)

    def conversations(self) -> Iterator[Conversation]:
        """Yields each conversation as it ends."""
        for token in self._before:
            self._block.step([token] * self._settings.rows)
        prefix = self._block.prefix(0, len(self._before))
        rows = [self._new_row() for _ in range(self._settings.rows)]
        upcoming = [row.forced.pop(0) for row in rows]
        while True:
            hidden, _ = self._block.step(upcoming)
            for row, token in zip(rows, upcoming, strict=True):
                row.ids.append(token)
            drawn = self._draw(hidden, rows)
            for i, row in enumerate(rows):
                token = row.forced.pop(0) if row.forced else drawn[i]
                kept = self._take(row, token)
                if kept is None:
                    if self._complete(row):
                        yield Conversation(
                            tuple(row.ids[: row.prompt_length]),
                            tuple(row.ids[row.prompt_length :]),
                            row.answer_temperature,
                        )
                    rows[i] = self._new_row()
                    self._block.restart(i, prefix)
                    kept = rows[i].forced.pop(0)
                upcoming[i] = kept

    def _new_row(self) -> _Row:
        opening = self._openings.draw(self._rng)
        while opening.whole and plain_words(opening.text) in self._measured:
            opening = self._openings.draw(self._rng)
        text = list(self._tokenizer.encode(opening.text))[: self._settings.user_tokens]
        row = _Row(
            forced=text,
            user_temperature=self._rng.choice(_USER_TEMPERATURES),
            answer_temperature=self._rng.choice(self._settings.temperatures),
            ids=list(self._before),
        )
        if opening.whole:
            self._begin_answer(row)
        return row

    def _begin_answer(self, row: _Row) -> None:
        row.prompt_length = len(row.ids) + len(row.forced) + len(self._after)
        row.forced += self._after

    def _take(self, row: _Row, token: int) -> int | None:
        """The token that goes on (a user's end token becomes the template's), or None when the row is over."""
        if len(row.ids) < row.prompt_length or row.forced:
            return token
        ends = token in self._target.stop_token_ids
        if row.prompt_length:
            last = len(row.ids) + 1 - row.prompt_length >= self._settings.answer_tokens
            if ends or last:
                row.ids.append(token)
            return None if ends or last else token
        if ends and self._usable(row):
            self._begin_answer(row)
            return row.forced.pop(0)
        spoiled = token in self._tokenizer.special_ids
        long = len(row.ids) - len(self._before) >= self._settings.user_tokens
        return None if ends or spoiled or long else token

    def _usable(self, row: _Row) -> bool:
        words = plain_words(self._tokenizer.decode(row.ids[len(self._before) :]))
        return len(words) >= _FEWEST_LETTERS and words not in self._measured

    def _complete(self, row: _Row) -> bool:
        return 0 < row.prompt_length < len(row.ids)

    @torch.inference_mode()
    def _draw(self, hidden: torch.Tensor, rows: Sequence[_Row]) -> dict[int, int]:
        """Next tokens of the rows that have none given: the likeliest one, or one drawn at the row's temperature."""
        free = [i for i, row in enumerate(rows) if not row.forced]
        if not free:
            return {}
        logits = self._target.lm_head(hidden[free])[:, : self._target.vocab_size]
        chosen = logits.argmax(-1).tolist()
        warm = [j for j, i in enumerate(free) if rows[i].temperature > 0]
        if warm:
            temperatures = torch.tensor([[rows[free[j]].temperature] for j in warm], device=logits.device)
            top, ids = logits[warm].topk(min(_TOP_K, logits.shape[-1]), -1)
            sums = (top.float() / temperatures).softmax(-1).cumsum(-1)
            uniform = torch.tensor([[self._rng.random()] for _ in warm], device=logits.device) * sums[:, -1:]
            places = (sums <= uniform).sum(-1, keepdim=True).clamp_max(ids.shape[-1] - 1)
            for j, token in zip(warm, ids.gather(-1, places).squeeze(-1).tolist(), strict=True):
                chosen[j] = token
        return dict(zip(free, chosen, strict=True))


def template_around_user(tokenizer: ChatTokenizer) -> tuple[list[int], list[int]]:
    """The template's tokens before and after the words of a first user turn, generation prompt included.

    ParameterError when the words are not found, once, among the tokens.
    """
    words = ("7", "8")
    chats = [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in words]
    differing = [i for i, pair in enumerate(zip(*chats, strict=False)) if pair[0] != pair[1]]
    alone = len(differing) == 1 and all(
        chat[differing[0] : differing[0] + 1] == tokenizer.encode(text) for chat, text in zip(chats, words, strict=True)
    )
    if not alone or len(chats[0]) != len(chats[1]):
        raise ParameterError(
            "The model's chat template does not keep a user's words as tokens of their own, so it cannot write user "
            "turns; give conversations with --data."
        )
    at = differing[0]
    return list(chats[0][:at]), list(chats[0][at + 1 :])
