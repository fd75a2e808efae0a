"""The benchmark: paired, rotated, warmed up, and every figure traceable to the runs."""

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

import dspark_core.loading
from dspark_core.bench.lanes import EngineLane, TransformersLane
from dspark_core.bench.paired import WARM_UP_TOKENS, Case, of_kind, race, rotated, same_answers, speed_ratio
from dspark_core.bench.prompts import SETS, Prompt, from_file, packaged
from dspark_core.bench.report import lane_report, table
from dspark_core.bench.run import PLAIN_SCHEDULE, Run
from dspark_core.cli import main
from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.none import NoneDrafter
from dspark_core.engine import Engine
from dspark_core.errors import DSparkError, ParameterError
from dspark_core.params import SamplingParams, ScheduleParams
from dspark_core.telemetry import Summary
from tests import toy_session
from tests.conftest import TINY_CONFIG
from tests.toy import FixedLoad, ToyTokenizer

GREEDY = SamplingParams(max_new_tokens=20, seed=0)


def a_run(tokens=(1, 2, 3), seconds=1.0, accepted=0):
    summary = Summary(rounds=len(tokens), tokens=len(tokens), verified=10, accepted=accepted, verify_s=seconds)
    return Run(tuple(tokens), summary, wall_s=2 * seconds)


class ScriptedLane:
    note = ""

    def __init__(self, name, log):
        self.name = name
        self.log = log

    def run(self, prompt_ids, sampling):
        self.log.append((self.name, prompt_ids, sampling))
        return a_run()


def test_every_lane_answers_every_prompt_in_rotating_order_after_a_warm_up_that_does_not_count():
    log = []
    lanes = [ScriptedLane(name, log) for name in "abc"]
    cases = [Case("chat", (index,)) for index in range(4)]
    runs = race(lanes, cases, replace(GREEDY, seed=10))
    assert {name: len(lane_runs) for name, lane_runs in runs.items()} == {"a": 4, "b": 4, "c": 4}
    warm_up, measured = log[:3], log[3:]
    assert [name for name, _, _ in warm_up] == ["a", "b", "c"]
    assert {sampling.max_new_tokens for _, _, sampling in warm_up} == {WARM_UP_TOKENS}
    assert ["".join(name for name, _, _ in measured[at : at + 3]) for at in range(0, 12, 3)] == [
        "abc",
        "bca",
        "cab",
        "abc",
    ]
    assert [sampling.seed for _, _, sampling in measured] == [10] * 3 + [11] * 3 + [12] * 3 + [13] * 3
    assert [ids for _, ids, _ in measured[::3]] == [(0,), (1,), (2,), (3,)]


def test_seeds_begin_again_after_the_largest_one():
    log = []
    race([ScriptedLane("a", log)], [Case("chat", (1,))] * 3, SamplingParams(temperature=1.0, seed=2**63 - 1))
    assert [sampling.seed for _, _, sampling in log[1:]] == [2**63 - 1, 0, 1]


def test_rotation_keeps_every_lane():
    assert [rotated([1, 2, 3], by) for by in (0, 1, 5)] == [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


def test_the_ratio_is_the_median_of_the_pairs_and_lies_in_its_interval():
    baseline = [a_run(seconds=seconds) for seconds in (1, 2, 3, 4, 5)]
    runs = [a_run(seconds=seconds) for seconds in (0.5, 1, 1, 4, 1)]
    ratio = speed_ratio(runs, baseline)
    assert (ratio.median, ratio.n) == (2, 5)
    assert 1 <= ratio.low <= ratio.median <= ratio.high <= 5
    assert speed_ratio(baseline, baseline).low == speed_ratio(baseline, baseline).high == 1


def test_runs_without_a_round_make_no_ratio():
    empty = Run((), Summary(), 0.0)
    assert speed_ratio([empty], [a_run()]) is None
    assert speed_ratio([empty, a_run()], [a_run(), a_run()]).n == 1


def test_answers_are_compared_token_by_token():
    plain = [a_run((1, 2, 3)), a_run((1, 2, 3)), a_run((1, 2, 3))]
    other = [a_run((1, 2, 3)), a_run((1, 9, 3)), a_run((1, 2))]
    assert same_answers(other, plain) == {"same": 1, "n": 3, "earliest_difference": 1}
    assert same_answers(plain, plain) == {"same": 3, "n": 3, "earliest_difference": None}


def test_a_group_holds_the_runs_of_its_own_prompts():
    cases = [Case("chat", (1,)), Case("code", (2,)), Case("chat", (3,))]
    runs = {"plain": [a_run((at,)) for at in range(3)]}
    assert [run.token_ids for run in of_kind(runs, cases, "chat")["plain"]] == [(0,), (2,)]


def test_a_lanes_report_agrees_with_telemetry_and_is_json():
    runs, plain = [a_run(seconds=1, accepted=3), a_run(seconds=2, accepted=4)], [a_run(seconds=2), a_run(seconds=4)]
    report = json.loads(json.dumps(lane_report(runs, plain, greedy=True, note="n"), allow_nan=False))
    assert report["tokens_per_s"] == 6 / 3
    assert report["wall_tokens_per_s"] == 6 / 6
    assert report["ratio"] == 2
    assert report["tau"] == 1
    assert report["acceptance_rate"] == 7 / 20
    assert report["answers"]["same"] == 2
    assert lane_report(runs, plain, greedy=False)["answers"] is None


def test_one_prompt_has_a_ratio_and_no_interval():
    report = lane_report([a_run(seconds=1)], [a_run(seconds=2)], greedy=True)
    assert (report["ratio"], report["ratio_95"]) == (2, None)
    assert "2.00–2.00" not in table({"lane": report})
    assert " – " in table({"lane": report}).splitlines()[1]


@pytest.mark.parametrize("name", SETS)
def test_the_packaged_prompts_are_many_distinct_and_well_formed(name):
    prompts = packaged(name)
    assert len(prompts) >= (6 if name == "chinese" else 24)
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    assert all(10 <= len(prompt.text) <= 600 and prompt.kind == name for prompt in prompts)


def test_a_prompt_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"turns": ["one"]}\n')
    assert from_file(path) == [Prompt("mine", ("one",))]


def test_a_prompt_file_in_deepspecs_format_is_read_and_later_turns_are_counted(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"turns": ["one\\u2028line", "two"], "id": 1}\n\n{"turns": ["solo"]}\n', encoding="utf-8")
    prompts = from_file(path)
    assert prompts == [Prompt("mine", ("one\u2028line", "two")), Prompt("mine", ("solo",))]
    assert [(prompt.text, prompt.more_turns) for prompt in prompts] == [("one\u2028line", 1), ("solo", 0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no prompts"),
        ("{", "line 1 is not JSON"),
        ('{"turns": ["x"]}\n[]', "line 2 must look like"),
        ('{"turns": []}', "must look like"),
        ('{"turns": [" "]}', "must look like"),
        ('{"turns": "text"}', "must look like"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_prompt_file_that_is_wrong_is_refused_by_line(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ParameterError, match=message):
        from_file(path)


def test_an_engine_lane_that_fails_says_so(monkeypatch, caplog):
    caplog.set_level("CRITICAL")
    with toy_session.ToySession() as session:
        lane = EngineLane("dspark", session.engine, "dspark", ScheduleParams("fixed", 0, 4))
        assert len(lane.run((1, 2), GREEDY).token_ids) == 20

        def broken(*_, **__):
            raise RuntimeError("the device fell off")

        monkeypatch.setattr("tests.toy.ToyTarget.forward", broken)
        with pytest.raises(DSparkError, match=r"dspark failed: .*\(RuntimeError: the device fell off\)"):
            lane.run((1, 2), GREEDY)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory, tiny_state):
    """The tiny random Llama of the other tests as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("tiny")
    save_file(tiny_state(), folder / "model.safetensors", metadata={"format": "pt"})
    config = TINY_CONFIG | {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "sampling",
    [GREEDY, replace(GREEDY, repetition_penalty=1.6), replace(GREEDY, logit_bias=((41, 4.5), (7, -math.inf)))],
    ids=["greedy", "repetition", "bias"],
)
def test_transformers_generate_and_our_plain_decoding_answer_alike_in_fp32(sampling, tiny_folder, tiny_target):
    engine = Engine(
        DecodeLoop(tiny_target, ToyTokenizer(dict.fromkeys(range(97), b"x")), {"none": NoneDrafter()}, FixedLoad())
    )
    try:
        ours = EngineLane("plain", engine, "none", PLAIN_SCHEDULE)
        theirs = TransformersLane(
            tiny_folder, dtype=torch.float32, device=torch.device("cpu"), stop_token_ids=tiny_target.stop_token_ids
        )
        for prompt in [(5, 6, 7), (40, 3), (90, 11, 12, 13, 14)]:
            plain, generated = ours.run(prompt, sampling), theirs.run(prompt, sampling)
            assert plain.token_ids == generated.token_ids
            assert plain.summary.tokens == len(plain.token_ids)
            assert generated.summary.tokens == len(generated.token_ids) - 1, "the first one belongs to the prefill"
            assert generated.summary.tau == 1
            assert 0 < generated.summary.round_s + generated.summary.prefill_s <= generated.wall_s
    finally:
        engine.close()


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_transformers_generate_refuses_the_penalties_that_it_has_not(penalty, tiny_folder):
    lane = TransformersLane(tiny_folder, dtype=torch.float32, device=torch.device("cpu"), stop_token_ids=frozenset({2}))
    with pytest.raises(ParameterError, match="no presence or frequency penalty"):
        lane.run((5, 6), replace(GREEDY, **{penalty: 0.5}))


def test_transformers_generate_with_a_temperature_repeats_with_its_seed(tiny_folder):
    lane = TransformersLane(tiny_folder, dtype=torch.float32, device=torch.device("cpu"), stop_token_ids=frozenset({2}))
    warm = SamplingParams(temperature=1.0, top_k=5, top_p=0.9, max_new_tokens=12, seed=4)
    assert lane.run((5, 6), warm).token_ids == lane.run((5, 6), warm).token_ids


def test_the_command_prints_a_table_and_then_one_json_line_with_a_key_a_lane(monkeypatch, capsys):
    monkeypatch.setattr(dspark_core.loading, "open_session", toy_session.open_session)
    lanes = ["--lanes", "plain,dflash,dspark", "--set", "chat", "--set", "code", "--limit", "2"]
    assert main(["bench", *lanes, "--max-new-tokens", "20", "--policy", "fixed", "--l-max", "4"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    for name in ("plain", "dflash", "dspark"):
        assert {"tokens_per_s", "tau", "ratio"} <= set(report[name])
        assert any(line.startswith(name) for line in table)
        assert report[name]["tokens"] == 80
    assert (report["plain"]["tau"], report["plain"]["ratio"]) == (1, 1)
    assert report["dspark"]["answers"] == {"same": 4, "n": 4, "earliest_difference": None}
    assert report["dspark"]["conditional"][0]["n"] > 0
    assert set(report["by_set"]) == {"chat", "code"}
    assert report["settings"]["prompts"] == {"chat": 2, "code": 2}
    assert "transformers_generate" not in report
    assert main(["bench", *lanes, "--max-new-tokens", "4", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_report_tells_the_bands_and_the_law_that_were_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(dspark_core.loading, "open_session", toy_session.open_session)
    asked = ["--lanes", "dspark", "--set", "chat", "--limit", "1", "--max-new-tokens", "4", "--json"]
    bands = ["--policy", "banded", "--band-low", "0.2", "--band-high", "0.7", "--load-signal", "simulated"]
    bands += ["--simulated-load", "0.25"]
    more = ["--min-p", "0.1", "--presence-penalty", "1", "--frequency-penalty", "0.5", "--repetition-penalty", "1.1"]
    more += ["--logit-bias", "1=-inf", "--seed", "5"]
    assert main(["bench", *asked, *bands, "--temperature", "1", "--top-k", "9", "--top-p", "0.8", *more]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["policy"], settings["band_low"], settings["band_high"]) == ("banded", 0.2, 0.7)
    assert settings["seed"] == 5
    assert (settings["load_signal"], settings["simulated_load"]) == ("simulated", 0.25)
    assert (settings["top_k"], settings["top_p"]) == (9, 0.8)
    assert (settings["min_p"], settings["presence_penalty"], settings["frequency_penalty"]) == (0.1, 1, 0.5)
    assert (settings["repetition_penalty"], settings["logit_bias"]) == (1.1, ["1=-inf"])


def test_a_lane_that_drafts_beyond_the_cut_runs_beside_the_one_that_does_not(monkeypatch, capsys):
    monkeypatch.setattr(dspark_core.loading, "open_session", toy_session.open_session)
    asked = ["--lanes", "dspark-all,dspark", "--set", "chat", "--limit", "2", "--max-new-tokens", "30"]
    assert main(["bench", *asked, "--l-min", "0", "--threshold", "0.5"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    early, whole = report["dspark"], report["dspark-all"]
    assert early["drafted"] == early["verified"] < whole["drafted"]
    assert early["answers"] == whole["answers"] == {"same": 2, "n": 2, "earliest_difference": None}
    assert "beyond the cut" in whole["note"]
    assert report["settings"]["stop_early"] is True
    for name in ("dspark", "dspark-all"):
        drafts = f"{report[name]['drafted'] / report[name]['rounds']:.1f} drafts"
        assert any(line.startswith(f"{name}, a round: T_draft") and drafts in line for line in table)
        assert report[name]["draft_to_verify"] > 0


def test_a_lane_without_its_drafter_is_refused(monkeypatch, capsys):
    def without_drafters(*_, **__):
        session = toy_session.ToySession()
        session.info = replace(session.info, drafters={"none": ""})
        return session

    monkeypatch.setattr(dspark_core.loading, "open_session", without_drafters)
    assert main(["bench", "--limit", "1"]) == 2
    assert "The lane dflash needs a drafter for toy" in capsys.readouterr().err
