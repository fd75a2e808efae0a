"""Bootstrap: how far a figure would move if other prompts of the same kind, and as many, had been measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 2000


def resamples(n: int) -> NDArray[np.intp]:
    """Indices [2000, n] drawn from 0 … n - 1 with replacement: the same ones at every call."""
    return np.random.default_rng(0).integers(n, size=(_RESAMPLES, n))


def interval_95(figures: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """The middle 95 % of the figures that the resamples gave."""
    low, high = np.quantile(figures, (0.025, 0.975))
    return float(low), float(high)
