"""Prefix policy: the round's drafts by survival, admitted while the throughput of the whole pass rises.

Source: DSpark, Algorithm 1, with its early stop. Symbols: Θ tokens a second, a_k survival.
"""

from __future__ import annotations

from collections.abc import Sequence

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.joint import JointPass, per_second
from dspark_core.scheduling.policy import DraftView, Plan, RoundView, without_drafts


class PrefixPolicy:
    """Admits the largest survival of all requests next, and stops for all at the first that does not raise Θ.

    Each request's L_min drafts are in the pass from the start. Non-anticipating because of the stop: when a draft is
    judged, only confidences of drafts already admitted, and of those next in line, have been looked at. To go on after
    Θ fell, in the hope of a later rise, would let a token's successors decide about it.
    """

    name = "prefix"
    needs_confidence = True
    needs_curve = True

    def plan(self, views: Sequence[DraftView], around: RoundView) -> list[Plan]:
        """One ℓ a view. Raises ParameterError without a step curve, or when a drafter gives no confidences."""
        joint = JointPass.of_drafts(self.name, views, around)
        lengths, best = list(joint.lower), joint.throughput
        weighed = [[best] for _ in views]
        stopped = ""
        for request, throughput in joint.growing():
            weighed[request].append(throughput)
            if not throughput > best:
                stopped = f"Θ {per_second(best)} → {per_second(throughput)}"
                break
            lengths[request] += 1
            best = throughput
        chosen = zip(views, lengths, weighed, strict=True)
        return [_plan_one(view, length, best, stopped, tuple(looked_at)) for view, length, looked_at in chosen]

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams, around: RoundView) -> bool:  # noqa: ARG002
        """Up to L_max: what the other requests draft is not known yet."""
        return len(confidences) <= schedule.l_max


def _plan_one(view: DraftView, length: int, best: float, stopped: str, weighed: tuple[float, ...]) -> Plan:
    nothing = without_drafts(view)
    if nothing is not None:
        return nothing
    if length == view.upper:
        return Plan(length, f"Θ {per_second(best)} with {view.upper_reason}", throughputs=weighed)
    reason = f"stopped at {length}: {stopped} (next a_{length + 1} {view.survivals[length]:.2f})"
    return Plan(length, reason, throughputs=weighed)
