"""Fixed-length verification: the baseline that the confidence scheduler is measured against."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_core.events import LoadSample
from dspark_core.params import ScheduleParams
from dspark_core.scheduling.policy import DraftView, Plan, without_drafts


class FixedPolicy:
    """Verifies L_max drafts every round, whatever the drafter thinks of them."""

    name = "fixed"
    needs_confidence = False

    def plan(self, views: Sequence[DraftView], load: LoadSample) -> list[Plan]:  # noqa: ARG002 - the protocol's shape
        """ℓ = L_max, as far as drafts and room allow."""
        return [self._plan_one(view) for view in views]

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams) -> bool:
        """Up to L_max."""
        return len(confidences) <= schedule.l_max

    @staticmethod
    def _plan_one(view: DraftView) -> Plan:
        return without_drafts(view) or Plan(view.upper, f"fixed: {view.upper_reason}")
