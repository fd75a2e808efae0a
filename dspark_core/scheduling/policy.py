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
        num_drafted: tokens drafted this round, 0 for plain decoding.
        confidences: c_1 … c_n, or None when the drafter has no confidence head.
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


@dataclass(frozen=True, slots=True)
class Plan:
    """A verification length ℓ and why it was chosen, for the screen."""

    verify_len: int
    reason: str


class SchedulerPolicy(Protocol):
    """Chooses ℓ for each request. Must be non-anticipating: whether x_k is verified depends on c_1 … c_k only."""

    name: str

    def plan(self, views: Sequence[DraftView], load: LoadSample) -> list[Plan]:
        """One plan a view, ``lower ≤ verify_len ≤ upper``. Raises ParameterError when it cannot serve a view."""
