"""The tab's figures as JSON: all are the core's, computed on the part that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspark_core.calibration.dial import Turn, all_positions, dial
from dspark_core.calibration.figures import figures_by_position
from dspark_core.calibration.halves import fitted_setting, held_out
from dspark_core.calibration.reliability import Bin
from dspark_core.calibration.rounds import Rounds, joined

_DIGITS = 4


def figures_json(temperature: float, parts: Sequence[Rounds], num_positions: int) -> dict[str, Any]:
    """Reliability before and after, errors by position, and each position's scale.

    Of a single answer nothing is fitted: its own figures are shown, and ``fitted`` is False.
    """
    ones = [1.0] * num_positions
    if len(parts) >= 2:
        setting = fitted_setting(temperature, parts, num_positions)
        rounds, temperatures = held_out(parts, num_positions), list(setting.confidence_temperatures)
        fit_rounds, notes = setting.fit_rounds, setting.notes
    else:
        rounds, temperatures, fit_rounds, notes = joined(parts, num_positions), ones, 0, ()
    before = figures_by_position(rounds, ones)
    return {
        "fitted": len(parts) >= 2,
        "fit_rounds": fit_rounds,
        "rounds": len(rounds),
        "answers": len(parts),
        "notes": notes,
        "temperatures": temperatures,
        "positions": [
            [at.position, at.n, _short(at.survived), _short(at.ece), at.reached, _short(at.auc), _bins(at.bins)]
            for at in before
        ],
        "together": [_turn(all_positions(rounds, each)) for each in (ones, temperatures)],
        "dials": [
            [_turn(turn) for turn in dial(rounds, temperatures, at.position)] if at.reached else [] for at in before
        ],
    }


def _turn(turn: Turn) -> list[Any]:
    return [
        turn.temperature, _bins(turn.bins), _bins(turn.confidences), list(map(_short, turn.errors)),
        _short(turn.mean_error),
    ]  # fmt: skip


def _bins(bins: Sequence[Bin]) -> list[list[Any]]:
    return [[at.low, _short(at.predicted), _short(at.happened), at.n] for at in bins]


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
