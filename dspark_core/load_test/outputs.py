"""Where a load test's report goes: the terminal, and a folder with report, rows and charts."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_core.evaluate.page import plotly_script, write_page
from dspark_core.evaluate.png import check_matplotlib, write_pngs
from dspark_core.files import make_folder, write_json, write_whole_text
from dspark_core.load_test.charts import charts
from dspark_core.load_test.tables import tables
from dspark_core.terminal import tell, write_text

if TYPE_CHECKING:
    from dspark_core.load_test.race import Measured

_OPTION = "--out"


def check_folder(folder: Path) -> None:
    """Refuse now what would fail after an hour of measuring. Raises ParameterError."""
    check_matplotlib(_OPTION)
    plotly_script(_OPTION)
    make_folder(folder)


def show(report: Mapping[str, Any], *, json_alone: bool) -> None:
    """Tables and the JSON line on standard output."""
    if not json_alone:
        write_text(sys.stdout, tables(report) + "\n")
    write_text(sys.stdout, json.dumps(report, allow_nan=False) + "\n")


def write(report: Mapping[str, Any], measured: Measured, folder: Path) -> None:
    """``load.json``, ``answers.csv``, the charts as PNG files and ``load.html``. Raises ResourceError."""
    write_json(folder / "load.json", report)
    write_whole_text(folder / "answers.csv", _rows(measured))
    drawn = charts(report)
    pngs = write_pngs(drawn, folder)
    page = write_page(drawn, folder, name="load.html", title="Decoding under load")
    for path in (folder / "load.json", folder / "answers.csv", *pngs, page):
        tell(f"dspark: wrote {path}\n")


def _rows(measured: Measured) -> str:
    from dspark_core.load_test.report import answer_rows

    rows = answer_rows(measured)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
