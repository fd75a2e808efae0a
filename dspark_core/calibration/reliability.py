"""Said against happened: reliability bins, and the expected calibration error (ECE) that sums them up.

B bins of equal width cover [0, 1]: bin b = 0 … B-1 holds the predictions p with b/B ≤ p < (b+1)/B, the last one p = 1
too. B is `BINS` everywhere in this project. Source: Guo et al., arXiv 1706.04599, §2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dspark_core.calibration.rounds import Floats, Whole
from dspark_core.errors import ParameterError

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """The predictions of one bin that holds any.

    Attributes:
        low, high: its edges.
        predicted: mean of its predictions.
        happened: share of its cases in which what was predicted happened.
        n: its cases.
    """

    low: float
    high: float
    predicted: float
    happened: float
    n: int


def reliability_bins(predicted: ArrayLike, happened: ArrayLike, bins: int = BINS) -> tuple[Bin, ...]:
    """The bins that hold any of the predictions [n], in rising order; ``happened`` [n] is true or false.

    Raises:
        ParameterError: NaN, a prediction outside [0, 1], lengths that differ, or no bin.
    """
    counts, said, came = _sums(predicted, happened, bins)
    return tuple(
        Bin(b / bins, (b + 1) / bins, float(said[b] / counts[b]), float(came[b] / counts[b]), int(counts[b]))
        for b in np.flatnonzero(counts)
    )


def calibration_error(predicted: ArrayLike, happened: ArrayLike, bins: int = BINS) -> float | None:
    """ECE = Σ_b (n_b / n) · |mean prediction of bin b - share that happened in bin b|; None for n = 0.

    Raises:
        ParameterError: as `reliability_bins`.
    """
    counts, said, came = _sums(predicted, happened, bins)
    return float(np.abs(said - came).sum() / counts.sum()) if counts.sum() else None


def resampled_errors(predicted: Floats, happened: ArrayLike, weights: ArrayLike, bins: int = BINS) -> Floats:
    """The ECE [m] of m resamples of the same n cases: ``weights`` [m, n] says how often each case is in each."""
    index = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    gaps = np.zeros((len(predicted), bins))
    gaps[np.arange(len(predicted)), index] = predicted - np.asarray(happened, dtype=np.float64)
    table = np.asarray(weights, dtype=np.float64)
    errors: Floats = np.abs(table @ gaps).sum(axis=1) / table.sum(axis=1)
    return errors


def _sums(predicted: ArrayLike, happened: ArrayLike, bins: int) -> tuple[Whole, Floats, Floats]:
    """Of each bin: cases, sum of the predictions, number that happened."""
    p, y = np.asarray(predicted, dtype=np.float64), np.asarray(happened, dtype=np.float64)
    if p.ndim != 1 or p.shape != y.shape:
        raise ParameterError(f"predicted has the shape {p.shape}, happened {y.shape}; give two lists of one length.")
    if bins < 1:
        raise ParameterError(f"bins is {bins}; give 1 or more.")
    if not ((p >= 0) & (p <= 1)).all():  # NaN is neither
        raise ParameterError("predicted holds NaN or a number outside 0 to 1; a probability is none of these.")
    if not ((y == 0) | (y == 1)).all():
        raise ParameterError("happened holds NaN or another number than 0 and 1; give true or false.")
    index = np.minimum((p * bins).astype(np.int64), bins - 1)
    counts: Whole = np.bincount(index, minlength=bins).astype(np.int64)
    said: Floats = np.bincount(index, weights=p, minlength=bins).astype(np.float64)
    came: Floats = np.bincount(index, weights=y, minlength=bins).astype(np.float64)
    return counts, said, came
