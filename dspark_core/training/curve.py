"""The picture of a training run, drawn anew at every validation: loss terms, τ and acceptance by position."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_core.training.files import write_whole

CURVE_NAME = "curve.png"
_TERMS = ("loss", "ce", "tv", "confidence", "cosine")  # `confidence` is its BCE term


def write_curve(rows: Iterable[Mapping[str, Any]], file: Path) -> bool:
    """Draw the rows of a training log. False when matplotlib (the extra `train`) is not there: the log has it all.

    The file appears whole or not at all. Raises ResourceError when it cannot be written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure  # slow to import; no pyplot, so no state and no display

    found = [row for row in rows if isinstance(row.get("elapsed_s"), int | float)]
    figure = Figure(figsize=(15, 4.2), layout="constrained", dpi=110)
    losses, taus, positions = figure.subplots(1, 3)
    for name in _TERMS:
        _line(losses, found, name)
    for name in ("law_tau", "greedy_tau"):
        _line(taus, found, name, marker="o")
    _acceptance(positions, [row["law_acceptance"] for row in found if isinstance(row.get("law_acceptance"), list)])
    losses.set(title="Loss and its terms", xlabel="minutes of training")
    taus.set(title="τ on held-out conversations", xlabel="minutes of training")
    positions.set(title="Acceptance by position (law, T = 1)", xlabel="position k", ylim=(0, 1))
    for axes in (losses, taus, positions):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    write_whole(file, lambda path: figure.savefig(path, format="png"))  # whose name ends otherwise
    return True


def _line(axes: Any, rows: Sequence[Mapping[str, Any]], name: str, **style: Any) -> None:
    points = [(row["elapsed_s"] / 60, row[name]) for row in rows if isinstance(row.get(name), int | float)]
    if points:
        axes.plot(*zip(*points, strict=True), label=name, **style)


def _acceptance(axes: Any, measured: Sequence[Sequence[float]]) -> None:
    """The first, the middle and the newest validation."""
    chosen = {0: "first", len(measured) // 2: "half-way", len(measured) - 1: "newest"} if measured else {}
    for index, name in chosen.items():
        axes.plot(range(1, len(measured[index]) + 1), measured[index], marker="o", label=name)
