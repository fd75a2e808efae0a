"""A small language model of the target's own tokens that drafts one token a pass: the classical draft model.

Source: Leviathan et al., arXiv:2211.17192; Chen et al., arXiv:2302.01318. Symbols: γ drafts, K candidates a position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path

import torch
from tokenizers import Tokenizer

from dspark_core.calibration.calibration import Calibration
from dspark_core.calibration.file import read_calibration
from dspark_core.calibration.survival import confidences as confidences_of
from dspark_core.calibration.survival import logits_of
from dspark_core.drafters.base import EMPTY_BLOCK, DraftAsk, DraftBlock, DrafterState, GoesOn, OneByOne, block_or_raise
from dspark_core.drafters.drawing import Drawing, draw_next, still_drawing, with_bias
from dspark_core.drafters.dspark import CANDIDATES
from dspark_core.drafters.vocabulary import read_draft_vocabulary
from dspark_core.errors import CheckpointError, NumericsError, ParameterError
from dspark_core.fields import LARGEST, shown
from dspark_core.modules.config import MAX_BLOCK_SIZE
from dspark_core.params import SamplingParams
from dspark_core.sampling import Dice
from dspark_core.target.base import KVSlot, Target
from dspark_core.target.linear import Linear
from dspark_core.target.llama import LlamaTarget

NUM_DRAFT_TOKENS = 8

_NOTE = (
    "A small language model that drafts one token a pass. It has no confidence head: its confidence is the largest "
    "probability of its own law at temperature 1, known before the token is drawn."
)


class LmDrafter(OneByOne):
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

    def draft_all(self, asks: Sequence[DraftAsk]) -> list[DraftBlock | Exception]:
        """A pass a position over all requests that still draft."""
        outcomes: list[DraftBlock | Exception] = [EMPTY_BLOCK] * len(asks)
        drawings: dict[int, Drawing] = {}
        for place, ask in enumerate(asks):
            try:
                count = _own(ask.state).begin(ask.anchor, ask.count)
            except Exception as error:  # this request's failure alone
                outcomes[place] = error
            else:
                if count > 0:
                    drawings[place] = Drawing(ask, count, self._temperatures_for(ask.sampling))
        self._draw(list(drawings.values()))
        for place, drawing in drawings.items():
            outcomes[place] = drawing.outcome()
        return outcomes

    def _draw(self, running: list[Drawing]) -> None:
        for k in range(max((drawing.count for drawing in running), default=0)):
            running = [drawing for drawing in running if drawing.failure is None and k < drawing.count]
            if not running:
                break
            logits, ids, totals = self._candidates_after(running)
            raw = [float(share) for share in (logits[:, 0] - totals).exp().clamp(max=1).tolist()]
            staying = still_drawing(running, k, partial(_judge, running, k, raw))
            if len(staying) < len(running):
                running = [running[place] for place in staying]
                logits, ids, totals = logits[staying], ids[staying], totals[staying]
            if running:
                draw_next(running, logits, ids, totals)

    def _candidates_after(self, drawings: Sequence[Drawing]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One pass over x_{k−1} of A requests: logits and ids [A, K] of the best next, log Σ exp [A] of all logits."""
        slots = [_own(drawing.ask.state).read(drawing.previous) for drawing in drawings]
        token_ids = [[drawing.previous] for drawing in drawings]
        outputs = self.model.forward(slots, token_ids, tapped_layers=(), want_logits=self._head is None)
        if self._head is None:
            logits = torch.cat([output.logits for output in outputs])[:, : self._width]
        else:
            logits = self._head(torch.cat([output.hidden for output in outputs]))
        logits = logits if logits.dtype == torch.float64 else logits.float()
        logits = with_bias(logits, drawings, self._vocabulary)
        best, places = logits.topk(self._candidates)
        ids = places if self._vocabulary is None else self._vocabulary[places]
        return best.cpu(), ids.cpu(), logits.logsumexp(-1).cpu()

    def _temperatures_for(self, sampling: SamplingParams) -> Sequence[float] | None:
        return None if self.calibration is None else self.calibration.temperatures_for(sampling.temperature)


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
        return block_or_raise(self._drafter.draft_all([DraftAsk(self, anchor, count, sampling, dice, goes_on)])[0])

    def begin(self, anchor: int, count: int) -> int:
        """Forget the last draft; how many tokens may be drafted now, at most ``count``."""
        slot = self._open_slot()
        count = min(count, self._capacity - self._length)
        if self._blind or count <= 0 or not self._drafter.knows([anchor]):
            return 0
        slot.crop(self._length)
        self._drafted = []
        return count

    def read(self, token_id: int) -> KVSlot:
        """The slot, into which a pass over ``token_id`` goes now."""
        self._drafted.append(token_id)
        return self._open_slot()

    def release(self) -> None:
        """Give the memory back; safe to repeat."""
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def _open_slot(self) -> KVSlot:
        if self._slot is None:
            raise RuntimeError("A released drafter state was used.")
        return self._slot


def _own(state: DrafterState) -> LmState:
    assert isinstance(state, LmState), "a state of another drafter"  # noqa: S101
    return state


def _judge(drawings: Sequence[Drawing], k: int, raw: Sequence[float], place: int) -> bool:
    """Whether a request draws x_{k + 1}: its confidence is the largest probability of its law at temperature 1."""
    temperatures = drawings[place].temperatures
    if not math.isfinite(raw[place]):
        raise NumericsError("The draft model's logits are not finite numbers; its weights are damaged.")
    return drawings[place].judge(
        raw[place], raw[place] if temperatures is None else _tempered(raw[place], temperatures[k])
    )


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


def _tempered(confidence: float, temperature: float) -> float:
    """σ(logit(c) / T)."""
    return float(confidences_of(logits_of(confidence), temperature))
