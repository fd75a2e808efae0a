"""Charts and README: what they show is what was measured, with machine, date and n."""

import builtins
import importlib.util
import json
import re

import pytest

from dspark_core.cli import main
from dspark_core.errors import ParameterError
from dspark_core.evaluate.charts import charts
from dspark_core.evaluate.page import write_page
from dspark_core.evaluate.png import check_matplotlib, write_pngs
from dspark_core.evaluate.readme import markdown, write_readme
from dspark_core.evaluate.report import cell_report, tables
from dspark_core.telemetry import fold
from tests.event_samples import decode_round

README = "# Title\n<!-- evaluate:begin -->\nold\n<!-- evaluate:end -->\nthe end\n"


def a_report(kind="chat", **changes):
    deep = cell_report([fold(map(decode_round, rounds)) for rounds in (["aard", "rddd"], ["aaaa"])])
    flat = cell_report([fold(map(decode_round, rounds)) for rounds in (["rddd", "ardd"], ["rddd"])])
    report = {
        "results": {"dspark": {kind: {"0": deep}}, "dflash": {kind: {"0": flat}}},
        "failures": [],
        "partial": False,
        "settings": {
            "policy": "fixed",
            "l_min": 1,
            "l_max": 4,
            "threshold": 0.3,
            "num_draft_tokens": 4,
            "max_new_tokens": 9,
            "seed": 7,
            "temperatures": ["0"],
            "prompts": {kind: 2},
            "drafters": {"dspark": "", "dflash": ""},
        },
        "model": "toy",
        "device": "CPU (toy)",
        "dtype": "float64",
        "date": "2001-02-03T04:05:06+00:00",
        "machine": {"torch": "9.9"},
    }
    return report | changes


def test_charts_show_the_reports_own_numbers_with_n_machine_and_date():
    tau, acceptance, lengths = charts(a_report())
    assert [(series.name, series.y, series.labels) for series in tau.panels[0].series] == [
        ("dspark", (3.0,), ("n=2",)),
        ("dflash", (4 / 3,), ("n=2",)),
    ]
    dspark, dflash = acceptance.panels[0].series
    assert (dspark.y, dspark.labels) == ((2 / 3, 1, 1 / 2, 1), ("n=3", "n=2", "n=2", "n=1"))
    assert (dflash.x, dflash.y, dflash.labels) == (("1", "2"), (1 / 3, 0), ("n=3", "n=1"))
    assert lengths.panels[0].series[0].y == (1 / 3, 0, 1 / 3, 0, 1 / 3)
    for chart in (tau, acceptance, lengths):
        assert chart.caption.startswith("Measured by python -m dspark_core evaluate on CPU (toy), torch 9.9, float64,")
        assert "2001-02-03" in chart.caption
    assert charts(a_report(partial=True))[0].caption.startswith("Partial")


def test_the_page_is_whole_in_itself_and_no_name_can_break_out_of_its_script(tmp_path, monkeypatch):
    monkeypatch.setattr("dspark_core.evaluate.page.plotly_script", lambda: "/* plotly {braces} */")
    drawn = charts(a_report(kind="</script><b>$x$"))
    text = write_page(drawn, tmp_path).read_text(encoding="utf-8")
    assert "/* plotly {braces} */" in text
    assert not re.search(r'(src|href)\s*=\s*"?http', text)
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)[1]
    figures = json.loads(data)
    assert len(figures) == text.count('class="panel"') == 3
    assert figures[0]["data"][0]["x"] == ["&lt;/script&gt;&lt;b&gt;$x$"]
    assert figures[1]["data"][0]["y"] == [2 / 3, 1, 1 / 2, 1]
    assert figures[0]["data"][0]["error_y"]["array"] == [2.0]
    assert text.count("2001-02-03") == 3


def test_the_command_draws_each_chart_and_a_page(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("dspark_core.loading.open_session", _toy())
    folder = tmp_path / "new" / "plots"
    words = ["--limit", "2", "--max-new-tokens", "9", "--set", "chat", "--set", "code", "--plots", str(folder)]
    assert main(["evaluate", *words]) == 0
    names = {"tau.png", "acceptance_by_position.png", "accepted_lengths.png", "evaluation.html"}
    assert {path.name for path in folder.iterdir()} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
    assert "Plotly.newPlot" in (folder / "evaluation.html").read_text(encoding="utf-8")
    assert "evaluation.html" in capsys.readouterr().err


def _toy():
    from tests.toy_session import open_session

    return open_session


def test_what_was_not_observed_is_drawn_without_a_fuss(tmp_path):
    pytest.importorskip("matplotlib")
    empty = cell_report([])
    report = a_report() | {"results": {"none": {"chat": {"0": empty}}, "dspark": {"chat": {"0": empty}}}}
    assert len(write_pngs(charts(report), tmp_path)) == 3


def test_without_matplotlib_plots_are_refused_by_name_with_the_way_out(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else builtins.object())
    with pytest.raises(
        ParameterError, match=r"matplotlib, which is not installed here.*pip install.*leave --plots out"
    ):
        check_matplotlib()


def test_without_plotlys_script_plots_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dspark_core.evaluate.page._SCRIPT", "plotly/nowhere.js")
    with pytest.raises(ParameterError, match=r"needs the package plotly.*leave --plots out"):
        write_page([], tmp_path)


def test_the_readmes_section_is_replaced_and_the_rest_is_kept(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(README, encoding="utf-8")
    write_readme(path, a_report())
    first = path.read_text(encoding="utf-8")
    assert first.startswith("# Title\n<!-- evaluate:begin -->\nMeasured by `python -m dspark_core evaluate`")
    assert first.endswith("<!-- evaluate:end -->\nthe end\n")
    assert "old" not in first
    assert "| chat | dspark | 2 | 3.00 (2.00–5.00) |" in first
    assert "| chat | dspark | 0.67 (3) | 1.00 (2) | 0.50 (2) | 1.00 (1) |" in first
    assert "| chat | dflash | 0.33 (3) | 0.00 (1) | – | – |" in first
    write_readme(path, a_report())
    assert path.read_text(encoding="utf-8") == first


@pytest.mark.parametrize(
    "text",
    ["", "<!-- evaluate:begin -->\n", README + README, "<!-- evaluate:end -->\n<!-- evaluate:begin -->\n"],
)
def test_a_readme_without_one_place_for_the_results_is_refused_and_untouched(tmp_path, text):
    path = tmp_path / "README.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParameterError, match="has no place for the results"):
        write_readme(path, a_report())
    assert path.read_text(encoding="utf-8") == text


def test_failures_and_notes_reach_tables_and_readme():
    failure = {"drafter": "dspark", "set": "chat", "temperature": 0.0, "prompt": 3, "turn": 1, "reason": "too long"}
    report = a_report(failures=[failure])
    line = "Left out: chat 3, turn 1, dspark, T = 0: too long"
    assert line in tables(report)
    assert line in markdown(report)


def test_a_sets_name_cannot_break_the_markdown_table():
    assert r"| a\|b | dspark |" in markdown(a_report(kind="a|b"))
