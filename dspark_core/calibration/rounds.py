"""Rounds whose drafts were all verified: what the confidence head said, and how far the drafts were right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dspark_core.errors import ParameterError

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rounds:
    """Checked arrays of n rounds. Make them with `Rounds.of`.

    Attributes:
        logits: [n, γ] the head's logits before any calibration; 0 at positions that were not observed.
        accepted: [n] accepted drafts of each round, at most ``observed``.
        observed: [n] positions k ≤ γ of which it is known whether 1 … k were all accepted. It is below γ where fewer
            were drafted, or where the text ended on an accepted draft: what would have come after is not known.
    """

    logits: Floats
    accepted: Whole
    observed: Whole

    @classmethod
    def of(cls, logits: ArrayLike, accepted: ArrayLike, observed: ArrayLike | None = None) -> Rounds:
        """Rounds from logits [n, γ], accepted lengths [n] and observed lengths [n] (γ everywhere if left out).

        Raises:
            ParameterError: shapes that do not fit, lengths outside 0 ≤ accepted ≤ observed ≤ γ, or a logit at an
                observed position that is no finite number.
        """
        table = np.array(logits, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] == 0:
            raise ParameterError(f"logits have the shape {table.shape}; give a row a round and a column a position.")
        count, width = table.shape
        right = _lengths("accepted_length", accepted, count)
        known = np.full(count, width) if observed is None else _lengths("observed_length", observed, count)
        wrong = np.flatnonzero((right < 0) | (right > known) | (known > width))
        if len(wrong):
            i = wrong[0]
            raise ParameterError(
                f"Round {i} has accepted_length {right[i]} of {known[i]} observed of {width} positions; each must be "
                "at least 0 and at most the next."
            )
        seen = np.arange(width) < known[:, None]
        broken = np.argwhere(seen & ~np.isfinite(table))
        if len(broken):
            i, k = broken[0]
            raise ParameterError(
                f"logits hold {table[i, k]} in round {i} at position {k + 1}; nothing can be fitted to what is no "
                "finite number. Look for damaged weights."
            )
        return cls(np.where(seen, table, 0.0), right, known)

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def num_positions(self) -> int:
        """γ."""
        return int(self.logits.shape[1])

    @cached_property
    def survived(self) -> Flags:
        """[n, γ] whether 1 … k were all accepted."""
        return np.arange(self.num_positions) < self.accepted[:, None]

    @cached_property
    def known(self) -> Flags:
        """[n, γ] whether ``survived`` is known there."""
        return np.arange(self.num_positions) < self.observed[:, None]

    @cached_property
    def reached(self) -> Flags:
        """[n, γ] whether 1 … k-1 were all accepted and k was observed: the rounds that tell about c_k."""
        return self.known & (np.arange(self.num_positions) <= self.accepted[:, None])


def joined(parts: Iterable[Rounds], num_positions: int) -> Rounds:
    """All rounds of ``parts`` in one; none at all gives zero rounds of ``num_positions``."""
    several = list(parts)
    empty: Any = np.empty((0, num_positions))
    return Rounds(
        np.concatenate([empty, *(part.logits for part in several)]),
        np.concatenate([empty[:, 0].astype(np.int64), *(part.accepted for part in several)]),
        np.concatenate([empty[:, 0].astype(np.int64), *(part.observed for part in several)]),
    )


def _lengths(name: str, values: ArrayLike, count: int) -> Whole:
    lengths = np.array(values)
    if lengths.shape != (count,):
        raise ParameterError(f"{name} has the shape {lengths.shape}; give one number for each of {count} rounds.")
    if count and not (np.isfinite(lengths.astype(np.float64)) & (lengths == np.floor(lengths))).all():
        raise ParameterError(f"{name} must hold whole numbers; NaN and fractions are none.")
    return lengths.astype(np.int64)
