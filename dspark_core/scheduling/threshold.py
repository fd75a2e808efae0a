"""Threshold policy: the first own confidence below the bar cuts the block (DeepSpec's static rule)."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.policy import DraftView, Plan, RoundView, confidences_for, without_drafts


class ThresholdPolicy:
    """Walks k upwards and stops before the first c_k < threshold, within L_min ≤ ℓ ≤ L_max.

    Non-anticipating: whether x_k is verified depends on c_1 … c_k alone, and c_k is known before x_k is drawn.
    """

    name = "threshold"
    needs_confidence = True
    needs_curve = False

    def plan(self, views: Sequence[DraftView], around: RoundView) -> list[Plan]:  # noqa: ARG002 - the protocol's shape
        """One ℓ a view. Raises ParameterError when a drafter gives no confidences."""
        return [self._plan_one(view) for view in views]

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams, around: RoundView) -> bool:  # noqa: ARG002
        """Up to L_min in any case, then until the first c_k < threshold, and never beyond L_max."""
        return len(confidences) <= schedule.l_max and all(
            confidence >= schedule.threshold for confidence in confidences[schedule.l_min :]
        )

    @staticmethod
    def _plan_one(view: DraftView) -> Plan:
        nothing = without_drafts(view)
        if nothing is not None:
            return nothing
        confidences = confidences_for(ThresholdPolicy.name, view)
        bar = view.schedule.threshold
        for k in range(view.lower, view.num_judged):
            confidence = confidences[k]
            # `not >=` also cuts on NaN: an unreadable confidence must never verify silently.
            if not confidence >= bar:
                return Plan(k, f"cut at {k}: c_{k + 1} {confidence:.2f} < {bar:.2f}")
        return Plan(view.upper, f"every c_k ≥ {bar:.2f} up to {view.upper_reason}")
