"""A small language model of the target's own tokens that drafts one token a pass: the classical draft model.

Source: Leviathan et al., arXiv:2211.17192; Chen et al., arXiv:2302.01318. Symbols: γ drafts, K candidates a position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import torch
from tokenizers import Tokenizer

from dspark_core.calibration.calibration import Calibration
from dspark_core.calibration.file import read_calibration
from dspark_core.calibration.survival import confidences as confidences_of
from dspark_core.calibration.survival import logits_of
from dspark_core.drafters.base import EMPTY_BLOCK, DraftBlock, GoesOn
from dspark_core.drafters.dspark import CANDIDATES
from dspark_core.drafters.vocabulary import read_draft_vocabulary
from dspark_core.errors import CheckpointError, ParameterError
from dspark_core.fields import LARGEST, shown
from dspark_core.modules.config import MAX_BLOCK_SIZE
from dspark_core.params import SamplingParams
from dspark_core.penalties import biased
from dspark_core.sampling import Dice, law
from dspark_core.target.base import KVSlot, Target
from dspark_core.target.linear import Linear
from dspark_core.target.llama import LlamaTarget

NUM_DRAFT_TOKENS = 8

_NOTE = (
    "A small language model that drafts one token a pass. It has no confidence head: its confidence is the largest "
    "probability of its own law at temperature 1, known before the token is drawn."
)


class LmDrafter:
    """A draft model behind the interface of a target: it has its own keys and values and reads no features.

    The confidence c_k is the largest probability, at temperature 1, of the law that x_k is then drawn from. It depends
    on x_1 … x_{k−1} alone, so cutting by it leaves the output's law as it is. How often the target agrees is for a
    calibration to say.

    Args:
        model: the draft model.
        target: whose tokens it drafts.
        used_tokens: how many ids the shared tokenizer uses, where that is known; ids beyond are padding.
        num_draft_tokens: γ, 1 to 64.
        candidates: K; the draft law has no mass elsewhere (drawn from and accepted with the same law: exact).
        draft_vocabulary: the only token ids to draft, in rising order; None for all that both models have.
        calibration: temperatures of the confidences by sampling setting; None leaves them as they are.
        note: what else a reader should know, or ''.

    Raises:
        CheckpointError: the two vocabularies differ in more than padding.
        ParameterError: γ or K is out of its range.
    """

    name = "lm"
    tapped_layers: tuple[int, ...] = ()
    has_confidence = True

    def __init__(
        self,
        model: Target,
        target: Target,
        *,
        used_tokens: int | None = None,
        num_draft_tokens: int = NUM_DRAFT_TOKENS,
        candidates: int = CANDIDATES,
        draft_vocabulary: Sequence[int] | None = None,
        calibration: Calibration | None = None,
        note: str = "",
    ) -> None:
        _check_range("num_draft_tokens", num_draft_tokens, MAX_BLOCK_SIZE)
        _check_range("candidates", candidates, LARGEST)
        _check_vocabulary_sizes(model, target, used_tokens)
        self.model = model
        self.num_draft_tokens = num_draft_tokens
        self.calibration = calibration
        self.note = " ".join(part for part in (_NOTE, _context_note(model, target), note) if part)
        self._width = min(model.vocab_size, target.vocab_size)  # ids from here on are padding of the larger one
        self._vocabulary: torch.Tensor | None = None
        self._head: Linear | None = None
        if draft_vocabulary is not None:
            self._vocabulary = torch.tensor(draft_vocabulary, device=model.device)
            self._head = model.narrow_head(self._vocabulary)
            self._width = len(draft_vocabulary)
        self._candidates = min(candidates, self._width)

    def open(self, capacity: int) -> LmState:
        """Keys and values for a request of at most ``capacity`` tokens. Raises ResourceError."""
        return LmState(self, min(capacity, self.model.max_context))

    def knows(self, token_ids: Sequence[int]) -> bool:
        """Whether the draft model has an embedding for each of them: the target's padding may have none."""
        return all(token_id < self.model.vocab_size for token_id in token_ids)

    def candidates_after(
        self, slot: KVSlot, token_id: int, sampling: SamplingParams
    ) -> tuple[torch.Tensor, torch.Tensor, float]:
        """One pass over ``token_id``: logits [K] and ids [K] of the best next tokens, and log Σ exp of all logits."""
        whole = self._head is None
        output = self.model.forward([slot], [[token_id]], tapped_layers=(), want_logits=whole)[0]
        logits = (output.logits if self._head is None else self._head(output.hidden))[0, : self._width]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        logits = biased(logits[None], sampling, self._vocabulary)[0]
        best, places = logits.topk(self._candidates)
        ids = places if self._vocabulary is None else self._vocabulary[places]
        return best.cpu(), ids.cpu(), float(logits.logsumexp(-1))


class LmState:
    """One request's text in the draft model.

    Between rounds the slot holds the committed tokens without the last one, as the target's does. Drafting leaves the
    anchor and its own drafts behind them, so that those which are then accepted need not be read again: `observe` keeps
    what they have in common with the committed tokens and crops the rest.
    """

    def __init__(self, drafter: LmDrafter, capacity: int) -> None:
        self._drafter = drafter
        self._slot: KVSlot | None = drafter.model.open_slot(capacity)
        self._capacity = capacity
        self._length = 0  # committed tokens in the slot
        self._drafted: list[int] = []  # what the slot holds after them
        self._blind = False  # the text has left what the draft model can read

    def observe(self, token_ids: tuple[int, ...], features: torch.Tensor) -> None:  # noqa: ARG002 - it has its own
        """Read the tokens newly committed, as far as drafting them has not done so."""
        slot = self._open_slot()
        if self._blind:
            return
        if self._length + len(token_ids) > self._capacity or not self._drafter.knows(token_ids):
            self._blind = True
            slot.crop(0)
            return
        pairs = zip(token_ids, self._drafted, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        slot.crop(self._length + kept)
        self._drafted = []
        if kept < len(token_ids):
            self._drafter.model.forward([slot], [token_ids[kept:]], tapped_layers=(), want_logits=False)
        self._length += len(token_ids)

    def draft(
        self, anchor: int, count: int, sampling: SamplingParams, dice: Dice, goes_on: GoesOn | None = None
    ) -> DraftBlock:
        """Draft ``count`` tokens, a pass each; none once the text has left the draft model's context.

        Where ``goes_on`` says no, the passes of the later tokens are saved.
        """
        slot = self._open_slot()
        count = min(count, self._capacity - self._length)
        if self._blind or count <= 0 or not self._drafter.knows([anchor]):
            return EMPTY_BLOCK
        slot.crop(self._length)
        self._drafted = []
        temperatures = self._temperatures_for(sampling)
        previous = anchor
        token_ids, raw, confidences, shown, ids, laws = [], [], [], [], [], []
        for k in range(count):
            logits, candidate_ids, log_total = self._drafter.candidates_after(slot, previous, sampling)
            self._drafted.append(previous)
            probs = law(logits[None], sampling)[0]
            raw.append(_share(logits, 0, log_total))
            confidences.append(raw[k] if temperatures is None else _tempered(raw[k], temperatures[k]))
            if goes_on is not None and not goes_on(confidences):
                break
            index = int(probs.argmax()) if sampling.greedy else dice.choose(probs)
            previous = int(candidate_ids[index])
            token_ids.append(previous)
            shown.append(_share(logits, index, log_total) if sampling.greedy else float(probs[index]))
            ids.append(candidate_ids)
            laws.append(probs)
        drafted = len(token_ids)
        return DraftBlock(
            token_ids=tuple(token_ids),
            confidences=tuple(confidences[:drafted]),
            candidate_ids=torch.stack(ids) if drafted else EMPTY_BLOCK.candidate_ids,
            candidate_probs=torch.stack(laws) if drafted else EMPTY_BLOCK.candidate_probs,
            shown_probs=tuple(shown),
            raw_confidences=None if temperatures is None else tuple(raw[:drafted]),
            stopped_at=confidences[drafted] if drafted < len(confidences) else None,
        )

    def release(self) -> None:
        """Give the memory back; safe to repeat."""
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def _open_slot(self) -> KVSlot:
        if self._slot is None:
            raise RuntimeError("A released drafter state was used.")
        return self._slot

    def _temperatures_for(self, sampling: SamplingParams) -> Sequence[float] | None:
        calibration = self._drafter.calibration
        return None if calibration is None else calibration.temperatures_for(sampling.temperature)


def load_lm_drafter(folder: Path, target: Target, vocabulary: dict[str, int] | None = None) -> LmDrafter:
    """The draft model in a Hugging Face ``folder``, in the target's type and on its device.

    Args:
        folder: ``config.json`` and ``*.safetensors``; a ``tokenizer.json``, a ``draft_vocabulary.json`` and a
            ``calibration.json`` are honoured where there are any.
        target: whose tokens it is to draft.
        vocabulary: token → id of the target's tokenizer; None skips the comparison of tokenizers.

    Raises:
        CheckpointError: its tokens are not the target's, or a file beside the weights is broken.
        ModelUnavailableError: it is no model that we compute.
    """
    used_tokens = None
    if vocabulary is not None:
        _check_tokenizer(folder, vocabulary)
        used_tokens = 1 + max(vocabulary.values(), default=-1)
    model = LlamaTarget.load(folder, dtype=target.dtype, device=target.device)
    calibration, note = read_calibration(folder, NUM_DRAFT_TOKENS)
    return LmDrafter(
        model,
        target,
        used_tokens=used_tokens,
        draft_vocabulary=read_draft_vocabulary(folder, min(model.vocab_size, target.vocab_size)),
        calibration=calibration,
        note=note,
    )


def _check_range(name: str, value: int, high: int) -> None:
    if not 1 <= value <= high:
        raise ParameterError(f"{name} is {value}; it must be a whole number from 1 to {high}.")


def _check_vocabulary_sizes(model: Target, target: Target, used_tokens: int | None) -> None:
    smaller = min(model.vocab_size, target.vocab_size)
    if model.vocab_size == target.vocab_size or (used_tokens is not None and used_tokens <= smaller):
        return
    used = "" if used_tokens is None else f", of which the tokenizer uses {used_tokens}"
    raise CheckpointError(
        f"The draft model {model.name} has a vocabulary of {model.vocab_size} tokens and the target {target.name} one "
        f"of {target.vocab_size}{used}: they differ in more than padding, so a draft would mean other text. "
        "Choose a draft model of the target's own family."
    )


def _check_tokenizer(folder: Path, vocabulary: dict[str, int]) -> None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return
    try:
        own = Tokenizer.from_str(path.read_text(encoding="utf-8")).get_vocab(with_added_tokens=True)
    except Exception as error:  # tokenizers raises bare Exception for a broken file
        raise CheckpointError(f"{path} cannot be read ({error}). Take it again from where the model came.") from error
    if own == vocabulary:
        return
    token, number = min(own.items() ^ vocabulary.items(), key=lambda item: (item[1], item[0]))
    raise CheckpointError(
        f"The draft model in {folder} has another tokenizer than the target (they differ in {shown(token)}, id "
        f"{number}), so the same ids would mean other text. Choose a draft model of the target's own family."
    )


def _context_note(model: Target, target: Target) -> str:
    if model.max_context >= target.max_context:
        return ""
    return (
        f"It reads {model.max_context} tokens, the target {target.max_context}: beyond them it drafts nothing, and "
        "decoding is plain."
    )


def _share(logits: torch.Tensor, index: int, log_total: float) -> float:
    """Probability at temperature 1 of a candidate, among all tokens that may be drafted."""
    return min(1.0, math.exp(float(logits[index]) - log_total))


def _tempered(confidence: float, temperature: float) -> float:
    """σ(logit(c) / T)."""
    return float(confidences_of(logits_of(confidence), temperature))
