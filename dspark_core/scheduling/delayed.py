"""Delayed policy: how many drafts are verified is settled by confidences of two rounds before, which ones by today's.

Source: DSpark, section 5.2, the variant used in production. Symbols: K drafts beyond L_min, a_k survival.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.joint import JointPass, best_count
from dspark_core.scheduling.policy import DraftView, Plan, RoundView, without_drafts


class DelayedPolicy:
    """K is the best number of all for the survivals of two rounds before; today's K largest survivals are admitted.

    A real step curve is jagged, so Θ may rise again after a fall, and a stop at the first fall loses that. K may be
    the global best here since no draft of this round has a say in it. A request without such a round counts with
    survival 1 for each of its drafts. Given K, the K largest are taken from the top, so the first that is left out
    ends the looking: nothing later decides about it.
    """

    name = "delayed"
    needs_confidence = True
    needs_curve = True

    def plan(self, views: Sequence[DraftView], around: RoundView) -> list[Plan]:
        """One ℓ a view. Raises ParameterError without a step curve, or when a drafter gives no confidences."""
        joint = JointPass.of_drafts(self.name, views, around)
        budget = best_count(JointPass(self.name, views, around, [_earlier(view) for view in views]))
        lengths = list(joint.lower)
        for request, _ in islice(joint.growing(), budget):
            lengths[request] += 1
        return [_plan_one(view, length, budget) for view, length in zip(views, lengths, strict=True)]

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams, around: RoundView) -> bool:  # noqa: ARG002
        """Up to L_max: what the other requests draft is not known yet."""
        return len(confidences) <= schedule.l_max


def _earlier(view: DraftView) -> tuple[float, ...]:
    """The survivals that K is settled by, within today's bounds."""
    if view.earlier is None:
        return (1.0,) * view.upper
    return view.earlier[: max(0, min(view.schedule.l_max, view.room))]


def _plan_one(view: DraftView, length: int, budget: int) -> Plan:
    nothing = without_drafts(view)
    if nothing is not None:
        return nothing
    if length == view.upper:
        return Plan(length, f"among the top K = {budget} of all, up to {view.upper_reason}")
    survival = view.survivals[length]
    return Plan(length, f"cut at {length}: a_{length + 1} {survival:.2f} is not among the top K = {budget} of all")
