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


def clustered_weights(sizes: Sequence[int]) -> NDArray[np.float64]:
    """How often each item is drawn in each resample [2000, sum of sizes]: the same at every call.

    The items come in clusters of these sizes, one after the other. A resample draws as many clusters with replacement,
    and for each of them as many of its items as it has: so both the choice of clusters and that of items may move a
    figure. With one cluster this is the plain bootstrap over its items.
    """
    rng = np.random.default_rng(0)
    clusters = len(sizes)
    drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=_RESAMPLES)
    parts = [
        rng.multinomial(drawn[:, at] * size, np.full(size, 1 / size)) if size else np.zeros((_RESAMPLES, 0))
        for at, size in enumerate(sizes)
    ]
    return np.concatenate(parts, axis=1).astype(np.float64)
