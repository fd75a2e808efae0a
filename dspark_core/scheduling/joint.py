"""One pass for all requests: which draft is worth most next, and the throughput Θ that the pass would have with it.

Source: DSpark, Algorithm 1. Symbols: R requests, a survival, B tokens in the pass, τ tokens it is expected to commit,
SPS(B) steps a second, Θ = τ · SPS(B) tokens a second. A step is the pass and the round's drafting, whose cost is spent
when lengths are chosen: it is the same for every plan, so it makes verifying more worth its while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace

from dspark_core.scheduling.policy import DraftView, RoundView, confidences_for, curve_for


class JointPass:
    """The pass before anything is weighed: every anchor, and each request's L_min drafts, which are in for free.

    Args:
        policy: whose plan it is, for messages.
        views: the requests.
        around: the step curve, and what other policies have put in the pass.
        survivals: a_1, a_2, … of each request, as far as its drafts may be admitted.

    Raises:
        ParameterError: there is no step curve.
    """

    def __init__(
        self, policy: str, views: Sequence[DraftView], around: RoundView, survivals: Sequence[Sequence[float]]
    ) -> None:
        self._curve = curve_for(policy, around.step_curve)
        self._drafting_s = around.drafting_s
        self._survivals = survivals
        self.lower = [view.lower for view in views]
        self._tokens = around.settled_tokens + len(views) + sum(self.lower)
        free = sum(sum(a[:lower]) for a, lower in zip(survivals, self.lower, strict=True))
        self._expected = around.settled_expected + len(views) + free

    @classmethod
    def of_drafts(cls, policy: str, views: Sequence[DraftView], around: RoundView) -> JointPass:
        """The pass over this round's drafts. Raises ParameterError also for drafts without confidences."""
        for view in views:
            confidences_for(policy, view)
        return cls(policy, views, around, [view.survivals[: view.upper] for view in views])

    @property
    def throughput(self) -> float:
        """Θ with nothing admitted beyond L_min."""
        return self._expected / (self._curve.seconds(self._tokens) + self._drafting_s)

    def growing(self) -> Iterator[tuple[int, float]]:
        """The drafts beyond L_min, largest survival first: whose it is, and Θ once it and all before it are in.

        Ties go by position, then by request. A survival never exceeds those before it, so each request's drafts come
        in their order, and its place depends on none behind it.
        """
        tokens, expected, seconds = self._tokens, self._expected, self._curve.seconds
        heads = [
            (-survivals[lower], lower, request)
            for request, (survivals, lower) in enumerate(zip(self._survivals, self.lower, strict=True))
            if lower < len(survivals)
        ]
        heapify(heads)
        while heads:
            negative, k, request = heads[0]
            tokens += 1
            expected -= negative
            yield request, expected / (seconds(tokens) + self._drafting_s)
            survivals = self._survivals[request]
            if k + 1 < len(survivals):
                heapreplace(heads, (-survivals[k + 1], k + 1, request))
            else:
                heappop(heads)


def best_count(whole: JointPass) -> int:
    """How many drafts beyond L_min give the largest Θ of all; the smallest such number."""
    best, count = whole.throughput, 0
    for number, (_, throughput) in enumerate(whole.growing(), 1):
        if throughput > best:
            best, count = throughput, number
    return count


def per_second(throughput: float) -> str:
    """Θ for the screen: 812, 81.2, 8.12."""
    return f"{throughput:.0f}" if throughput >= 100 else f"{throughput:.3g}"
