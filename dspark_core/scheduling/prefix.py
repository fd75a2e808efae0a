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

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams, around: RoundView) -> bool:
        """Up to L_min in any case, never beyond L_max, and between while x_k would raise Θ, its drafting counted.

        A request that drafts by itself is weighed exactly as `plan` will, but that drafting x_k has still to be paid
        for: a draft that raises Θ only because its drafting is spent already is not drawn. Beside others that draft,
        whose confidences it does not know, it counts on them to be as sure as itself, and to stop where it does. That
        may stop a draft which `plan` would have admitted, and it leaves the text's law as it is: what it decides by is
        known before x_k is drawn.
        """
        k, curve = len(confidences), around.step_curve
        if k > schedule.l_max:
            return False
        if k <= schedule.l_min or curve is None:
            return True
        survivals = DraftView(k, tuple(confidences), schedule, k).survivals
        alike = max(1, around.weighed_requests)
        expected = around.requests + alike * sum(survivals[: schedule.l_min])
        for survival in survivals[schedule.l_min : -1]:  # in the order of `JointPass`, so that even ties agree
            expected += alike * survival
        tokens = around.requests + around.forced_tokens + alike * (k - schedule.l_min - 1)
        now = expected / (curve.seconds(tokens) + around.drafting_of(k - 1))
        after = expected + alike * survivals[-1]
        return after / (curve.seconds(tokens + alike) + around.drafting_of(k)) > now


def _plan_one(view: DraftView, length: int, best: float, stopped: str, weighed: tuple[float, ...]) -> Plan:
    nothing = without_drafts(view)
    if nothing is not None:
        return nothing
    if length == view.upper and view.num_judged > length:
        why = f"drafting stopped there, a_{length + 1} {view.survivals[length]:.2f} cannot pay"
        return Plan(length, f"Θ {per_second(best)} with {length}: {why}", throughputs=weighed)
    if length == view.upper:
        return Plan(length, f"Θ {per_second(best)} with {view.upper_reason}", throughputs=weighed)
    reason = f"stopped at {length}: {stopped} (next a_{length + 1} {view.survivals[length]:.2f})"
    return Plan(length, reason, throughputs=weighed)
