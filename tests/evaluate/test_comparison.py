"""Drafters against a baseline: the same prompts on both sides, intervals that are paired."""

import json
import shlex

import pytest

from dspark_core.bench.bootstrap import interval_95, resamples
from dspark_core.cli import main, parse
from dspark_core.evaluate.command import add_arguments
from dspark_core.evaluate.command_line import command_line
from dspark_core.evaluate.compared import over_baseline
from dspark_core.load_test.command import add_arguments as load_arguments
from dspark_core.sweep.command import add_arguments as sweep_arguments
from dspark_core.telemetry import fold, merge
from tests.event_samples import decode_round

NOTHING = {
    "prompts": 0,
    "tau_ratio": None,
    "tau_ratio_interval": None,
    "suffix_decay_ratio": None,
    "suffix_decay_ratio_interval": None,
}


def summaries(*answers):
    """Prompts 1, 2, … whose rounds had these fates."""
    return {number: fold(map(decode_round, rounds)) for number, rounds in enumerate(answers, start=1)}


DEEP = summaries(["aaaa", "aaar"], ["aaaa", "rddd"], ["aaar", "aard"])
FLAT = summaries(["aaar", "rddd"], ["aaar", "rddd", "aaaa"], ["rddd", "aaar"])


def test_the_ratios_by_hand():
    compared = over_baseline(DEEP, FLAT)
    assert compared["prompts"] == 3
    assert compared["tau_ratio"] == pytest.approx(((9 + 6 + 7) / 6) / ((5 + 10 + 5) / 7))
    ours, theirs = (2 / 4) / (5 / 6), (1 / 4) / (4 / 7)
    assert compared["suffix_decay_ratio"] == pytest.approx(ours / theirs)


def test_the_interval_takes_the_same_prompts_on_both_sides_of_each_resample():
    pairs = [
        (merge(DEEP[index + 1] for index in draw), merge(FLAT[index + 1] for index in draw)) for draw in resamples(3)
    ]
    low, high = interval_95([ours.tau / theirs.tau for ours, theirs in pairs])
    assert over_baseline(DEEP, FLAT)["tau_ratio_interval"] == pytest.approx((low, high))


def test_a_drafter_is_exactly_as_good_as_itself_however_much_its_prompts_differ():
    drafter = summaries(["aaaa", "aaar", "rddd"], ["aaaa", "rddd"], ["aaaa"])
    compared = over_baseline(drafter, drafter)
    assert (compared["tau_ratio"], compared["tau_ratio_interval"]) == (1, (1, 1))
    assert (compared["suffix_decay_ratio"], compared["suffix_decay_ratio_interval"]) == (1, (1, 1))


def test_only_prompts_that_both_finished_are_compared():
    ours = {number: summary for number, summary in DEEP.items() if number != 2}
    compared = over_baseline(ours, FLAT | {4: FLAT[1]})
    assert compared["prompts"] == 2
    assert compared["tau_ratio"] == pytest.approx(((9 + 7) / 4) / ((5 + 5) / 4))
    assert over_baseline(DEEP, {}) == over_baseline({}, FLAT) == NOTHING


def test_one_prompt_has_a_ratio_and_no_interval():
    compared = over_baseline({1: DEEP[1]}, FLAT)
    assert compared["tau_ratio"] == pytest.approx(4.5 / 2.5)
    assert compared["tau_ratio_interval"] is None


def test_a_figure_that_the_baseline_lacks_has_no_ratio():
    shallow = summaries(["rddd"], ["ardd"], ["rddd"])
    compared = over_baseline(DEEP, shallow)
    assert compared["tau_ratio"] == pytest.approx((22 / 6) / (4 / 3))
    assert (compared["suffix_decay_ratio"], compared["suffix_decay_ratio_interval"]) == (None, None)


WORDS = ["evaluate", "--limit", "2", "--max-new-tokens", "12", "--temperature", "0", "--set", "chat"]


def report_of(capsys, *words):
    assert main([*WORDS, *words]) == 0
    *tables, last = capsys.readouterr().out.splitlines()
    return tables, json.loads(last)


@pytest.mark.usefixtures("opened")
def test_every_drafter_is_compared_with_dflash_and_dflash_with_none(capsys):
    tables, report = report_of(capsys, "--set", "code")
    assert report["settings"]["baseline"] == "dflash"
    of_dspark = report["results"]["dspark"]
    for cells in (of_dspark["chat"], of_dspark["code"], report["all_sets"]["dspark"]):
        compared = cells["0"]["over_baseline"]
        assert set(compared) == set(NOTHING)
        assert compared["prompts"] == cells["0"]["prompts"]
        assert compared["tau_ratio"] == 1, "the toy's two drafters are the same but for the name"
    assert report["results"]["dflash"]["chat"]["0"]["over_baseline"] is None
    assert any("τ / dflash's" in line for line in tables)


@pytest.mark.usefixtures("opened")
def test_another_baseline_can_be_named(capsys):
    tables, report = report_of(capsys, "--baseline", "none", "--drafter", "dspark", "--drafter", "none")
    cell = report["results"]["dspark"]["chat"]["0"]
    assert report["settings"]["baseline"] == "none"
    assert cell["over_baseline"]["tau_ratio"] == cell["tau"]
    assert any("τ / none's" in line for line in tables)


@pytest.mark.usefixtures("opened")
def test_without_dflash_the_first_drafter_is_the_baseline(capsys):
    assert report_of(capsys, "--drafter", "none", "--drafter", "dspark")[1]["settings"]["baseline"] == "none"


@pytest.mark.usefixtures("opened")
def test_one_drafter_alone_is_compared_with_nothing(capsys):
    tables, report = report_of(capsys, "--drafter", "dspark")
    assert report["settings"]["baseline"] is None
    assert report["results"]["dspark"]["chat"]["0"]["over_baseline"] is None
    assert not any("None" in line for line in tables)


def test_a_baseline_that_is_not_measured_is_refused_by_name(opened, capsys):
    assert main([*WORDS, "--drafter", "dspark", "--baseline", "dflash"]) == 2
    assert "The baseline 'dflash' is not among the drafters that are measured: dspark." in capsys.readouterr().err
    assert opened[0].asked is None


def shown(*words):
    return command_line(parse(["evaluate", *words]), add_arguments)


def test_the_command_of_a_report_names_what_figures_depend_on_and_can_be_given_again():
    assert shown() == shown("--json", "--plots", "x", "--write-readme") == "python -m dspark_core evaluate"
    line = "python -m dspark_core evaluate --set chat --set code --limit 4 --drafter dspark --temperature 0.7 --l-max 3"
    assert shown(*line.split()[4:]) == line
    every_option = (
        "--set chat --limit 3 --drafter lm --drafter dflash --baseline lm --temperature 0.5 --seed 4 --max-new-tokens 9"
        " --model m --draft-model auto --draft-model my/lm --device cpu --dtype float32 --policy threshold --l-min 2 "
        "--l-max 5 --threshold 0.4 --no-stop-early"
    )
    again = shlex.split(shown(*every_option.split()))[3:]
    assert vars(parse(again)) == vars(parse(["evaluate", *every_option.split()]))
    assert shown("--prompts", "two words.jsonl").endswith("--prompts 'two words.jsonl'")


EACH = {"evaluate": add_arguments, "sweep": sweep_arguments, "load": load_arguments}
SCHEDULE = "--l-max 5 --band-low 0.1 --load-signal simulated --simulated-load 0.3 --no-stop-early"
SAMPLED = "--temperature 0.5 --logit-bias 198=-5.25 --logit-bias 7=-inf --presence-penalty=-1e-05"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("evaluate", f"{SCHEDULE} --no-back-off --at-once 3"),
        ("evaluate", "--back-off"),
        ("sweep", "--set chat --limit 2 --repeats 2 --seed 4"),
        ("load", f"{SCHEDULE} {SAMPLED} --no-back-off --users 1,2 --lanes plain,fixed@4 --profile"),
        ("load", "--back-off --set chat --seconds 3"),
    ],
)
def test_the_command_of_each_report_asks_for_the_same_again(command, words):
    asked = parse([command, *words.split()])
    again = shlex.split(command_line(asked, EACH[command], command))[3:]
    assert vars(parse(again)) == vars(asked)


def test_the_command_of_a_report_does_not_tell_where_somebody_keeps_files(tmp_path):
    line = shown("--prompts", str(tmp_path / "mine.jsonl"), "--model", str(tmp_path / "model"), "--draft-model", "a/b")
    assert str(tmp_path) not in line
    assert "--prompts mine.jsonl" in line
    assert "--model model" in line
    assert "--draft-model a/b" in line
    several = shown("--draft-model", "auto", "--draft-model", str(tmp_path / "rnn"), "--draft-model", str(tmp_path))
    assert several.endswith(f"--draft-model auto,rnn,{tmp_path.name}")
