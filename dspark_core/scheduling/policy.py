"""The scheduler's protocol: plain numbers in, verification lengths out. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dspark_core.events import LoadSample
from dspark_core.params import ScheduleParams


@dataclass(frozen=True, slots=True)
class DraftView:
    """What a policy may know of one request's draft block.

    Attributes:
        num_drafted: n, tokens drafted this round, 0 for plain decoding.
        confidences: c_1 … c_n, and c_{n+1} where it made drafting stop before x_{n+1} was drawn; None when the drafter
            has no confidence head.
        schedule: bounds and threshold in force.
        room: how many drafts the request can still use (token limit, context end).
    """

    num_drafted: int
    confidences: tuple[float, ...] | None
    schedule: ScheduleParams
    room: int

    @property
    def lower(self) -> int:
        """L_min as far as drafts and room allow."""
        return min(self.schedule.l_min, self.upper)

    @property
    def upper(self) -> int:
        """L_max as far as drafts and room allow."""
        return max(0, min(self.schedule.l_max, self.num_drafted, self.room))

    @property
    def num_judged(self) -> int:
        """Positions within L_max and room that the policy can judge: `upper`, and the one at which drafting stopped."""
        return max(0, min(self.schedule.l_max, max(self.num_drafted, len(self.confidences or ())), self.room))

    @property
    def upper_reason(self) -> str:
        """What bounds `upper`, for the screen."""
        if self.upper == self.room < min(self.schedule.l_max, self.num_drafted):
            return f"{self.upper} (all that the token limit leaves)"
        if self.num_drafted < self.schedule.l_max:
            return f"{self.upper} (all that were drafted)"
        return f"L_max = {self.upper}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A verification length ℓ and why it was chosen, for the screen."""

    verify_len: int
    reason: str


def without_drafts(view: DraftView) -> Plan | None:
    """The plan of a round in which the policy has nothing to judge, or None when it has."""
    if view.schedule.l_max == 0:
        return Plan(0, "L_max = 0")
    if view.num_drafted == 0 and not view.confidences:
        return Plan(0, "nothing was drafted")
    if view.num_judged == 0:
        return Plan(0, "the token limit leaves no room for drafts")
    return None


class SchedulerPolicy(Protocol):
    """Chooses ℓ for each request. Must be non-anticipating: whether x_k is verified depends on c_1 … c_k only."""

    name: str
    needs_confidence: bool  # whether it can serve only drafters with a confidence head

    def plan(self, views: Sequence[DraftView], load: LoadSample) -> list[Plan]:
        """One plan a view, ``lower ≤ verify_len ≤ upper``. Raises ParameterError when it cannot serve a view."""

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams) -> bool:
        """Whether x_k may still be verified, given c_1 … c_k with k = ``len(confidences)``; pure.

        It is asked before x_k is drawn, and drafting stops at the first no. So it must say yes wherever `plan` would
        admit x_k, and, once it said no, `plan` must cut there or earlier whatever would have been drafted.
        """
