"""How much longer rounds with drafts take than the profile says, beside rounds without that were run at the same time.

A profile is measured once, in quiet; a round has more to do than was measured then, on a machine that others may share.
What slows both kinds of rounds alike cancels out: only rounds that follow each other are compared. Plain numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

_LEAST = 3  # pairs before the profile is corrected
_KEPT = 15  # pairs of a drafter; their median counts, so that a few disturbed rounds decide nothing
_FADES = 1000  # rounds without a new pair after which the oldest one is forgotten: what rests is tried again at last
_APART = 2  # rounds between two comparisons at least: a pair needs two with drafts
MOST = 3.0  # nothing is corrected by more than this factor, either way


class Stretch:
    """Of batches of one size.

    A pair is a round without drafts and the one before it, if that was not the first with drafts: the first ones read
    what the text has grown by since the last drafts, and a single one is a try, of one request of many.

    Args:
        like: of batches of about this size, what these are taken for until they have told by themselves.
    """

    def __init__(self, like: Stretch | None = None) -> None:
        self._pairs = {name: _pairs([like.of(name)] * _LEAST) for name in like.drafters} if like is not None else {}
        self._medians: dict[str, float] = {}  # asked for far more often than there is a new pair
        self._drafter = ""  # of the last round
        self._factor = 1.0
        self._in_a_row = 0  # rounds with drafts of this drafter, up to the last one
        self._since_pair = 0
        self._could_rest = 0  # rounds in a row that were asked about

    def is_due(self, rounds: int) -> bool:
        """Whether a round without drafts is due, after so many that could be one; to be asked once a round."""
        self._could_rest += 1
        if self._could_rest <= max(_APART, rounds):
            return False
        self._could_rest = 0
        return True

    def learn(self, drafter: str, factor: float) -> bool:
        """One more round.

        Args:
            drafter: who drafted in it; '' for nobody.
            factor: its seconds, measured over expected.

        Returns:
            Whether something else is known now.
        """
        before, in_a_row, its_factor = self._drafter, self._in_a_row, self._factor
        self._in_a_row = 1 + (in_a_row if drafter == before else 0)
        self._drafter, self._factor = drafter, factor
        if drafter or not before or in_a_row < 2:
            return self._fade()
        self._pairs.setdefault(before, _pairs()).append(its_factor / factor)
        self._since_pair = 0
        self._medians.clear()
        return True

    def _fade(self) -> bool:
        self._since_pair += 1
        if self._since_pair <= _FADES or not any(self._pairs.values()):
            return False
        self._since_pair = 0
        self._medians.clear()
        for pairs in self._pairs.values():
            if pairs:
                pairs.popleft()
        return True

    def skip(self) -> None:
        """A round that tells nothing came between."""
        self._drafter, self._in_a_row = "", 0

    @property
    def drafters(self) -> list[str]:
        """Those with enough pairs."""
        return [drafter for drafter in self._pairs if self.known(drafter)]

    def known(self, drafter: str) -> bool:
        """Whether there are enough pairs."""
        return len(self._pairs.get(drafter, ())) >= _LEAST

    def of(self, drafter: str) -> float:
        """By how much the expected seconds of rounds with this drafter are to be multiplied, those without being 1."""
        if not self.known(drafter):
            return 1.0
        if drafter not in self._medians:
            self._medians[drafter] = median(self._pairs[drafter])
        return min(MOST, max(1 / MOST, self._medians[drafter]))


def _pairs(begin: Iterable[float] = ()) -> deque[float]:
    return deque(begin, maxlen=_KEPT)
