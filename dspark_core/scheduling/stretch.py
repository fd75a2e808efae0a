"""How much longer rounds with drafts take than the profile says, beside rounds without that were run at the same time.

A profile is measured once, in quiet; a round has more to do than was measured then, on a machine that others may share.
What slows both kinds of rounds alike cancels out: only rounds that follow each other are compared. Plain numbers.
"""

from __future__ import annotations

from collections import deque
from statistics import median

_LEAST = 3  # pairs before the profile is corrected
_KEPT = 15  # pairs of a drafter; their median counts, so that a few disturbed rounds decide nothing
_APART = 4  # rounds between two comparisons at least
MOST = 2.0  # nothing is corrected by more than this factor, either way


class Stretch:
    """Of batches of one size."""

    def __init__(self) -> None:
        self._pairs: dict[str, deque[float]] = {}
        self._last: tuple[str, float] | None = None
        self._drafting = 0  # rounds in a row that were asked about

    def is_due(self, rounds: int) -> bool:
        """Whether a round without drafts is due, after so many that could be one; to be asked once a round."""
        self._drafting += 1
        if self._drafting <= max(_APART, rounds):
            return False
        self._drafting = 0
        return True

    def learn(self, drafter: str, factor: float) -> bool:
        """One more round.

        Args:
            drafter: who drafted in it; '' for nobody.
            factor: its seconds, measured over expected.

        Returns:
            Whether it and the round before make a pair.
        """
        before, self._last = self._last, (drafter, factor)
        if before is None or (before[0] == "") == (drafter == ""):
            return False
        drafting, plain = (self._last, before) if drafter else (before, self._last)
        self._pairs.setdefault(drafting[0], deque(maxlen=_KEPT)).append(drafting[1] / plain[1])
        return True

    def skip(self) -> None:
        """A round that tells nothing came between."""
        self._last = None

    def known(self, drafter: str) -> bool:
        """Whether there are enough pairs."""
        return len(self._pairs.get(drafter, ())) >= _LEAST

    def of(self, drafter: str) -> float:
        """By how much the expected seconds of rounds with this drafter are to be multiplied, those without being 1."""
        if not self.known(drafter):
            return 1.0
        return min(MOST, max(1 / MOST, median(self._pairs[drafter])))
