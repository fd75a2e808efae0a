"""Charts and README: what they show is what was measured, with machine, date and n."""

import builtins
import importlib.util
import json
import re

import pytest

from dspark_core.cli import main
from dspark_core.errors import ParameterError
from dspark_core.evaluate.charts import charts
from dspark_core.evaluate.confidence import confidence_rounds
from dspark_core.evaluate.measure import Outcome
from dspark_core.evaluate.page import write_page
from dspark_core.evaluate.png import check_matplotlib, write_pngs
from dspark_core.evaluate.readme import markdown, write_readme
from dspark_core.evaluate.report import cell_report
from dspark_core.evaluate.tables import tables
from dspark_core.telemetry import fold
from tests.event_samples import decode_round, finished, prefilled

README = "# Title\n<!-- evaluate:begin -->\nold\n<!-- evaluate:end -->\nthe end\n"


DEEP = ["aard", "rddd"], ["aaaa"]
FLAT = ["rddd", "ardd"], ["rddd"]


def outcomes(answers):
    """One prompt an answer, each given as the fates of its rounds; confidences are those of the sample events."""
    return {
        ("chat", number): Outcome(fold(events), confidence_rounds(events))
        for number, rounds in enumerate(answers, start=1)
        for events in [[prefilled(), *map(decode_round, rounds), finished()]]
    }


def a_report(kind="chat", drafter="dspark", **changes):
    deep, flat = outcomes(DEEP), outcomes(FLAT)
    report = {
        "results": {drafter: {kind: {"0": cell_report(deep, flat)}}, "dflash": {kind: {"0": cell_report(flat)}}},
        "failures": [],
        "partial": False,
        "settings": {
            "command": "python -m dspark_core evaluate --set chat",
            "policy": "fixed",
            "l_min": 1,
            "l_max": 4,
            "threshold": 0.3,
            "baseline": "dflash",
            "num_draft_tokens": 4,
            "num_draft_tokens_by_drafter": {drafter: 4, "dflash": 2},
            "max_new_tokens": 9,
            "seed": 7,
            "at_once": 1,
            "temperatures": ["0"],
            "prompts": {kind: 2},
            "drafters": {drafter: "", "dflash": "head switched off"},
        },
        "model": "toy",
        "device": "CPU (toy)",
        "dtype": "float64",
        "date": "2001-02-03T04:05:06+00:00",
        "machine": {"torch": "9.9", "python": "3.99"},
    }
    return report | changes


def test_charts_show_the_reports_own_numbers_with_n_machine_and_date():
    tau, acceptance, lengths = charts(a_report())
    assert [(series.name, series.y, series.n) for series in tau.panels[0].series] == [
        ("dspark", (3.0,), (2,)),
        ("dflash", (4 / 3,), (2,)),
    ]
    dspark, dflash = acceptance.panels[0].series
    assert (dspark.y, dspark.n) == ((2 / 3, 1, 1 / 2, 1), (3, 2, 2, 1))
    assert (dflash.x, dflash.y, dflash.n) == (("1", "2"), (1 / 3, 0), (3, 1))
    assert lengths.panels[0].series[0].y == (1 / 3, 0, 1 / 3, 0, 1 / 3)
    assert lengths.panels[0].series[0].n == (1, 0, 1, 0, 1)
    for chart in (tau, acceptance, lengths):
        assert chart.caption.startswith("Measured on CPU (toy), torch 9.9, Python 3.99, float64, 2001-02-03: toy,")
        assert chart.caption.endswith(" python -m dspark_core evaluate --set chat")
    assert charts(a_report(partial=True))[0].caption.startswith("Partial")


def test_counts_stand_in_their_drafters_line_where_another_one_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr("dspark_core.evaluate.page.plotly_script", lambda: "")
    text = write_page(charts(a_report()), tmp_path).read_text(encoding="utf-8")
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])
    ticks = [re.sub("<span[^>]*>|</span>", "", tick) for tick in figures[1]["layout"]["xaxis"]["ticktext"]]
    assert ticks == ["1<br>●3<br>■3", "2<br>●2<br>■1", "3<br>●2<br> ", "4<br>●1<br> "]


def test_panels_of_a_chart_share_their_axis_and_all_sets_come_last():
    report = a_report()
    report["settings"]["prompts"] = {"chat": 2, "code": 2}
    for name, cells in report["results"].items():
        cells["code"] = report["results"]["dflash"]["chat"]
        report.setdefault("all_sets", {})[name] = cells["chat"]
    tau, acceptance, lengths = charts(report)
    assert tau.panels[0].ticks == ("chat", "code", "all sets")
    assert [panel.title for panel in acceptance.panels] == [
        "chat, greedy (T = 0)",
        "code, greedy (T = 0)",
        "all sets, greedy (T = 0)",
    ]
    assert acceptance.panels[0].ticks == ("1", "2", "3", "4")
    assert tau.top > 5, "the highest interval ends at 5"
    assert acceptance.top > 1
    assert 2 / 3 < lengths.top < 1, "two rounds of three accepted nothing"


def test_the_page_is_whole_in_itself_and_no_name_can_break_out_of_its_script(tmp_path, monkeypatch):
    monkeypatch.setattr("dspark_core.evaluate.page.plotly_script", lambda: "/* plotly {braces} */")
    drawn = charts(a_report("</script><b>$x$", "<i>"))
    text = write_page(drawn, tmp_path).read_text(encoding="utf-8")
    assert "/* plotly {braces} */" in text
    assert not re.search(r'(src|href)\s*=\s*"?http', text)
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)[1]
    figures = json.loads(data)
    assert len(figures) == text.count('class="panel"') == 3
    (tick,) = figures[0]["layout"]["xaxis"]["ticktext"]
    assert tick.startswith("&lt;/script&gt;&lt;b&gt;$x$<br>")
    assert figures[0]["data"][0]["text"] == ["&lt;/script&gt;&lt;b&gt;$x$, n = 2"]
    assert figures[0]["data"][0]["name"] == "● &lt;i&gt;"
    assert figures[1]["data"][0]["y"] == [2 / 3, 1, 1 / 2, 1]
    assert figures[1]["data"][0]["marker"]["symbol"] == ["circle", "circle", "circle", "circle-open"]
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
    assert "Plotly.react" in (folder / "evaluation.html").read_text(encoding="utf-8")
    assert "evaluation.html" in capsys.readouterr().err


def test_a_reader_that_went_away_does_not_cost_the_charts(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")

    def gone(_):
        raise BrokenPipeError

    monkeypatch.setattr("dspark_core.loading.open_session", _toy())
    monkeypatch.setattr("sys.stdout.write", gone)
    monkeypatch.setattr("dspark_core.cli._discard", lambda _: None)
    words = ["--limit", "1", "--max-new-tokens", "4", "--set", "chat", "--json", "--plots", str(tmp_path)]
    assert main(["evaluate", *words]) == 141
    assert (tmp_path / "evaluation.html").exists()


def _toy():
    from tests.toy_session import open_session

    return open_session


def test_what_was_not_observed_is_drawn_without_a_fuss(tmp_path):
    pytest.importorskip("matplotlib")
    empty = cell_report({})
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
    assert first.startswith("# Title\n<!-- evaluate:begin -->\n```sh\npython -m dspark_core evaluate --set chat\n```\n")
    assert first.endswith("<!-- evaluate:end -->\nthe end\n")
    assert "old" not in first
    write_readme(path, a_report())
    assert path.read_text(encoding="utf-8") == first


def test_the_readmes_tables_show_the_reports_own_numbers():
    lines = markdown(a_report()).splitlines()
    for line in (
        "Measured on CPU (toy), torch 9.9, Python 3.99, float64, 2001-02-03: toy, policy fixed, L 4, γ = 4 (dflash 2), "
        "up to 9 tokens a turn, seed 7; prompts: 2 chat.",
        "| drafter | chat (2) |",
        "| dspark | 3.00 (2.00–5.00) |",
        "| dflash | 1.33 (1.00–1.50) |",
        "The same over τ of dflash on the same prompts, with paired 95 % intervals:",
        "| dspark | 2.25 (1.33–5.00) |",
        "| drafter | 1 | 2 | 3 | 4 | position 4 / 1 (95 %) | that over dflash's (95 %) |",
        "| dspark | 0.67 (3) | 1.00 (2) | 0.50 (2) | 1.00 (1) | 1.50 | – |",
        "| dflash | 0.33 (3) | 0.00 (1) | – | – | – | – |",
        "| drafter | AUC at 1 | AUC at 3 | AUC at 5 | ECE as given | ECE calibrated |",
        "- dflash: head switched off",
    ):
        assert line in lines


def test_several_sets_stand_side_by_side_with_all_of_them_and_what_is_missing_is_told():
    report = a_report()
    report["settings"]["prompts"] = {"chat": 2, "code": 3}
    for name, cells in report["results"].items():
        cells["code"] = cells["chat"]
        report.setdefault("all_sets", {})[name] = cells["chat"]
    lines = markdown(report).splitlines()
    assert "| drafter | chat (2) | code (3) | all sets (5) |" in lines
    tau = "3.00 (2.00–5.00)"
    assert f"| dspark | {tau} | {tau}, n = 2 | {tau}, n = 2 |" in lines
    assert "<details><summary>Accepted at position by prompt set, greedy (T = 0)</summary>" in lines
    assert "| code | dspark | 0.67 (3) | 1.00 (2) | 0.50 (2) | 1.00 (1) |" in lines


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


@pytest.mark.parametrize(
    ("evil", "harmless"),
    [
        ("a|b", r"a\|b"),
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"),
        ("<!-- evaluate:end -->\nx", "&lt;!-- evaluate:end --&gt; x"),
        ("[x](http://y) `z` *w*\x1b[2J", r"\[x\](http://y) \`z\` \*w\*\[2J"),
    ],
)
def test_no_name_and_no_message_is_taken_for_markup_in_the_readme(tmp_path, evil, harmless):
    failure = {"drafter": evil, "set": evil, "temperature": 0.0, "prompt": 3, "turn": 1, "reason": evil}
    report = a_report(evil, evil, failures=[failure], model=evil, device=evil)
    report["settings"]["drafters"] = {evil: evil}
    text = markdown(report)
    assert evil not in text
    assert f"| drafter | {harmless} (2) |" in text
    assert f"| {harmless} | 3.00 (2.00–5.00) |" in text
    assert f"- Left out: {harmless} 3, turn 1, {harmless}, T = 0: {harmless}" in text
    assert f"- {harmless}: {harmless}" in text
    path = tmp_path / "README.md"
    path.write_text(README, encoding="utf-8")
    for _ in range(2):
        write_readme(path, report)
    assert path.read_text(encoding="utf-8").endswith("<!-- evaluate:end -->\nthe end\n")
