"""A calibration as a table for a terminal."""

from __future__ import annotations

from dspark_core.calibration.calibration import Setting
from dspark_core.calibration.figures import mean_ece

_COLUMNS = ("k", "T", "n", "survived", "ECE before", "ECE after", "reached", "AUC before", "AUC after")


def table(setting: Setting) -> str:
    """One row a position, figures of the held-out part; then the mean ECE and the notes."""
    rows = [_COLUMNS]
    for t, before, after in zip(setting.confidence_temperatures, setting.before, setting.after, strict=True):
        rows.append(
            (
                str(before.position),
                f"{t:.2f}",
                str(before.n),
                _share(before.survived),
                _percent(before.ece),
                _percent(after.ece),
                str(before.reached),
                _share(before.auc),
                _share(after.auc),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(
        [
            f"{setting.name}: fitted on {setting.fit_rounds} rounds, figures from {setting.held_out_rounds} others",
            *lines,
            f"mean ECE of survival: {_percent(mean_ece(setting.before))} before, "
            f"{_percent(mean_ece(setting.after))} after",
            *setting.notes,
        ]
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
