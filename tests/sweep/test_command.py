"""The command sweep on the toy: table, JSON line, files, refusals, Ctrl-C."""

import json

import pytest

import dspark_core.loading
from dspark_core.cli import main
from dspark_core.sweep.read import read_report
from dspark_core.sweep.runner import Sweep
from tests.toy_session import open_session

QUICK = ["sweep", "--limit", "1", "--max-new-tokens", "8", "--threshold", "0,0.9"]


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setattr(dspark_core.loading, "open_session", open_session)


def test_a_grid_is_measured_shown_and_written(capsys, tmp_path):
    assert main([*QUICK, "--policy", "fixed,threshold", "--out", str(tmp_path / "out")]) == 0
    shown, errors = capsys.readouterr()
    *table, last = shown.splitlines()
    report = json.loads(last)
    assert [(row["policy"], row["threshold"]) for row in report["rows"]] == [
        ("fixed", 0), ("threshold", 0), ("threshold", 0.9),
    ]  # fmt: skip
    assert report["settings"]["prompts"] == {"chat": 1, "maths": 1, "code": 1}
    assert report["command"] == (
        "python -m dspark_core sweep --policy fixed,threshold --threshold 0,0.9 --limit 1 --max-new-tokens 8"
    )
    assert sum("dspark threshold γ 4" in line for line in table) == 2
    assert any("1 × it does the same as" in line for line in table)
    assert read_report((tmp_path / "out" / "sweep.json").read_text())["rows"][0]["tau"] == report["rows"][0]["tau"]
    assert len((tmp_path / "out" / "sweep.csv").read_text().splitlines()) == 4
    assert errors.splitlines()[:2] == ["opening the toy", "measuring"], "one line for each stage, not for each answer"


def test_ctrl_c_keeps_what_is_done(capsys, monkeypatch):
    real = Sweep._measure

    def measure(self, step):
        if self.results.answers == 4:
            raise KeyboardInterrupt
        real(self, step)

    monkeypatch.setattr(Sweep, "_measure", measure)
    assert main([*QUICK, "--json"]) == 130
    shown, errors = capsys.readouterr()
    report = json.loads(shown)
    assert report["partial"]
    assert len(report["rows"]) == 2
    assert "interrupted" in errors


def test_ctrl_c_before_anything_is_done_writes_nothing(capsys, monkeypatch):
    def measure(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Sweep, "_measure", measure)
    assert main(QUICK) == 130
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--l-max", "1:x"], "L_max"),
        (["--threshold", "0:1:0"], "threshold"),
        (["--repeats", "0"], "repeats"),
        (["--limit", "0"], "limit"),
        (["--max-new-tokens", "0"], "max_new_tokens"),
        (["--drafter", "nobody"], "no drafter named"),
        (["--policy", "retrospective"], "biased"),
        (["--l-min", "9", "--l-max", "2"], "None of the 2 combinations"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(capsys, words, said):
    assert main([*QUICK, *words]) == 2
    assert said in capsys.readouterr().err
