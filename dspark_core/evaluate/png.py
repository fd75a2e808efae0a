"""The charts as PNG files, drawn by matplotlib (the extra ``train``): it needs no browser, as Plotly's PNGs do."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.evaluate.charts import COLOURS, Chart, Panel, Series, beside
from dspark_core.files import write_whole

_PANEL_INCHES = (6.0, 3.0)
_MARKERS = "os^DvP*X"
_HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo")  # colour is never the only sign
_INK = "#343a40"
_ROW_POINTS = 9  # height of a line of counts
_DPI = 130


def check_matplotlib(option: str = "--plots") -> None:
    """Raise ParameterError when matplotlib, which that option needs, is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ParameterError(
            f"{option} draws its PNG files with matplotlib, which is not installed here. Install it with: "
            'python -m pip install "matplotlib>=3.9,<4" (the extra named train has it too), '
            f"or leave {option} out."
        )


def write_pngs(charts: Iterable[Chart], folder: Path) -> list[Path]:
    """One file a chart. Raises ResourceError when the disk refuses."""
    return [_write(chart, folder / f"{chart.name}.png") for chart in charts]


def _write(chart: Chart, path: Path) -> Path:
    from matplotlib.figure import Figure  # slow to import; no pyplot, so no state and no display

    lines = math.ceil(len(chart.panels) / chart.columns)
    drafters = max(len(panel.series) for panel in chart.panels)
    width = max(2, chart.columns) * _PANEL_INCHES[0]
    height = lines * (_PANEL_INCHES[1] + drafters * _ROW_POINTS / 72) + 1.3
    figure = Figure(figsize=(width, height), layout="constrained", dpi=_DPI)
    axes = figure.subplots(lines, chart.columns, squeeze=False).flatten()
    for ax, panel in zip(axes, chart.panels, strict=False):
        (_bars if chart.kind == "bars" else _lines)(ax, panel)
        ax.set(title=_plain(panel.title), ylabel=chart.y_label, ylim=(0, chart.top))
        if chart.kind == "curve":
            ax.set_xlim(left=0)
        else:
            _counts_below(ax, panel)
            ax.set_xticks(range(len(panel.ticks)), list(map(_plain, panel.ticks)))
            ax.set_xlim(-0.6, max(1, len(panel.ticks)) - 0.4)
        ax.grid(axis="y", alpha=0.3)
        ax.set_axisbelow(True)
    for ax in axes[len(chart.panels) :]:
        ax.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    figure.suptitle(_plain(chart.title) + "\n", fontweight="bold")  # the empty line is the legend's place
    figure.legend(
        handles,
        names,
        loc="upper center",
        bbox_to_anchor=(0.5, 1 - 0.22 / height),
        borderaxespad=0,
        ncols=max(1, len(names)),
        frameon=False,
    )
    words = ["", *textwrap.wrap(chart.x_label, int(width * 16)), "", *textwrap.wrap(chart.caption, int(width * 16))]
    figure.supxlabel(_plain("\n".join(words)), fontsize=7)
    write_whole(path, lambda unfinished: figure.savefig(unfinished, format="png"))
    return path


def _plain(text: str) -> str:
    """A dollar sign begins a formula in matplotlib; in our texts it is a dollar sign."""
    return text.replace("$", r"\$")


def _bars(ax: Any, panel: Panel) -> None:
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
            ecolor=_INK,
            capsize=2,
        )


def _lines(ax: Any, panel: Panel) -> None:
    for index, series in enumerate(panel.series):
        colour, marker = COLOURS[index % len(COLOURS)], _MARKERS[index % len(_MARKERS)]
        beside_ticks = [place + beside(index, len(panel.series)) for place in range(len(series.x))]
        places = beside_ticks if series.at is None else list(series.at)
        heights = [math.nan if y is None else y for y in series.y]
        ax.errorbar(
            places,
            heights,
            yerr=_errors(series),
            label=_plain(series.name),
            color=colour,
            marker=marker,
            markersize=5,
            capsize=2,
            linewidth=1.2,
        )
        hollow = [i for i, interval in enumerate(series.intervals) if interval is None]
        ax.plot(
            [places[i] for i in hollow],
            [heights[i] for i in hollow],
            linestyle="none",
            marker=marker,
            markersize=5,
            markerfacecolor="white",
            markeredgecolor=colour,
            zorder=3,
        )
        if series.at is not None:
            _names_beside(ax, series, colour)


def _names_beside(ax: Any, series: Series, colour: str) -> None:
    """What each point of a curve stands for."""
    for place, y, name in zip(series.at or (), series.y, series.x, strict=True):
        if y is not None:
            beside_it = {"textcoords": "offset points", "fontsize": 8, "color": colour, "ha": "left"}
            ax.annotate(_plain(name), (place, y), (5, 4), **beside_it)


def _counts_below(ax: Any, panel: Panel) -> None:
    """A line a drafter under the axis: its name, and what each point was counted from."""

    def write(text: str, place: tuple[float, float], line: int, coordinates: Any, **style: Any) -> None:
        ax.annotate(
            text,
            place,
            (0, -20 - _ROW_POINTS * line),
            xycoords=coordinates,
            textcoords="offset points",
            va="top",
            fontsize=6,
            **style,
        )

    for index, series in enumerate(panel.series):
        colour = COLOURS[index % len(COLOURS)]
        name = _plain(textwrap.shorten(series.name, 16, placeholder="…"))
        write(name, (-0.01, 0), index, "axes fraction", ha="right", color=colour, fontweight="bold")
        for place, n in enumerate(series.n):
            write(str(n), (place, 0), index, ("data", "axes fraction"), ha="center", color=_INK)


def _errors(series: Series) -> list[list[float]] | None:
    """Distances below and above each point; 0 where the interval is unknown."""
    if not any(series.intervals):
        return None
    pairs = [
        (max(0.0, y - interval[0]), max(0.0, interval[1] - y)) if interval and y is not None else (0.0, 0.0)
        for y, interval in zip(series.y, series.intervals, strict=True)
    ]
    return [[below for below, _ in pairs], [above for _, above in pairs]]
