"""A sweep on the toy: paired with plain decoding, stopped half-way, disturbed, failing, reported and read again."""

import csv
import io
import json
import threading

import pytest

from dspark_core.bench.prompts import Prompt
from dspark_core.bench.run import Run
from dspark_core.errors import ParameterError, ResourceError
from dspark_core.sweep.grid import Point, grid_of
from dspark_core.sweep.launch import launch
from dspark_core.sweep.pareto import front
from dspark_core.sweep.plan import GROUP, Settings, Step, steps
from dspark_core.sweep.read import read_report
from dspark_core.sweep.report import csv_text, head, report
from dspark_core.sweep.results import Measured, Results
from dspark_core.sweep.runner import Sweep
from dspark_core.telemetry import Summary
from tests.toy_session import ToySession

PROMPTS = (Prompt("chat", ("one",)), Prompt("code", ("two",)))
QUICK = Settings(PROMPTS, max_new_tokens=20)
POINT = Point("dspark", "threshold", 7, 1, 5, 0.4, 0.0)


@pytest.fixture
def session():
    with ToySession() as opened:
        yield opened


def swept(session, texts, settings=QUICK, **options):
    sweep = Sweep(session, grid_of(session, texts), settings, **options)
    seen = list(sweep.run())
    return sweep, seen


def test_all_settings_answer_all_prompts_each_beside_a_plain_run():
    points = [Point("dspark", "threshold", 7, 0, n, 0.5, t) for t in (0.0, 1.0) for n in range(6)]
    settings = Settings(PROMPTS, repeats=3)
    made = steps(points, settings)
    for index in range(len(points)):
        mine = [(step.repeat, step.prompt) for step in made if step.point == index]
        assert sorted(mine) == [(repeat, prompt) for repeat in range(3) for prompt in range(2)]
    groups = {step.group: [it for it in made if it.group == step.group] for step in made}
    for group in groups.values():
        assert [step.point is None for step in group].count(True) == 1
        assert len(group) <= GROUP + 1
        assert len({(step.temperature, step.prompt, step.repeat) for step in group}) == 1
        assert {points[step.point].temperature for step in group if step.point is not None} == {group[0].temperature}
    firsts = [group[0].point is None for group in groups.values()]
    assert 0 < sum(firsts) < len(firsts), "plain decoding must not always begin"


def test_a_sweep_measures_its_rows_and_tells_its_progress(session):
    sweep, seen = swept(session, {"threshold": "0,0.6", "temperature": "0,1"})
    assert not sweep.partial
    assert [p.done for p in seen if not p.waits] == [0, 0, *range(seen[-1].total), seen[-1].total]
    assert seen[-1].total == 2 * (4 + 2)
    assert seen[0].left_s is None
    assert all(p.left_s >= 0 for p in seen if p.done)
    rows = sweep.results.rows()
    assert [(row["threshold"], row["temperature"]) for row in rows] == [(0, 0), (0, 1), (0.6, 0), (0.6, 1)]
    for row in rows:
        assert row["n"] == row["answers"] == 2
        assert row["over"] == "prompts"
        assert row["ratio_95"][0] <= row["ratio"] <= row["ratio_95"][1]
        assert row["tau"] == row["tokens"] / row["rounds"]
        assert row["waste"] == (row["verified"] - row["accepted"]) / row["tokens"]
        assert row["budget"] == pytest.approx(1 + row["verified"] / row["rounds"])
        assert row["drafter_gamma"] == 4
        assert row["beside"] == 0
        assert (row["same"] is None) == (row["temperature"] == 1)
    greedy = [row["same"] for row in rows if row["temperature"] == 0]
    assert greedy == [{"same": 2, "n": 2, "earliest_difference": None}] * 2
    assert sum(row["best"] for row in rows) == 1
    assert any(row["front"] for row in rows)
    assert set(sweep.results.plain()) == {"0", "1"}


def test_a_sweep_stopped_half_way_keeps_what_is_done(session):
    sweep = Sweep(session, grid_of(session, {"threshold": "0:0.9:0.1"}), QUICK)
    for progress in sweep.run():
        if progress.done == 7:
            sweep.stop()
    assert sweep.stopped
    assert sweep.partial
    assert sweep.results.answers == 7
    kept = report(head(session.info), sweep)
    assert kept["partial"]
    assert 0 < len(kept["rows"]) < 10
    assert session.engine.num_active == 0


def test_an_answer_in_progress_is_cancelled_by_the_stop(session):
    sweep = Sweep(session, grid_of(session, {}), Settings(PROMPTS, max_new_tokens=4000))
    timer = threading.Timer(0.3, sweep.stop)
    timer.start()
    list(sweep.run())
    assert sweep.stopped
    assert sweep.results.answers < 4


def test_rows_are_marked_where_other_answers_ran_beside(session):
    request = session.request([], QUICK.prompts and POINT.sampling(5000), None, "none")
    with session.engine.submit(request):
        sweep, seen = swept(session, {}, patience_s=0.3)
        assert any(p.waits for p in seen)
    assert sweep.results.rows()[0]["beside"] > 0


def test_a_setting_that_fails_is_told_and_the_others_go_on(session, monkeypatch):
    real = session.engine.submit

    def submit(request):
        if request.schedule.threshold == 0.5 and request.sampling.max_new_tokens == 20:
            raise ResourceError("No memory for this one.")
        return real(request)

    monkeypatch.setattr(session.engine, "submit", submit)
    sweep, _ = swept(session, {"threshold": "0.1,0.5"}, patience_s=0.0)
    rows = sweep.results.rows()
    assert [row["failure"] for row in rows] == ["", "No memory for this one."]
    assert rows[0]["answers"] == 2
    assert rows[1]["answers"] == 0
    assert sweep.partial


def test_without_plain_decoding_there_is_nothing_to_compare_with_and_the_sweep_ends(session, monkeypatch):
    real = session.engine.submit

    def submit(request):
        if request.drafter == "none" and request.sampling.max_new_tokens == 20:
            raise ResourceError("Nothing left.")
        return real(request)

    monkeypatch.setattr(session.engine, "submit", submit)
    sweep, _ = swept(session, {}, patience_s=0.0)
    assert "Plain decoding" in sweep.failure
    assert sweep.partial


def test_a_prompt_that_is_refused_is_refused_before_anything_runs(session, monkeypatch):
    def request(*_):
        raise ParameterError("too long")

    grid = grid_of(session, {})
    monkeypatch.setattr(session, "request", request)
    with pytest.raises(ParameterError, match="Prompt 1: too long"):
        Sweep(session, grid, QUICK)


def measured(point, prompt, seconds, *, group=None, wasted=1):
    summary = Summary(rounds=4, tokens=10, verified=6 + wasted, accepted=6, verify_s=seconds)
    return Measured(
        Step(point, 0.0, prompt, 0, prompt if group is None else group), Run((1,), summary, seconds), 7, False
    )


def test_ratios_are_paired_prompt_by_prompt():
    results = Results([POINT])
    for prompt, (ours, plain) in enumerate([(1.0, 2.0), (5.0, 20.0), (2.0, 6.0)]):
        results.add(measured(0, prompt, ours))
        results.add(measured(None, prompt, plain))
    row = results.rows()[0]
    assert row["ratio"] == pytest.approx(3)
    assert row["ratio_95"] == pytest.approx([2, 4])


def test_what_has_no_plain_run_beside_it_has_no_ratio_yet():
    results = Results([POINT])
    results.add(measured(0, 0, 1.0))
    row = results.rows()[0]
    assert row["ratio"] is None
    assert row["tau"] == 2.5
    assert not row["best"]
    assert row["plain_tokens_per_s"] is None


def test_the_best_is_the_fastest_and_who_is_not_told_apart_is_near():
    results = Results([POINT] * 3)
    for prompt, times in enumerate([(1.0, 1.05, 4.0), (1.1, 1.06, 4.2), (0.9, 0.95, 3.9)]):
        results.add(measured(None, prompt, 8.0))
        for point, seconds in enumerate(times):
            results.add(measured(point, prompt, seconds, wasted=3 - point))
    rows = results.rows()
    assert [row["best"] for row in rows] == [True, False, False]
    assert [row["near"] for row in rows] == [False, True, False]
    assert all(row["front"] for row in rows), "each wastes less than the faster ones"


def test_the_front_holds_who_is_beaten_by_nobody():
    assert front([(1.0, 0.5), (2.0, 0.6), (1.5, 0.7), (2.0, 0.6), (0.5, 0.1), (2.0, 0.9)]) == [1, 3, 0, 4]
    assert front([]) == []


def test_a_report_is_read_again_with_all_its_figures(session):
    sweep, _ = swept(session, {"threshold": "0,0.6", "l_min": "0,9"})
    written = json.loads(json.dumps(report(head(session.info), sweep)))
    again = read_report(json.dumps(written))
    assert {
        key: again[key] for key in ("model", "device", "dtype", "date", "versions", "swept", "settings", "left_out")
    } == {
        key: written[key] for key in ("model", "device", "dtype", "date", "versions", "swept", "settings", "left_out")
    }
    for row, old in zip(again["rows"], written["rows"], strict=True):
        assert {key: row[key] for key in ("ratio", "ratio_95", "tau", "waste", "budget_95", "best", "launch")} == {
            key: old[key] for key in ("ratio", "ratio_95", "tau", "waste", "budget_95", "best", "launch")
        }


def test_a_strangers_file_is_checked_and_brings_no_command_of_its_own(session):
    sweep, _ = swept(session, {})
    written = json.loads(json.dumps(report(head(session.info), sweep)))
    row = written["rows"][0]
    evil = {**row, "launch": {"vllm": "rm -rf /", "sglang": "", "notes": []}, "drafter": "=cmd()", "best": False}
    again = read_report(json.dumps({**written, "rows": [evil]}))
    assert "rm -rf" not in json.dumps(again)
    bent = read_report(
        json.dumps({**written, "device": "CPU \u202eereh ton\x1b", "versions": {"a\u200b": [[1]] * 999}})
    )
    assert bent["device"] == "CPU \ufffdereh ton\ufffd"
    assert list(bent["versions"]) == ["a\ufffd"]
    assert len(bent["versions"]["a\ufffd"]) < 400
    assert again["rows"][0]["best"]
    assert "'=cmd()" in csv_text(again)
    for broken in (
        "", "[]", "{}", "[" * 100_000, '{"kind": "other"}',
        json.dumps({**written, "format": 2}),
        json.dumps({**written, "rows": [{**row, "ratio": "fast"}]}),
        json.dumps({**written, "rows": [{**row, "ratio_95": [1]}]}),
        json.dumps({**written, "rows": [{**row, "l_max": None}]}),
        json.dumps({**written, "rows": [row] * 300}),
        json.dumps({**written, "rows": [{**row, "tau": 1e300}]}),
        json.dumps({**written, "rows": [{**row, "tokens_per_s": -5}]}),
        json.dumps({**written, "rows": [{**row, "waste": -1e5}]}),
        json.dumps({**written, "rows": [{**row, "l_max": -3}]}),
        json.dumps({**written, "rows": [{**row, "threshold": 1.5}]}),
        json.dumps({**written, "rows": [{**row, "temperature": -1}]}),
        json.dumps({**written, "plain": {"0": 3}}),
        json.dumps({**written, "rows": [{**row, "tau": float("nan")}]}),
        " " * 2_000_001,
    ):  # fmt: skip
        with pytest.raises(ParameterError):
            read_report(broken)


def test_the_csv_has_the_set_up_in_every_row(session):
    sweep, _ = swept(session, {"threshold": "0,0.6"})
    about = head(session.info)
    rows = list(csv.DictReader(io.StringIO(csv_text(report({**about, "model": "@model"}, sweep)))))
    assert len(rows) == 2
    for row in rows:
        assert row["model"] == "'@model"
        assert row["device"] == about["device"]
        assert row["torch_version"]
        assert float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])


@pytest.mark.parametrize(
    ("changed", "vllm", "sglang", "note"),
    [
        ({}, '"method": "dspark", "model": "DRAFTER", "num_speculative_tokens": 5',
         "--speculative-dspark-block-size 5", "threshold"),
        ({"policy": "prefix", "l_min": 0}, '"enable_adaptive_verification": true', "DSPARK", "weigh drafts"),
        ({"drafter": "lm", "policy": "fixed"}, '"method": "draft_model"',
         "--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6", "temperature"),
        ({"drafter": "dflash", "policy": "fixed"}, '"method": "dflash"', "--speculative-num-draft-tokens 6", "temper"),
        ({"drafter": "ngram", "policy": "fixed"}, '"prompt_lookup_max"', "NGRAM", "temperature"),
        ({"drafter": "mine"}, '"method": "dspark"', "DSPARK", "a DSpark checkpoint is assumed"),
        ({"l_min": 0, "l_max": 0}, "vllm serve TARGET", "launch_server", None),
    ],
)  # fmt: skip
def test_the_nearest_flags_of_other_engines(changed, vllm, sglang, note):
    point = Point(**{**POINT.to_json(), **changed})
    flags = launch(point)
    assert vllm in flags["vllm"]
    assert sglang in flags["sglang"]
    if note:
        assert note in " ".join(flags["notes"])
    else:
        assert flags["notes"] == []
        assert "speculative" not in flags["vllm"] + flags["sglang"]
