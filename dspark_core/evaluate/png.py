"""The charts as PNG files, drawn by matplotlib (the extra ``train``): it needs no browser, as Plotly's PNGs do."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.evaluate.charts import COLOURS, Chart, Panel, Series

_PANEL_INCHES = (5.2, 3.6)
_MARKERS, _HATCHES = "os^Dv*", ("", "//", "..", "xx", "\\\\", "--")  # colour is never the only sign
_DPI = 130


def check_matplotlib() -> None:
    """Raise ParameterError when matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ParameterError(
            "--plots draws its PNG files with matplotlib, which is not installed here. Install it with: "
            'python -m pip install "matplotlib>=3.9,<4" (the extra named train has it too), or leave --plots out.'
        )


def write_pngs(charts: Iterable[Chart], folder: Path) -> list[Path]:
    """One file a chart. Raises OSError when the folder cannot be written."""
    return [_write(chart, folder / f"{chart.name}.png") for chart in charts]


def _write(chart: Chart, path: Path) -> Path:
    from matplotlib.figure import Figure  # slow to import; no pyplot, so no state and no display

    lines = math.ceil(len(chart.panels) / chart.columns)
    width = max(2, chart.columns) * _PANEL_INCHES[0]
    figure = Figure(figsize=(width, lines * _PANEL_INCHES[1] + 1), layout="constrained", dpi=_DPI)
    axes = figure.subplots(lines, chart.columns, squeeze=False, sharey=True).flatten()
    for ax, panel in zip(axes, chart.panels, strict=True):
        (_bars if chart.kind == "bars" else _lines)(ax, panel)
        (_counts_below if chart.counts_below else _counts_beside)(ax, panel)
        ax.set(title=_plain(panel.title), ylabel=chart.y_label)
        ax.set_xlabel(chart.x_label)
        ax.grid(axis="y", alpha=0.3)
        ax.margins(y=0.12)
    axes[0].set_ylim(bottom=0)  # shared by all
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    figure.suptitle(_plain(chart.title), fontweight="bold")
    figure.supxlabel(_plain(textwrap.fill(chart.caption, int(width * 16))), fontsize=7)
    figure.savefig(path)
    return path


def _plain(text: str) -> str:
    """A dollar sign begins a formula in matplotlib; in our texts it is a dollar sign."""
    return text.replace("$", r"\$")


def _ticks(panel: Panel) -> tuple[str, ...]:
    """The names of the places on the axis; the drafters' points differ only in how many of them there are."""
    return max((series.x for series in panel.series), key=len, default=())


def _bars(ax: Any, panel: Panel) -> None:
    ticks = _ticks(panel)
    width = 0.8 / max(1, len(panel.series))
    for index, series in enumerate(panel.series):
        ax.bar(
            [place + (index - (len(panel.series) - 1) / 2) * width for place in range(len(series.x))],
            [y or 0 for y in series.y],
            width,
            label=_plain(series.name),
            color=COLOURS[index % len(COLOURS)],
            hatch=_HATCHES[index % len(_HATCHES)],
            edgecolor="white",
            yerr=_errors(series),
            capsize=3,
        )
    ax.set_xticks(range(len(ticks)), [_plain(tick) for tick in ticks])


def _lines(ax: Any, panel: Panel) -> None:
    for index, series in enumerate(panel.series):
        ax.errorbar(
            range(len(series.x)),
            [math.nan if y is None else y for y in series.y],
            yerr=_errors(series),
            label=_plain(series.name),
            color=COLOURS[index % len(COLOURS)],
            marker=_MARKERS[index % len(_MARKERS)],
            capsize=3,
            linewidth=1.5,
        )
    ticks = _ticks(panel)
    ax.set_xticks(range(len(ticks)), ticks)


def _counts_beside(ax: Any, panel: Panel) -> None:
    """A label on each bar. The axes keep what was drawn in order, error bars among it, so bars are picked by kind."""
    bars = [container for container in ax.containers if hasattr(container, "patches")]
    for container, series in zip(bars, panel.series, strict=True):
        ax.bar_label(container, series.labels, fontsize=6, padding=2, rotation=90)


def _counts_below(ax: Any, panel: Panel) -> None:
    """A line of labels a drafter under the axis, in its colour."""
    for index, series in enumerate(panel.series):
        for place, label in enumerate(series.labels):
            ax.annotate(
                label,
                (place, 0),
                (0, -20 - 9 * index),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=6,
                color=COLOURS[index % len(COLOURS)],
            )
    ax.xaxis.labelpad = 4 + 9 * len(panel.series)


def _errors(series: Series) -> list[list[float]] | None:
    """Distances below and above each point; 0 where the interval is unknown."""
    if not any(series.intervals):
        return None
    pairs = [
        (max(0.0, y - interval[0]), max(0.0, interval[1] - y)) if interval and y is not None else (0.0, 0.0)
        for y, interval in zip(series.y, series.intervals, strict=True)
    ]
    return [[below for below, _ in pairs], [above for _, above in pairs]]
