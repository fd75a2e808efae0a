"""Whether higher confidences go with acceptance: the area under the ROC curve (AUC)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dspark_core.errors import ParameterError


def auc(scores: ArrayLike, happened: ArrayLike) -> float | None:
    """P(a case that happened scores above one that did not), ties counted as half; None when either kind is missing.

    Raises:
        ParameterError: NaN among the scores, or lengths that differ.
    """
    s, y = np.asarray(scores, dtype=np.float64), np.asarray(happened, dtype=bool)
    if s.ndim != 1 or s.shape != y.shape:
        raise ParameterError(f"scores have the shape {s.shape}, happened {y.shape}; give two lists of one length.")
    if np.isnan(s).any():
        raise ParameterError("scores hold NaN, which has no rank. Look for damaged weights.")
    hits, misses = int(y.sum()), int((~y).sum())
    if not hits or not misses:
        return None
    _, group, sizes = np.unique(s, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(sizes) - (sizes - 1) / 2  # of equal scores, counted from 1
    return float((mean_ranks[group][y].sum() - hits * (hits + 1) / 2) / (hits * misses))
