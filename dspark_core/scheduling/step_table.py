"""T(R, t): seconds of a step in which R requests have t tokens each, from measured probes.

Plain numbers; `dspark_core/profiling` measures them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTable:
    """Passes of the same number of tokens differ by how many requests share them: each has its own keys, its own
    verdict, and a request of one token is cheaper than half of one of two.

    Attributes:
        shares: the t that were measured, rising.
        rows: by R, rising: R, and seconds by t.
    """

    shares: tuple[int, ...]
    rows: tuple[tuple[int, tuple[float, ...]], ...]

    def seconds(self, requests: int) -> tuple[float, ...]:
        """Seconds by t for so many requests: exact at a row, linear in R between two rows and on beyond the last."""
        counts = [count for count, _ in self.rows]
        at = min(max(1, bisect_left(counts, requests)), len(counts) - 1)
        (fewer, low), (more, high) = self.rows[at - 1], self.rows[at]
        share = (requests - fewer) / (more - fewer)
        # A line that noise has turned down must not lead below what any step takes.
        return tuple(max(min(a, b), a + share * (b - a)) for a, b in zip(low, high, strict=True))
