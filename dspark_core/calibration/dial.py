"""What one position's temperature does: reliability, errors and confidences over a scale of temperatures.

All of it is computed beforehand, so that a slider over the scale shows its effect at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark_core.calibration.figures import figures_by_position, mean_ece
from dspark_core.calibration.reliability import Bin, calibration_error, reliability_bins
from dspark_core.calibration.rounds import Floats, Rounds
from dspark_core.calibration.survival import confidences, survival

SCALE = tuple(round(2 ** (step / 6), 3) for step in range(-12, 13))  # 0.25 to 4, 1 in the middle


@dataclass(frozen=True, slots=True)
class Turn:
    """The effect of T_k.

    Attributes:
        temperature: T_k; the other positions' stay as they are.
        bins: reliability bins of the survival a_k.
        confidences: bins of c_k over the rounds that came to k, with the share accepted.
        errors: ECE of a_1 … a_γ; None where no round was observed.
        mean_error: mean over the observed positions.
    """

    temperature: float
    bins: tuple[Bin, ...]
    confidences: tuple[Bin, ...]
    errors: tuple[float | None, ...]
    mean_error: float | None


def dial(rounds: Rounds, temperatures: Sequence[float], position: int) -> tuple[Turn, ...]:
    """The effect of T_k for k = ``position`` (from 1) on these rounds, over `SCALE` and T_k's present value, rising."""
    scale = sorted({*SCALE, temperatures[position - 1]})
    c = confidences(rounds.logits, temperatures)
    a = survival(c)
    unchanged = [_error(rounds, a, k) for k in range(position - 1)]
    turns = []
    for temperature in scale:
        own = confidences(rounds.logits[:, [position - 1]], [temperature])
        moved = np.concatenate([c[:, : position - 1], own, c[:, position:]], axis=1)
        turns.append(_turn(rounds, temperature, moved, position - 1, unchanged))
    return tuple(turns)


def all_positions(rounds: Rounds, temperatures: Sequence[float]) -> Turn:
    """Every position's survivals and confidences together; ``temperature`` of the result is 1 and says nothing."""
    c = confidences(rounds.logits, temperatures)
    a = survival(c)
    figures = figures_by_position(rounds, temperatures)
    return Turn(
        temperature=1.0,
        bins=reliability_bins(a[rounds.known], rounds.survived[rounds.known]),
        confidences=reliability_bins(c[rounds.reached], rounds.survived[rounds.reached]),
        errors=tuple(at.ece for at in figures),
        mean_error=mean_ece(figures),
    )


def _turn(rounds: Rounds, temperature: float, c: Floats, k: int, unchanged: list[float | None]) -> Turn:
    a = survival(c)
    known, reached = rounds.known[:, k], rounds.reached[:, k]
    errors = (*unchanged, *(_error(rounds, a, j) for j in range(k, rounds.num_positions)))
    observed = [error for error in errors if error is not None]
    return Turn(
        temperature=temperature,
        bins=reliability_bins(a[known, k], rounds.survived[known, k]),
        confidences=reliability_bins(c[reached, k], rounds.survived[reached, k]),
        errors=errors,
        mean_error=sum(observed) / len(observed) if observed else None,
    )


def _error(rounds: Rounds, a: Floats, k: int) -> float | None:
    known = rounds.known[:, k]
    return calibration_error(a[known, k], rounds.survived[known, k])
