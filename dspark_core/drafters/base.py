"""What the engine needs of a drafter. Symbols: γ drafts, K candidates a position, m·H feature width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from dspark_core.params import SamplingParams
from dspark_core.sampling import Dice

GoesOn = Callable[[Sequence[float]], bool]  # of c_1 … c_k: whether x_k may still be verified, so is worth drawing


@dataclass(frozen=True, slots=True)
class DraftLogits:
    """What one draft's law was made from, kept for who asked to see it.

    Attributes:
        logits: [K] of the candidates.
        total: log Σ exp of all logits, where they are more than the candidates'; None: of the candidates'.
        base: [K] the same without the sequential head's bias; None without such a head.
    """

    logits: torch.Tensor
    total: torch.Tensor | None
    base: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """n ≤ γ drafted tokens with the very laws they were drawn from.

    Attributes:
        token_ids: x_1 … x_n.
        confidences: c_1 … c_n, each known before its token was drawn; None without a confidence head.
        candidate_ids: [n, K] token ids that carry all of the draft law's mass, without repeats in a row.
        candidate_probs: [n, K] float32, the draft law over them (one-hot under greedy decoding).
        shown_probs: p_d(x_k) for the screen: of the drawn law, or at temperature 1 under greedy decoding.
        raw_confidences: the head's own, where ``confidences`` are calibrated; else None.
        stopped_at: c_{n+1}, where it made drafting stop before x_{n+1} was drawn; else None.
        kept: of each draft, what its law was made from, where that was asked for and there are logits; else empty.
    """

    token_ids: tuple[int, ...]
    confidences: tuple[float, ...] | None
    candidate_ids: torch.Tensor
    candidate_probs: torch.Tensor
    shown_probs: tuple[float, ...]
    raw_confidences: tuple[float, ...] | None = None
    stopped_at: float | None = None
    kept: tuple[DraftLogits, ...] = ()

    @property
    def known_confidences(self) -> tuple[float, ...] | None:
        """c_1 … c_n, and c_{n+1} where drafting stopped at it: what a policy judges."""
        if self.confidences is None or self.stopped_at is None:
            return self.confidences
        return (*self.confidences, self.stopped_at)


EMPTY_BLOCK = DraftBlock((), None, torch.empty(0, 0, dtype=torch.long), torch.empty(0, 0), ())


class DrafterState(Protocol):
    """One request's state in a drafter (context keys and values, for example)."""

    def observe(self, token_ids: tuple[int, ...], features: torch.Tensor) -> None:
        """Take the tokens newly committed to the target's cache and their features [n, m·H]."""

    def draft(
        self, anchor: int, count: int, sampling: SamplingParams, dice: Dice, goes_on: GoesOn | None = None
    ) -> DraftBlock:
        """Draft ``count`` ≤ γ tokens after ``anchor``; leaves the state as it was (the block's own K/V are dropped).

        With ``goes_on``, drafting stops before the first x_k for whose c_1 … c_k it says no. A drafter may only ask
        about confidences that it knows before it draws x_k, or ignore it and draft on.
        """

    def release(self) -> None:
        """Give the memory back."""


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """What one request asks of its drafter in a round: the arguments of `DrafterState.draft`, and whether the block
    is to keep the logits behind its laws (`DraftBlock.kept`).
    """

    state: DrafterState
    anchor: int
    count: int
    sampling: SamplingParams
    dice: Dice
    goes_on: GoesOn | None = None
    inspect: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """What one request's drafter is told after a round: the arguments of `DrafterState.observe`."""

    state: DrafterState
    token_ids: tuple[int, ...]
    features: torch.Tensor


class Drafter(Protocol):
    """A source of drafts."""

    name: str
    note: str  # what a reader should know ('' if nothing), shown on screen
    num_draft_tokens: int  # γ; 0 drafts nothing: plain decoding
    tapped_layers: tuple[int, ...]  # layer ids whose outputs it wants as features
    has_confidence: bool  # whether its drafts come with confidences

    def open(self, capacity: int) -> DrafterState:
        """State for a new request of at most ``capacity`` tokens."""

    def draft_all(self, asks: Sequence[DraftAsk]) -> list[DraftBlock | Exception]:
        """Draft for several requests, each with a state of its own; each gets what `DrafterState.draft` gives it alone.

        One that fails has its exception in the list and takes nobody with it.
        """

    def observe_all(self, observations: Sequence[Observation]) -> list[Exception | None]:
        """`DrafterState.observe` for several requests, each with a state of its own; what failed, or None, for each."""


class OneByOne:
    """`draft_all` and `observe_all` of drafters for which doing it together saves nothing."""

    def draft_all(self, asks: Sequence[DraftAsk]) -> list[DraftBlock | Exception]:
        """One request after the other."""
        return [_alone(ask) for ask in asks]

    def observe_all(self, observations: Sequence[Observation]) -> list[Exception | None]:
        """One request after the other."""
        return [told_alone(observation) for observation in observations]


def _alone(ask: DraftAsk) -> DraftBlock | Exception:
    try:
        return ask.state.draft(ask.anchor, ask.count, ask.sampling, ask.dice, ask.goes_on)
    except Exception as error:  # whatever a drafter raises is that request's failure, not the others'
        return error


def told_alone(observation: Observation) -> Exception | None:
    """`DrafterState.observe`; what it raised, or None."""
    try:
        observation.state.observe(observation.token_ids, observation.features)
    except Exception as error:  # as above
        return error
    return None


def block_or_raise(outcome: DraftBlock | Exception) -> DraftBlock:
    """One request's part of `draft_all`, as `DrafterState.draft` gives it: its failure is raised."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
