"""The charts as one HTML page that needs nothing else: Plotly's figures as data, and plotly.js inside the file.

A Plotly figure is a JSON value, so no Plotly code of Python's runs here: the core draws without it. The script is
taken from where the installed package ``plotly`` keeps it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.evaluate.charts import COLOURS, Chart, Panel, Series
from dspark_core.files import write_whole_text

_SCRIPT = "plotly/package_data/plotly.min.js"
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "star")
_PATTERNS = ("", "/", ".", "x", "\\", "-")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Evaluation of drafters</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 90rem; padding: 0 1rem; }}
.panels {{ display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }}
h3 {{ font-size: 1rem; margin: 0; }}
.panels > div {{ min-width: 0; }}
.panel {{ height: 24rem; }}
.caption {{ color: #495057; font-size: 0.875rem; }}
</style>
<script>{script}</script>
</head>
<body>
<h1>Evaluation of drafters</h1>
{sections}
<script type="application/json" id="figures">{figures}</script>
<script>
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [index, figure] of figures.entries()) {{
  Plotly.newPlot("panel-" + index, figure.data, figure.layout, {{ responsive: true, displaylogo: false }});
}}
</script>
</body>
</html>
"""


def plotly_script() -> str:
    """The text of plotly.js. Raises ParameterError when the installed packages do not have it."""
    try:
        return Path(str(distribution("plotly").locate_file(_SCRIPT))).read_text(encoding="utf-8")
    except (PackageNotFoundError, OSError) as error:
        raise ParameterError(
            f"--plots needs the package plotly for its HTML page, and it is not whole here ({error}). Install it with: "
            'python -m pip install "plotly>=6.3,<8", or leave --plots out.'
        ) from error


def write_page(charts: Sequence[Chart], folder: Path) -> Path:
    """Write ``evaluation.html``. Raises ParameterError as `plotly_script`, ResourceError when it cannot be written."""
    figures = [_figure(chart, panel) for chart in charts for panel in chart.panels]
    path = folder / "evaluation.html"
    write_whole_text(
        path,
        _PAGE.format(
            script=plotly_script(),
            sections="\n".join(_sections(charts)),
            figures=json.dumps(figures, allow_nan=False).replace("<", "\\u003c"),  # no name may end the script
        ),
    )
    return path


def _sections(charts: Sequence[Chart]) -> list[str]:
    sections, index = [], 0
    for chart in charts:
        panels = []
        for panel in chart.panels:
            title = html.escape(f"{chart.title}: {panel.title}")
            panels.append(
                f"<div><h3>{html.escape(panel.title)}</h3>"
                f'<div class="panel" id="panel-{index}" role="img" aria-label="{title}"></div></div>'
            )
            index += 1
        sections.append(
            f'<section>\n<h2>{html.escape(chart.title)}</h2>\n<div class="panels">\n'
            + "\n".join(panels)
            + f'\n</div>\n<p class="caption">{html.escape(chart.caption)}</p>\n</section>'
        )
    return sections


def _figure(chart: Chart, panel: Panel) -> dict[str, Any]:
    """Plotly reads texts as markup, so names are escaped."""
    draw = _bar if chart.kind == "bars" else _line
    beside = {"textposition": "none" if chart.counts_below else "outside"} if chart.kind == "bars" else {}
    return {
        "data": [draw(index, series) | beside for index, series in enumerate(panel.series)],
        "layout": {
            "xaxis": {
                "title": {"text": html.escape(chart.x_label)},
                "type": "category",
                "automargin": True,
                **(_counts_below(panel) if chart.counts_below else {}),
            },
            "yaxis": {"title": {"text": html.escape(chart.y_label)}, "rangemode": "tozero"},
            "barmode": "group",
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "margin": {"t": 64, "r": 16, "b": 48, "l": 56},
        },
    }


def _counts_below(panel: Panel) -> dict[str, Any]:
    """Under each tick what each drafter's point was counted from, in its colour."""
    counts: dict[str, str] = {}
    for index, series in enumerate(panel.series):
        for x, label in zip(map(html.escape, series.x), map(html.escape, series.labels), strict=True):
            coloured = f'<span style="color:{COLOURS[index % len(COLOURS)]};font-size:0.8em">{label}</span>'
            counts[x] = f"{counts.get(x, x)}<br>{coloured}"
    return {"tickvals": list(counts), "ticktext": list(counts.values()), "tickangle": 0}


def _points(series: Series) -> dict[str, Any]:
    points: dict[str, Any] = {
        "name": html.escape(series.name),
        "x": [html.escape(x) for x in series.x],
        "y": list(series.y),
        "text": [html.escape(label) for label in series.labels],
    }
    if any(series.intervals):
        pairs = list(zip(series.y, series.intervals, strict=True))
        points["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [interval[1] - y if interval and y is not None else 0 for y, interval in pairs],
            "arrayminus": [y - interval[0] if interval and y is not None else 0 for y, interval in pairs],
        }
    return points


def _bar(index: int, series: Series) -> dict[str, Any]:
    marker = {"color": COLOURS[index % len(COLOURS)], "pattern": {"shape": _PATTERNS[index % len(_PATTERNS)]}}
    text = {"textangle": -90, "constraintext": "none", "textfont": {"size": 9}, "cliponaxis": False}
    return {"type": "bar", "marker": marker, **text, **_points(series)}


def _line(index: int, series: Series) -> dict[str, Any]:
    symbol = _SYMBOLS[index % len(_SYMBOLS)]
    marker = {"color": COLOURS[index % len(COLOURS)], "symbol": symbol, "size": 8}
    return {"type": "scatter", "marker": marker, **_points(series)}
