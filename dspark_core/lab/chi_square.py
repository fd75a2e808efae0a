"""Pearson's chi-square test: whether counts fit a law, and whether two samples of counts can come from one law.

The distribution of the statistic is known only where enough is expected of every cell: outcomes that are too rare are
pooled into one cell (Cochran's rule of 5). If even the pool is too rare, it joins the rarest cell that stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import mpmath
import numpy as np

from dspark_core.errors import ParameterError

LEAST_EXPECTED = 5.0
_Outcome = TypeVar("_Outcome", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a test found.

    Attributes:
        statistic: Σ (observed - expected)² / expected over the cells.
        degrees_of_freedom: cells - 1.
        p_value: the chance of such a statistic or a larger one where the laws are the same; None where there are fewer
            than two cells, so that nothing can be compared.
        n: all counts together.
        cells: cells compared, the pool included.
        pooled: outcomes that were pooled because less than 5 was expected of them.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float | None
    n: int
    cells: int
    pooled: int


def against_law(observed: Mapping[_Outcome, int], expected: Mapping[_Outcome, float]) -> Verdict:
    """Whether counts fit a law that is known.

    Args:
        observed: counts by outcome; outcomes that ``expected`` does not name count into the pool.
        expected: expected counts by outcome, with the same sum; None stands for all outcomes that are not named, which
            without it are impossible. One observation of what is impossible refutes the law: its p-value is 0.

    Raises:
        ParameterError: the sums differ.
    """
    total, promised = sum(observed.values()), sum(expected.values())
    if abs(total - promised) > 1e-6 * max(1.0, total):
        raise ParameterError(f"{total} outcomes were counted and {promised:.6g} expected; compare as many of each.")
    cells = [outcome for outcome, count in expected.items() if count >= LEAST_EXPECTED and outcome is not None]
    seen = [float(observed.get(outcome, 0)) for outcome in cells]
    wanted = [expected[outcome] for outcome in cells]
    table = _with_pool([seen], [wanted], [total - sum(seen)], [promised - sum(wanted)])
    verdict = _verdict(*table, n=total, pooled=len(set(expected) | set(observed)) - len(cells))
    unnamed = sum(count for outcome, count in expected.items() if outcome is None)
    if any(count and not expected.get(outcome, unnamed) for outcome, count in observed.items()):
        return replace(verdict, statistic=math.inf, p_value=0.0)  # the pool would hide it
    return verdict


def of_two_samples(one: Mapping[_Outcome, int], other: Mapping[_Outcome, int]) -> Verdict:
    """Whether two independent samples can come from one law (test of homogeneity). Either may be empty."""
    samples = (one, other)
    sizes = [sum(sample.values()) for sample in samples]
    n = sum(sizes)
    outcomes = sorted(set(one) | set(other), key=repr)
    if min(sizes) == 0:
        return Verdict(0.0, 0, None, n, 0, 0)
    together = {outcome: one.get(outcome, 0) + other.get(outcome, 0) for outcome in outcomes}
    # Which cells are pooled depends on both samples' sum alone: it must not favour a difference, nor hide one.
    cells = [outcome for outcome in outcomes if min(sizes) * together[outcome] / n >= LEAST_EXPECTED]
    rest = n - sum(together[outcome] for outcome in cells)
    seen = [[float(sample.get(outcome, 0)) for outcome in cells] for sample in samples]
    wanted = [[size * together[outcome] / n for outcome in cells] for size in sizes]
    rest_seen = [size - sum(row) for size, row in zip(sizes, seen, strict=True)]
    table = _with_pool(seen, wanted, rest_seen, [size * rest / n for size in sizes])
    return _verdict(*table, n=n, pooled=len(outcomes) - len(cells))


_Table = list[list[float]]


def _with_pool(
    seen: _Table, wanted: _Table, rest_seen: Sequence[float], rest_wanted: Sequence[float]
) -> tuple[_Table, _Table]:
    """Both tables, a row a sample, with the rest as a cell of its own or, too rare for that, in the rarest cell."""
    if max(rest_wanted) <= 1e-9 and not any(rest_seen):
        return seen, wanted
    alone = min(rest_wanted) >= LEAST_EXPECTED or not wanted[0]
    at = None if alone else wanted[0].index(min(wanted[0]))
    for row, rest in (*zip(seen, rest_seen, strict=True), *zip(wanted, rest_wanted, strict=True)):
        if at is None:
            row.append(rest)
        else:
            row[at] += rest
    return seen, wanted


def _verdict(seen: _Table, wanted: _Table, *, n: int, pooled: int) -> Verdict:
    observed, expected = np.array(seen), np.array(wanted)
    cells = expected.shape[1]
    if cells < 2:
        return Verdict(0.0, 0, None, n, cells, pooled)
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return Verdict(statistic, cells - 1, survival_function(statistic, cells - 1), n, cells, pooled)


def survival_function(statistic: float, degrees_of_freedom: int) -> float:
    """P(X ≥ statistic) for X of the chi-square law: the regularised upper incomplete gamma function Q(df/2, x/2)."""
    return float(mpmath.gammainc(degrees_of_freedom / 2, statistic / 2, mpmath.inf, regularized=True))
