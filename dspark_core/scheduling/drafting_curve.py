"""What one drafting of a round costs: seconds by the requests R that draft together and the drafts d of each.

Plain numbers; `dspark_core/profiling` measures them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dspark_core.scheduling.step_curve import StepCurve


@dataclass(frozen=True, slots=True)
class DraftingCurve:
    """Seconds by R, never falling, at each d that was measured.

    Attributes:
        lines: (d, seconds by R) with d rising.
    """

    lines: tuple[tuple[int, StepCurve], ...]

    @classmethod
    def of(cls, probes: Iterable[tuple[int, int, float]], *, source: str) -> DraftingCurve:
        """The curve through probes (d, R, seconds).

        Where one R alone was measured at some d, other R cost in proportion.

        Raises:
            ParameterError: as `StepCurve.of`.
        """
        by_drafts: dict[int, list[tuple[int, float]]] = {}
        for drafts, requests, seconds in probes:
            by_drafts.setdefault(drafts, []).append((requests, seconds))
        return cls(tuple((drafts, _line(by_drafts[drafts], source)) for drafts in sorted(by_drafts)))

    def seconds(self, requests: int, drafts: float) -> float:
        """Seconds in which R = ``requests`` draft d = ``drafts`` each (their mean): linear between what was measured.

        Nothing costs nothing. Below the least d that was measured, and beyond the largest, the nearest counts.
        """
        if requests < 1 or drafts <= 0:
            return 0.0
        below = above = self.lines[0]
        for line in self.lines:
            above = line
            if line[0] >= drafts:
                break
            below = line
        least, most = below[1].seconds(requests), above[1].seconds(requests)
        if above[0] == below[0] or drafts <= below[0]:
            return least
        return least + (most - least) * min(1.0, (drafts - below[0]) / (above[0] - below[0]))

    def one_more_s(self, requests: int) -> float:
        """Seconds that one more draft of one request adds, on the mean of all that was measured; 0 with a single d."""
        (least, first), (most, last) = self.lines[0], self.lines[-1]
        if most == least:
            return 0.0
        return max(0.0, last.seconds(requests) - first.seconds(requests)) / (most - least) / requests


def _line(points: list[tuple[int, float]], source: str) -> StepCurve:
    if len(points) == 1:
        requests, seconds = points[0]
        points = [*points, (2 * requests, 2 * seconds)]
    return StepCurve.of([requests for requests, _ in points], [seconds for _, seconds in points], source=source)
