"""Intervals of a set's figures over the choice of its prompts: each resample is folded into telemetry's own figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from dspark_core.bench.bootstrap import interval_95, resamples
from dspark_core.telemetry import PositionShare, Summary

Interval = tuple[float, float]


@lru_cache(maxsize=16)  # a cell is asked for by itself, and as the baseline of every other drafter
def resampled(summaries: tuple[Summary, ...]) -> Resampled:
    """`Resampled`, made once for the same prompts."""
    return Resampled(summaries)


class Resampled:
    """What other choices of as many prompts would have given, prompts drawn with replacement.

    Args:
        summaries: one per prompt.
    """

    def __init__(self, summaries: Sequence[Summary]) -> None:
        self._draws = _merged(summaries) if len(summaries) > 1 else []

    def interval(self, figure: Callable[[Summary], float | None]) -> Interval | None:
        """95 % interval of a figure made of rounds, tokens, verified, accepted and conditional acceptance.

        None with fewer than two prompts, or when some resample does not have the figure at all: too little was seen
        to say how far it may move.
        """
        return _interval([figure(summary) for summary in self._draws])

    def interval_over(self, others: Resampled, figure: Callable[[Summary], float | None]) -> Interval | None:
        """95 % interval of the figure's ratio to that of ``others``, which hold the same prompts in the same order.

        Every resample takes the same prompts on both sides. None as in `interval`, or when the others' figure is 0 in
        some resample.
        """
        pairs = zip(map(figure, self._draws), map(figure, others._draws), strict=True)
        return _interval([ours / theirs if ours is not None and theirs else None for ours, theirs in pairs])


def _interval(figures: Sequence[float | None]) -> Interval | None:
    known = [value for value in figures if value is not None]
    return interval_95(known) if known and len(known) == len(figures) else None


def _merged(summaries: Sequence[Summary]) -> list[Summary]:
    """`telemetry.merge` of every resample, as far as the counts of `_counts` go.

    One sum of count vectors a resample: adding thousands of times the same few summaries would take minutes.
    """
    positions = max(len(summary.conditional) for summary in summaries)
    counts = np.array([_counts(summary, positions) for summary in summaries])
    totals = counts[resamples(len(summaries))].sum(axis=1).tolist()
    return [_summary(row, positions) for row in totals]


def _counts(summary: Summary, positions: int) -> list[int]:
    """Rounds, tokens, verified, accepted, hits by position, n by position."""
    missing = [0] * (positions - len(summary.conditional))
    hits = [at.hits for at in summary.conditional]
    totals = [summary.rounds, summary.tokens, summary.verified, summary.accepted]
    return [*totals, *hits, *missing, *(at.n for at in summary.conditional), *missing]


def _summary(row: Sequence[int], positions: int) -> Summary:
    (rounds, tokens, verified, accepted), rest = row[:4], row[4:]
    hits, n = rest[:positions], rest[positions:]
    shares = tuple(PositionShare(k + 1, hits[k], n[k]) for k in range(positions))
    return Summary(rounds=rounds, tokens=tokens, verified=verified, accepted=accepted, conditional=shares)
