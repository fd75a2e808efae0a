"""The figures of a load test, each defined once: from recorded times and counts to numbers. Pure.

Symbols: N users, ℓ verified drafts of one request in one round, W resamples (1 for the measured figure itself),
K answers. A figure that nothing was observed for is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dspark_core.load_test.trace import AnswerTrace, CellTrace, Commit

Array = NDArray[np.float64]


class Share(NamedTuple):
    """What one answer had in the window, so that the shares of all answers add up to the whole window.

    An answer without a round there has no share: its seconds are the others'.

    Attributes:
        tokens: committed tokens.
        wall_s: its part of the window's seconds, in proportion to those during which it was there (asked for and not
            ended).
        rounds: its rounds.
        verified, accepted: drafts that the target checked, and those that joined the answer.
        draft_s, schedule_s, round_s: seconds of its rounds; a round that several answers shared counts for each.
    """

    tokens: float
    wall_s: float
    rounds: float
    verified: float
    accepted: float
    draft_s: float
    schedule_s: float
    round_s: float


NOTHING = Share(*[0.0] * len(Share._fields))


def shares(cell: CellTrace) -> dict[int, Share]:
    """By index, the shares of the answers that had a round in the window."""
    rounds = {answer.index: _within(answer, cell) for answer in cell.answers}
    present = {answer.index: _overlap_s(answer, cell) for answer in cell.answers if rounds[answer.index]}
    total = sum(present.values())
    return {
        index: _share(rounds[index], cell.wall_s * seconds / total) for index, seconds in present.items() if seconds > 0
    }


def counted(cell: CellTrace) -> list[AnswerTrace]:
    """The answers to questions of the list that ended in the window: whose speed and waiting count."""
    return [
        answer
        for answer in cell.answers
        if answer.index >= 0
        and (cell.counting is None or answer.index < cell.counting)
        and answer.ended_s is not None
        and answer.ended_s <= cell.end_s
    ]


def starting(cell: CellTrace) -> list[AnswerTrace]:
    """The users' first answers, all asked for at the same moment."""
    return [answer for answer in cell.answers if answer.index < 0]


def mean_users(cell: CellTrace) -> float:
    """Answers that were there on average in the window: N, but for the moments between two of a user's answers."""
    return sum(_overlap_s(answer, cell) for answer in cell.answers) / cell.wall_s if cell.wall_s > 0 else 0.0


def _overlap_s(answer: AnswerTrace, cell: CellTrace) -> float:
    end = cell.end_s if answer.ended_s is None else min(answer.ended_s, cell.end_s)
    return max(0.0, end - max(answer.submitted_s, cell.start_s))


def _within(answer: AnswerTrace, cell: CellTrace) -> list[Commit]:
    return [commit for commit in answer.commits if cell.start_s < commit.at_s <= cell.end_s]


def _share(commits: list[Commit], wall_s: float) -> Share:
    return Share(
        tokens=sum(commit.tokens for commit in commits),
        wall_s=wall_s,
        rounds=len(commits),
        verified=sum(commit.verified for commit in commits),
        accepted=sum(commit.accepted for commit in commits),
        draft_s=sum(commit.draft_s for commit in commits),
        schedule_s=sum(commit.schedule_s for commit in commits),
        round_s=sum(commit.round_s for commit in commits),
    )


@dataclass(frozen=True, slots=True)
class Sums:
    """Weighted sums of shares, elementwise for W choices of answers: ``of`` has the columns of `Share` [W, 8]."""

    of: Array

    def _column(self, name: str) -> Array:
        column: Array = self.of[:, Share._fields.index(name)]
        return column

    @property
    def throughput(self) -> Array:
        """Committed tokens of all users over the window's seconds: tokens/s."""
        return _over(self._column("tokens"), self._column("wall_s"))

    @property
    def tau(self) -> Array:
        """τ: committed tokens per request and round."""
        return _over(self._column("tokens"), self._column("rounds"))

    @property
    def budget(self) -> Array:
        """Tokens in the target's pass per request and round, the mean of 1 + ℓ (DSpark, Figure 8)."""
        return 1 + _over(self._column("verified"), self._column("rounds"))

    @property
    def wasted_share(self) -> Array:
        """Wasted verification: verified drafts that did not join the answer, over verified drafts."""
        return _over(self._column("verified") - self._column("accepted"), self._column("verified"))

    @property
    def wasted_per_token(self) -> Array:
        """Wasted verification: verified drafts that did not join the answer, per committed token."""
        return _over(self._column("verified") - self._column("accepted"), self._column("tokens"))

    @property
    def draft_share(self) -> Array:
        """Drafting time over the time of the rounds."""
        return _over(self._column("draft_s"), self._column("round_s"))

    @property
    def schedule_share(self) -> Array:
        """Scheduling time over the time of the rounds."""
        return _over(self._column("schedule_s"), self._column("round_s"))


SUM_FIGURES = (
    "throughput",
    "tau",
    "budget",
    "wasted_share",
    "wasted_per_token",
    "draft_share",
    "schedule_share",
)


def quantile(values: Array, weights: Array, q: float) -> Array:
    """The smallest value that a share q of the weight does not exceed, for each row of weights [W, K] → [W]."""
    if not values.size:
        return np.full(len(weights), np.nan)
    order = np.argsort(values)
    reached = np.cumsum(weights[:, order], axis=1)
    total = reached[:, -1:]
    at = np.argmax(reached >= q * total - 1e-9, axis=1)
    found: Array = np.where(total[:, 0] > 0, values[order][at], np.nan)
    return found


def _over(above: Array, below: Array) -> Array:
    ratio: Array = np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)
    return ratio


def ratio(ours: Array, theirs: Array) -> Array:
    """Elementwise ``ours / theirs``; NaN where the other one is 0 or unknown."""
    return _over(ours, theirs)
