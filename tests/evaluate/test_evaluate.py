"""The evaluation: figures against rounds counted by hand, what is refused, what survives an interrupt."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

import dspark_core.loading
from dspark_core.bench.bootstrap import resamples
from dspark_core.bench.paired import WARM_UP_TOKENS
from dspark_core.bench.prompts import Prompt
from dspark_core.cli import main
from dspark_core.errors import DSparkError, ParameterError
from dspark_core.evaluate.measure import Cell, Job, Outcome, measure
from dspark_core.evaluate.report import cell_report, results
from dspark_core.evaluate.resampled import Resampled
from dspark_core.evaluate.wording import temperature_key
from dspark_core.params import SamplingParams, ScheduleParams
from dspark_core.storage import no_progress
from dspark_core.telemetry import Summary, fold, merge
from tests import toy_session
from tests.event_samples import decode_round, finished, prefilled
from tests.test_cli import TOY_PROGRAM

ALL_DRAFTS = ScheduleParams("fixed", 1, 64)
GREEDY = SamplingParams(seed=0, max_new_tokens=20)


class Script:
    """A session whose answers are scripted: prompt text → fates of the rounds, one text a round."""

    def __init__(self, answers):
        self.answers = answers
        self.engine = self
        self.asked = []  # (messages, sampling, drafter), as they came
        self.submitted = []

    def request(self, messages, sampling, schedule, drafter):  # noqa: ARG002
        self.asked.append(([(message["role"], message["content"]) for message in messages], sampling, drafter))
        text = messages[-1]["content"]
        if text == "too long":
            raise ParameterError("The prompt is beyond the context.")
        return SimpleNamespace(prompt_ids=(text,), sampling=sampling, drafter=drafter)

    def submit(self, request):
        self.submitted.append(request)
        (text,) = request.prompt_ids
        rounds = self.answers[text]
        if isinstance(rounds, BaseException):
            raise rounds
        return Scripted([prefilled(), *map(decode_round, rounds), finished(f"answer to {text}")])


class Scripted(list):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def a_job(prompts, drafters=("dspark",), laws=(GREEDY,)):
    sets = {kind: [Prompt(kind, tuple(turns)) for turns in group] for kind, group in prompts.items()}
    return Job(sets, list(drafters), list(laws), ALL_DRAFTS)


def cell_of(*summaries):
    """The report of a cell whose prompts came to these."""
    return cell_report({("chat", number): Outcome(summary, None) for number, summary in enumerate(summaries, start=1)})


def test_figures_agree_with_rounds_counted_by_hand():
    session = Script({"one": ["aard", "rddd"], "two": ["aaaa"], "three": ["aaar", "ardd", "aaaa"]})
    job = a_job({"chat": [["one"], ["two"]], "code": [["three"]]})
    report = results(job, measure(session, job, no_progress))
    chat = report["results"]["dspark"]["chat"]["0"]
    assert (chat["prompts"], chat["rounds"], chat["tokens"], chat["tau"]) == (2, 3, 3 + 1 + 5, 3)
    assert chat["acceptance_by_position"] == [2 / 3, 1, 1 / 2, 1]
    assert chat["n_by_position"] == [3, 2, 2, 1]
    assert chat["accepted_lengths"] == [1, 0, 1, 0, 1]
    assert chat["acceptance_rate"] == 6 / 12
    assert (chat["draft_s"], chat["verify_s"], chat["draft_to_verify"]) == (3, 9, 1 / 3)
    assert chat["tau_interval"] == (2, 5), "one of the two prompts alone makes 4 tokens in 2 rounds, the other 5 in 1"
    both = report["all_sets"]["dspark"]["0"]
    assert (both["prompts"], both["rounds"], both["tau"]) == (3, 6, (9 + 4 + 2 + 5) / 6)
    assert both["acceptance_by_position"] == [5 / 6, 4 / 5, 3 / 4, 2 / 3]
    assert both["suffix_decay"] == pytest.approx((2 / 3) / (5 / 6))
    assert both["n_by_position"] == [6, 5, 4, 3]
    assert report["failures"] == []


def test_one_prompt_alone_has_no_interval():
    alone = cell_of(fold([decode_round("aard")]))
    assert alone["tau"] == 3
    assert alone["tau_interval"] is alone["suffix_decay_interval"] is None
    assert alone["acceptance_intervals"] == [None, None, None]
    assert cell_of()["tau"] is None


def test_a_figure_that_some_resamples_lack_has_no_interval():
    deep, shallow = fold([decode_round("aaaa")]), fold([decode_round("rddd")])
    report = cell_of(deep, shallow)
    assert report["suffix_decay"] == 1 / (1 / 2)
    assert report["suffix_decay_interval"] is None
    assert [interval is None for interval in report["acceptance_intervals"]] == [False, True, True, True]
    assert cell_of(deep, deep)["suffix_decay_interval"] == (1, 1)


def test_a_resample_has_the_very_figures_that_telemetry_gives_to_the_same_prompts():
    scripts = (["aard", "rddd"], ["aaaa"], ["ardd", "aaaa", "aaar"], ["rddd"] * 4)
    summaries = [fold(map(decode_round, rounds)) for rounds in scripts]
    seen = []
    Resampled(summaries).interval(lambda summary: seen.append(summary) or 0.0)
    draws = resamples(len(summaries))
    assert len(seen) == len(draws)
    for draw, summary in list(zip(draws, seen, strict=True))[:50]:
        merged = merge(summaries[index] for index in draw)
        assert (summary.tau, summary.suffix_decay) == (merged.tau, merged.suffix_decay)
        assert summary.conditional[: len(merged.conditional)] == merged.conditional
        assert all(at.n == 0 for at in summary.conditional[len(merged.conditional) :])


def test_several_turns_are_asked_in_one_conversation_and_counted_as_one_prompt():
    session = Script({"warm": ["r"], "one": ["aard"], "two": ["rddd"]})
    measured = measure(session, a_job({"mine": [["one", "two"]]}), no_progress)
    assert session.asked[-1][0] == [("user", "one"), ("assistant", "answer to one"), ("user", "two")]
    summary = measured.outcomes[Cell("dspark", "mine", 0.0)][1].summary
    assert (summary.rounds, summary.tokens, summary.generations) == (2, 4, 2)


def test_drafters_answer_the_same_prompts_with_the_same_seeds_in_rotating_order_after_a_warm_up():
    session = Script({text: ["aard"] for text in ("one", "two", "more", "three")})
    warm = replace(GREEDY, temperature=1.0, seed=10)
    job = a_job({"chat": [["one"], ["two", "more"], ["three"]]}, ["dspark", "dflash"], [warm])
    measured = measure(session, job, no_progress)
    warm_up, counted = session.asked[:2], session.asked[2:]
    assert [drafter for _, _, drafter in warm_up] == ["dspark", "dflash"]
    assert {sampling.max_new_tokens for _, sampling, _ in warm_up} == {WARM_UP_TOKENS}
    assert [drafter for _, _, drafter in counted] == [
        "dspark",
        "dflash",
        *["dflash"] * 2,
        *["dspark"] * 2,
        "dspark",
        "dflash",
    ]
    seeds = [(request.prompt_ids[0], request.sampling.seed) for request in session.submitted[2:]]
    assert dict(seeds) == {"one": 10, "two": 11, "more": 12, "three": 13}
    assert len(set(seeds)) == 4, "the drafters had different seeds"
    assert {cell: len(of) for cell, of in measured.outcomes.items()} == {
        Cell("dspark", "chat", 1.0): 3,
        Cell("dflash", "chat", 1.0): 3,
    }


def test_a_prompt_that_is_refused_or_fails_is_named_and_no_part_of_it_is_counted():
    session = Script({"good": ["aard"], "bad": DSparkError("the device fell off")})
    job = a_job({"mine": [["good", "too long"], ["bad"], ["good"]]})
    measured = measure(session, job, no_progress)
    report = results(job, measured)
    told = [(failure["prompt"], failure["turn"], failure["reason"]) for failure in report["failures"]]
    assert told == [(1, 2, "The prompt is beyond the context."), (2, 1, "the device fell off")]
    cell = report["results"]["dspark"]["mine"]["0"]
    assert (cell["prompts"], cell["rounds"], cell["tau"]) == (1, 1, 3)


def test_an_interrupt_keeps_the_finished_prompts():
    session = Script({"one": ["aard"], "two": KeyboardInterrupt()})
    measured = measure(session, a_job({"mine": [["one"], ["one", "two"], ["one"]]}), no_progress)
    assert measured.partial
    finished_ones = measured.outcomes[Cell("dspark", "mine", 0.0)]
    assert finished_ones[1].summary.rounds == 1
    assert 2 not in finished_ones


def without_times(report):
    """The same report without totals of seconds."""
    if not isinstance(report, dict):
        return report
    return {name: None if name in ("draft_s", "verify_s") else without_times(of) for name, of in report.items()}


def test_prompts_are_answered_side_by_side_with_the_figures_of_one_at_a_time():
    texts = {"one": ["aard", "rddd"], "two": ["aaaa"], "three": ["aaar"], "four": ["r"]}
    job = a_job({"chat": [["one"], ["two"]], "code": [["three"], ["four"]]}, ["dspark", "lm"])
    alone, session = measure(Script(texts), job, no_progress), Script(texts)
    meeting, submit = threading.Barrier(4), session.submit

    def together(request):
        if len(session.submitted) >= len(job.drafters):  # after the warm-up
            meeting.wait(timeout=60)  # breaks unless four answers are asked for at once
        return submit(request)

    session.submit = together
    side_by_side = replace(job, at_once=4)
    found = results(side_by_side, measure(session, side_by_side, no_progress))
    assert found == without_times(results(job, alone)), "their times are of shared rounds, so no total is told"
    assert found["all_sets"]["lm"]["0"]["draft_to_verify"] == 1 / 3


def test_an_interrupt_before_anything_is_done_is_just_that():
    with pytest.raises(KeyboardInterrupt):
        measure(Script({"one": KeyboardInterrupt()}), a_job({"mine": [["one"]]}), no_progress)


def test_progress_tells_the_time_left_once_there_is_a_speed():
    stages = []
    session = Script({"one": ["aard"], "two": ["r"]})
    measure(session, a_job({"mine": [["one"], ["two"]]}), lambda stage, fraction: stages.append((stage, fraction)))
    assert stages[0] == ("warm-up (left out): dspark", 0.0)
    assert stages[1] == ("T=0 mine 1/2: dspark", 0.0)
    assert stages[2][0].startswith("T=0 mine 2/2, ")
    assert stages[2][0].endswith("s left: dspark")
    assert stages[2][1] == 0.5


def test_temperatures_are_keys_as_people_write_them():
    assert [temperature_key(t) for t in (0.0, 1.0, 0.7, 0.123456789)] == ["0", "1", "0.7", "0.123456789"]


SHORT = ["evaluate", "--limit", "2", "--max-new-tokens", "12"]


def test_the_command_prints_tables_and_then_one_json_line_by_drafter_set_and_temperature(opened, capsys):
    assert main(SHORT) == 0
    *tables, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    assert set(report) == {
        "results", "all_sets", "failures", "partial", "settings", "model", "device", "dtype", "date", "machine",
    }  # fmt: skip
    assert set(report["results"]) == {"dspark", "dflash"}
    for of_drafter in report["results"].values():
        assert set(of_drafter) == {"chat", "maths", "code"}
        for cells in of_drafter.values():
            assert set(cells) == {"0", "1"}
            for cell in cells.values():
                assert {
                    "tau", "tau_interval", "acceptance_by_position", "n_by_position", "accepted_lengths", "draft_s",
                    "verify_s",
                } <= set(cell)  # fmt: skip
                assert (cell["prompts"], cell["tokens"]) == (2, 24)
                assert sum(cell["accepted_lengths"]) == cell["rounds"] >= cell["n_by_position"][0]
                assert cell["tau"] == 24 / cell["rounds"]
    settings = report["settings"]
    assert (settings["policy"], settings["l_max"], settings["num_draft_tokens"]) == ("fixed", 4, 4)
    assert settings["prompts"] == {"chat": 2, "maths": 2, "code": 2}
    assert (report["model"], report["device"], report["dtype"]) == ("toy", "CPU (toy)", "float64")
    assert "greedy (T = 0)" in tables
    assert "T = 1" in tables
    assert any(line.startswith("all sets") and "dflash" in line for line in tables)
    assert "dspark: note on dspark" in tables
    assert len(opened) == 1


def test_every_draft_is_verified_unless_asked_otherwise(opened, capsys):
    assert main([*SHORT, "--set", "chat", "--temperature", "1", "--json"]) == 0
    every = json.loads(capsys.readouterr().out)["results"]["dspark"]["chat"]["1"]
    assert main([*SHORT, "--set", "chat", "--temperature", "1", "--json", "--l-max", "1"]) == 0
    one = json.loads(capsys.readouterr().out)["results"]["dspark"]["chat"]["1"]
    assert len(every["n_by_position"]) > 1
    assert len(one["n_by_position"]) == 1
    assert [session.asked[2].policy for session in opened] == ["fixed", "fixed"]


def test_the_same_seed_measures_the_same_and_json_is_all_that_is_printed(capsys, opened):
    words = [*SHORT, "--set", "maths", "--drafter", "dspark", "--temperature", "1", "--json", "--seed"]
    cells = []
    for seed in ("3", "3", "4"):
        assert main([*words, seed]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        report = json.loads(line)
        assert list(report["results"]) == ["dspark"]
        cells.append(report["results"]["dspark"]["maths"]["1"]["accepted_lengths"])
    assert cells[0] == cells[1] != cells[2]
    assert len(opened) == 3


def test_plain_decoding_can_be_asked_for_and_has_tau_one(capsys, opened):
    assert main([*SHORT, "--set", "code", "--drafter", "none", "--temperature", "0"]) == 0
    *tables, last = capsys.readouterr().out.splitlines()
    cell = json.loads(last)["results"]["none"]["code"]["0"]
    assert (cell["tau"], cell["tau_interval"]) == (1, [1, 1])
    assert cell["acceptance_by_position"] == cell["n_by_position"] == []
    assert any("nothing was verified" in line for line in tables)
    assert opened[0].asked[3] == "none"


def test_all_sets_are_those_that_are_packaged(capsys, opened):
    words = ["--limit", "1", "--max-new-tokens", "2", "--temperature", "0", "--drafter", "dspark", "--json"]
    assert main(["evaluate", "--set", "all", *words]) == 0
    assert list(json.loads(capsys.readouterr().out)["settings"]["prompts"]) == ["chat", "maths", "code", "chinese"]
    assert opened


def test_several_prompt_files_are_sets_by_their_names(tmp_path, capsys, opened):
    for name in ("first", "second"):
        (tmp_path / f"{name}.jsonl").write_text('{"turns": ["a", "b"]}\n{"turns": ["c"]}\n')
    files = ["--prompts", str(tmp_path / "first.jsonl"), "--prompts", str(tmp_path / "second.jsonl")]
    assert main(["evaluate", *files, "--max-new-tokens", "3", "--temperature", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {kind: cells["0"]["tokens"] for kind, cells in report["results"]["dspark"].items()} == {
        "first": 9,
        "second": 9,
    }
    assert [message["content"] for message in opened[0].asked[0] if message["role"] == "user"][-1] == "c"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--temperature", "nan"], "temperature is nan"),
        (["--temperature", "0", "--temperature", "-1"], "temperature is -1.0"),
        (["--limit", "0"], "limit is 0; it must be 1 or more"),
        (["--seed", "-1"], "seed is -1"),
        (["--max-new-tokens", "0"], "max_new_tokens is 0"),
        (["--policy", "coin"], "no policy named 'coin'"),
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["--prompts", "{empty}"], "empty.jsonl has no prompts"),
        (["--prompts", "{bad}"], "bad.jsonl, line 2 is not JSON"),
        (["--prompts", "{good}", "--prompts", "{good}"], "Two of the prompt files are named 'good'"),
        (["--prompts", "{good}", "--set", "chat"], "Give either --prompts or --set"),
        (["--write-readme", "{good}"], "has no place for the results"),
        (["--plots", "{good}"], "cannot be made"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_the_model_loads(words, message, tmp_path, opened, capsys):
    contents = {"empty": "", "bad": '{"turns": ["x"]}\n{', "good": '{"turns": ["x"]}\n'}
    for name, content in contents.items():
        (tmp_path / f"{name}.jsonl").write_text(content)
    names = {name: str(tmp_path / f"{name}.jsonl") for name in contents}
    assert main(["evaluate", *(word.format(**names) for word in words)]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
    assert opened == []


def test_a_set_that_does_not_exist_is_a_wrong_call(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", "--set", "poetry"])
    assert "invalid choice: 'poetry'" in capsys.readouterr().err


def test_an_unknown_drafter_is_refused_before_anything_is_measured(opened, capsys):
    assert main([*SHORT, "--drafter", "dspark", "--drafter", "eagle9"]) == 2
    assert "no drafter named 'eagle9' here. Choose one of: dspark, dflash, none" in capsys.readouterr().err
    assert opened[0].asked is None


def test_a_model_without_a_drafter_is_refused(opened, monkeypatch, capsys):
    def without_drafters(*_, **__):
        session = toy_session.ToySession()
        session.info = replace(session.info, drafters={"none": ""})
        opened.append(session)
        return session

    monkeypatch.setattr(dspark_core.loading, "open_session", without_drafters)
    assert main(SHORT) == 2
    assert "There is no drafter for toy here" in capsys.readouterr().err


def test_prompts_that_fail_are_reported_and_make_code_1(opened, monkeypatch, capsys):
    original = toy_session.ToySession.request

    def picky(self, messages, *rest):
        if messages[0]["content"] == "bad":
            raise ParameterError("The prompt is beyond the context.")
        return original(self, messages, *rest)

    monkeypatch.setattr(toy_session.ToySession, "request", picky)
    monkeypatch.setattr(
        "dspark_core.bench.prompts.packaged", lambda name: [Prompt(name, ("good",)), Prompt(name, ("bad",))]
    )
    assert main([*SHORT, "--set", "chat", "--temperature", "0", "--drafter", "dspark"]) == 1
    *tables, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    assert [failure["prompt"] for failure in report["failures"]] == [2]
    assert report["results"]["dspark"]["chat"]["0"]["prompts"] == 1
    assert "Left out: chat 2, turn 1, dspark, T = 0: The prompt is beyond the context." in tables
    assert opened


def test_ctrl_c_reports_what_is_done_as_partial_with_code_130(opened, monkeypatch, capsys, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- evaluate:begin -->\nold\n<!-- evaluate:end -->\n")
    original = toy_session.ToySession.request

    def interrupted(self, messages, sampling, *rest):
        if sampling.temperature == 1:
            raise KeyboardInterrupt
        return original(self, messages, sampling, *rest)

    monkeypatch.setattr(toy_session.ToySession, "request", interrupted)
    assert main([*SHORT, "--set", "chat", "--write-readme", str(readme)]) == 130
    output = capsys.readouterr()
    *tables, last = output.out.splitlines()
    report = json.loads(last)
    assert report["partial"] is True
    assert tables[0].startswith("Partial, the run was interrupted. Measured on")
    cells = report["results"]["dspark"]["chat"]
    assert [cells[temperature]["prompts"] for temperature in ("0", "1")] == [2, 0]
    assert (cells["0"]["tokens"], cells["1"]["tau"]) == (24, None)
    assert "interrupted" in output.err
    assert "stays as it was" in output.err
    assert "old" in readme.read_text()
    assert opened


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_a_real_ctrl_c_in_the_middle_of_an_answer_ends_the_same_way():
    words = ["evaluate", "--set", "chat", "--drafter", "dspark", "--max-new-tokens", "40", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", TOY_PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if line.startswith("T=0 chat 3/"):
            break
    process.send_signal(signal.SIGINT)
    output, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    report = json.loads(output)
    assert report["partial"] is True
    assert 2 <= report["results"]["dspark"]["chat"]["0"]["prompts"] < 28
    assert "Traceback" not in error


def test_nothing_measured_is_a_cell_without_figures_and_plain_json():
    assert json.loads(json.dumps(cell_of(), allow_nan=False))["acceptance_by_position"] == []
    assert cell_of(Summary())["tau"] is None
