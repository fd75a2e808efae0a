"""From logits to confidences c_k to survivals a_k."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dspark_core.calibration.rounds import Floats

LARGEST_LOGIT = 60.0  # σ of anything beyond differs from 0 or 1 by less than 1e-26


def confidences(logits: ArrayLike, temperatures: ArrayLike) -> Floats:
    """c_k = σ(logit_k / T_k): logits [n, γ], temperatures [γ] above 0 → [n, γ]."""
    with np.errstate(over="ignore"):  # an infinite quotient is cut like any other large one
        scaled = np.asarray(logits, dtype=np.float64) / np.asarray(temperatures, dtype=np.float64)
    return np.asarray(1 / (1 + np.exp(-scaled.clip(-LARGEST_LOGIT, LARGEST_LOGIT))))


def survival(confidence: ArrayLike) -> Floats:
    """a_k = c_1 · … · c_k: [n, γ] → [n, γ]."""
    return np.asarray(np.multiply.accumulate(np.asarray(confidence, dtype=np.float64), axis=1))


def logits_of(confidence: ArrayLike) -> Floats:
    """σ's inverse. A confidence that rounded to 1 counts as the largest number below it (logit 36.7)."""
    c = np.asarray(confidence, dtype=np.float64).clip(np.finfo(np.float64).tiny, 1 - 2.0**-53)
    return np.asarray(np.log(c) - np.log1p(-c))
