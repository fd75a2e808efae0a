"""Sequential Temperature Scaling (STS; DSpark, calibration): one temperature for each draft position.

Left to right: T_k is the grid's value for which the ECE of the survival a_k = Π_{i≤k} σ(logit_i / T_i) against the
observed prefix survival is least, with T_1 … T_{k-1} as they were found.

With few rounds the least error is often far out on the grid by chance, and such a fit is worse on other texts. So of
all temperatures whose error is within one standard error of the least (bootstrap over the rounds, the same resamples
for both), the one nearest to 1 as a factor is taken: the rule of one standard error (Breiman et al. 1984).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dspark_core.calibration.reliability import calibration_error, resampled_errors
from dspark_core.calibration.rounds import Floats, Rounds
from dspark_core.calibration.survival import confidences, survival

GRID = np.round(10 ** (np.arange(-100, 101) / 100), 4)  # 0.1 to 10 in steps of 2.3 %, 1 among them
LEAST_REACHED = 50  # rounds that must have come to a position before anything is fitted there
_RESAMPLES = 200
_TIE = 1e-12


def fit_sts(logits: ArrayLike, accepted_length: ArrayLike, observed_length: ArrayLike | None = None) -> Floats:
    """Temperatures [γ] from logits [n, γ], accepted lengths [n] and (where not γ) observed lengths [n].

    At each position the fitted error is at most that of T_k = 1 after the same T_1 … T_{k-1}. If the mean over the
    fitted positions should still come out above that of no calibration at all, every T stays 1. Positions
    `seldom_reached` stay at 1. The same rounds always give the same temperatures.

    Raises:
        ParameterError: as `Rounds.of` (NaN by name, shapes, lengths).
    """
    rounds = Rounds.of(logits, accepted_length, observed_length)
    temperatures = np.ones(rounds.num_positions)
    fitted = [k for k in range(rounds.num_positions) if k + 1 not in seldom_reached(rounds)]
    before = np.ones(len(rounds))  # a_{k-1}
    for k in fitted:  # a prefix of the positions: fewer rounds come to each further one
        temperatures[k] = _best(rounds, k, before)
        before = before * confidences(rounds.logits[:, [k]], temperatures[[k]])[:, 0]
    plain = np.ones(rounds.num_positions)
    if _mean_error(rounds, temperatures, fitted) > _mean_error(rounds, plain, fitted):
        return plain
    return temperatures


def seldom_reached(rounds: Rounds) -> dict[int, int]:
    """The positions k = 1, 2, … that too few rounds came to for a fit, each with that number of rounds."""
    reached = rounds.reached.sum(axis=0).tolist()
    return {k: n for k, n in enumerate(reached, start=1) if n < LEAST_REACHED}


def notes_on(rounds: Rounds, temperatures: Floats) -> tuple[str, ...]:
    """What a reader of temperatures [γ] fitted to these rounds should know."""
    kept, notes = seldom_reached(rounds), []
    if kept:
        told = ", ".join(f"{k} ({n})" for k, n in kept.items())
        notes.append(f"T stays 1 where fewer than {LEAST_REACHED} rounds of the fit came; position (rounds): {told}")
    if len(kept) < rounds.num_positions and (temperatures == 1).all():
        notes.append("no temperatures lowered the error of the fitted part, so T stays 1 everywhere")
    return tuple(notes)


def _best(rounds: Rounds, k: int, before: Floats) -> float:
    known = rounds.known[:, k]
    said = before[known, None] * confidences(rounds.logits[known, k][:, None], GRID)  # [rounds, grid]
    came = rounds.survived[known, k]
    errors = np.array([calibration_error(said[:, j], came) for j in range(len(GRID))], dtype=np.float64)
    best, plain = int(errors.argmin()), int(np.flatnonzero(GRID == 1)[0])
    weights = np.random.default_rng(k).multinomial(len(came), np.full(len(came), 1 / len(came)), _RESAMPLES)
    spread_of_best = resampled_errors(said[:, best], came, weights)

    def is_near(j: int) -> bool:
        spread = resampled_errors(said[:, j], came, weights) - spread_of_best
        return bool(errors[j] - errors[best] <= max(_TIE, float(spread.std())))

    from_1_outwards = np.argsort(np.abs(np.log(GRID)), kind="stable")
    return float(next(GRID[j] for j in from_1_outwards if errors[j] <= errors[plain] and is_near(j)))  # best is one


def _mean_error(rounds: Rounds, temperatures: Floats, positions: list[int]) -> float:
    said = survival(confidences(rounds.logits, temperatures))
    errors = [calibration_error(said[rounds.known[:, k], k], rounds.survived[rounds.known[:, k], k]) for k in positions]
    return float(np.mean([error for error in errors if error is not None])) if errors else 0.0
