"""Retrospective policy: the best throughput in hindsight, which bends the text's law. For the lab alone.

Source: DSpark, appendix A.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.joint import JointPass, best_count, per_second
from dspark_core.scheduling.policy import DraftView, Plan, RoundView, without_drafts


class RetrospectivePolicy:
    """Looks at every confidence, then takes the number of drafts with the largest Θ of all.

    Anticipating: c_{k+1} depends on x_k, so x_k has a say in whether x_k is verified. Verified tokens follow the
    target's law only where that is not so.
    """

    name = "retrospective"
    needs_confidence = True
    needs_curve = True

    def plan(self, views: Sequence[DraftView], around: RoundView) -> list[Plan]:
        """One ℓ a view. Raises ParameterError without a step curve, or when a drafter gives no confidences."""
        joint = JointPass.of_drafts(self.name, views, around)
        lengths, best = list(joint.lower), joint.throughput
        for request, throughput in islice(joint.growing(), best_count(joint)):
            lengths[request] += 1
            best = throughput
        reason = f"biased: the largest Θ in hindsight, {per_second(best)}"
        return [without_drafts(view) or Plan(length, reason) for view, length in zip(views, lengths, strict=True)]

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams, around: RoundView) -> bool:  # noqa: ARG002
        """Up to L_max."""
        return len(confidences) <= schedule.l_max
