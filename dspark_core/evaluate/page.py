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
from dspark_core.evaluate.charts import COLOURS, Chart, Panel, Series, beside
from dspark_core.files import write_whole_text

_SCRIPT = "plotly/package_data/plotly.min.js"
# One a drafter: colour is never the only sign.
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "star", "x")
_GLYPHS = "●■▲◆▼✚★✖"
_PATTERNS = ("", "/", ".", "x", "\\", "-", "+", "|")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #212529; --faint: #495057; --grid: #dee2e6; --paper: #fff; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e9ecef; --faint: #adb5bd; --grid: #343a40; --paper: #14171c; }}
}}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 90rem; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }}
h1 {{ font-size: 1.5rem; }}
h2 {{ font-size: 1.2rem; line-height: 1.3; margin-top: 2.5rem; }}
h3 {{ font-size: 1rem; margin: 0; }}
.panels {{ display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }}
.panels > div {{ min-width: 0; }}
.caption {{ color: var(--faint); font-size: 0.875rem; overflow-wrap: anywhere; }}
</style>
<script>{script}</script>
</head>
<body>
<h1>{title}</h1>
{sections}
<script type="application/json" id="figures">{figures}</script>
<script>
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
function draw() {{
  const style = getComputedStyle(document.documentElement);
  const [ink, grid, paper] = ["--ink", "--grid", "--paper"].map((name) => style.getPropertyValue(name).trim());
  for (const [index, figure] of figures.entries()) {{
    for (const series of figure.data) {{
      if (series.type === "bar" && series.error_y) series.error_y.color = ink;
    }}
    const layout = Object.assign({{}}, figure.layout, {{ paper_bgcolor: paper, plot_bgcolor: paper }});
    layout.font = {{ color: ink }};
    layout.hoverlabel = {{ bgcolor: paper, font: {{ color: ink }} }};
    for (const axis of ["xaxis", "yaxis"]) {{
      layout[axis] = Object.assign({{}}, layout[axis], {{ gridcolor: grid, linecolor: grid, zerolinecolor: grid }});
    }}
    Plotly.react("panel-" + index, figure.data, layout, {{ responsive: true, displaylogo: false }});
  }}
}}
draw();
dark.addEventListener("change", draw);
</script>
</body>
</html>
"""


def plotly_script(option: str = "--plots") -> str:
    """The text of plotly.js, which ``option`` needs. Raises ParameterError when the packages here do not have it."""
    try:
        return Path(str(distribution("plotly").locate_file(_SCRIPT))).read_text(encoding="utf-8")
    except (PackageNotFoundError, OSError) as error:
        raise ParameterError(
            f"{option} needs the package plotly for its HTML page, and it is not whole here ({error}). Install it "
            f'with: python -m pip install "plotly>=6.3,<8", or leave {option} out.'
        ) from error


def write_page(
    charts: Sequence[Chart], folder: Path, *, name: str = "evaluation.html", title: str = "Evaluation of drafters"
) -> Path:
    """Write the page into ``folder``. Raises ParameterError as `plotly_script`, ResourceError when that fails."""
    figures = [_figure(chart, panel) for chart in charts for panel in chart.panels]
    path = folder / name
    write_whole_text(
        path,
        _PAGE.format(
            title=html.escape(title),
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
            f"<section>\n<h2>{html.escape(chart.title)}</h2>\n<p>Across: {html.escape(chart.x_label)}.</p>\n"
            + '<div class="panels">\n'
            + "\n".join(panels)
            + f'\n</div>\n<p class="caption">{html.escape(chart.caption)}</p>\n</section>'
        )
    return sections


def _figure(chart: Chart, panel: Panel) -> dict[str, Any]:
    """Plotly reads texts as markup, so names are escaped."""
    drafters = len(panel.series)
    of_numbers = {"title": {"text": html.escape(chart.x_label)}, "rangemode": "tozero", "automargin": True}
    return {
        "data": [_trace(chart, index, series, drafters) for index, series in enumerate(panel.series)],
        "layout": {
            "xaxis": of_numbers
            if chart.kind == "curve"
            else {
                "range": [-0.6, max(1, len(panel.ticks)) - 0.4],
                "tickvals": list(range(len(panel.ticks))),
                "ticktext": _ticks(panel),
                "tickangle": 0,
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
            "yaxis": {"title": {"text": html.escape(chart.y_label)}, "range": [0, chart.top]},
            "height": 330 + 16 * drafters,
            "barmode": "group",
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "margin": {"t": 48, "r": 8, "b": 48, "l": 56},
        },
    }


def _ticks(panel: Panel) -> list[str]:
    """Under each tick a line a drafter: what its point was counted from, after its sign in its colour."""
    texts = []
    for place, tick in enumerate(panel.ticks):
        lines = [html.escape(tick)]
        for index, series in enumerate(panel.series):
            sign = f'<span style="color:{COLOURS[index % len(COLOURS)]}">{_GLYPHS[index % len(_GLYPHS)]}</span>'
            count = f"{sign}{series.n[place]}" if place < len(series.n) else " "
            lines.append(f'<span style="font-size:0.75em">{count}</span>')
        texts.append("<br>".join(lines))
    return texts


def _trace(chart: Chart, index: int, series: Series, drafters: int) -> dict[str, Any]:
    colour, pairs = COLOURS[index % len(COLOURS)], list(zip(series.y, series.intervals, strict=True))
    trace: dict[str, Any] = {
        "name": f"{_GLYPHS[index % len(_GLYPHS)]} {html.escape(series.name)}",
        "y": list(series.y),
        "text": [f"{html.escape(x)}, n = {n}" for x, n in zip(series.x, series.n, strict=True)],
        "hovertemplate": "%{text}: %{y:.3f}",
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [interval[1] - y if interval and y is not None else 0 for y, interval in pairs],
            "arrayminus": [y - interval[0] if interval and y is not None else 0 for y, interval in pairs],
            "visible": any(series.intervals),
            "thickness": 1.5,
        },
    }
    if chart.kind == "bars":
        pattern = {"shape": _PATTERNS[index % len(_PATTERNS)], "fgcolor": colour}
        marker = {"color": colour, "pattern": pattern, "line": {"color": colour, "width": 1.5}}
        return trace | {
            "type": "bar",
            "x": list(range(len(series.x))),
            "marker": marker,
            "textposition": "none",
        }
    if series.at is not None:
        names = {"mode": "lines+markers+text", "x": list(series.at), "text": [html.escape(x) for x in series.x]}
        names |= {"textposition": "top right", "hovertemplate": "N = %{text}: %{x:.1f}, %{y:.1f}"}
    else:
        names = {"mode": "lines+markers", "x": [place + beside(index, drafters) for place in range(len(series.x))]}
    symbol = _SYMBOLS[index % len(_SYMBOLS)]
    return trace | {
        "type": "scatter",
        **names,
        "line": {"color": colour},
        "marker": {
            "color": colour,
            "symbol": [f"{symbol}-open" if interval is None else symbol for interval in series.intervals],
            "size": 8,
        },
    }
