"""Fixed-length verification: the baseline that the confidence scheduler is measured against."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.policy import DraftView, Plan, RoundView, without_drafts


class FixedPolicy:
    """Verifies L_max drafts every round, whatever the drafter thinks of them."""

    name = "fixed"
    needs_confidence = False
    needs_curve = False

    def plan(self, views: Sequence[DraftView], around: RoundView) -> list[Plan]:  # noqa: ARG002 - the protocol's shape
        """ℓ = L_max, as far as drafts and room allow."""
        return [self._plan_one(view) for view in views]

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams, around: RoundView) -> bool:  # noqa: ARG002
        """Up to L_max."""
        return len(confidences) <= schedule.l_max

    @staticmethod
    def _plan_one(view: DraftView) -> Plan:
        return without_drafts(view) or Plan(view.upper, f"fixed: {view.upper_reason}")
