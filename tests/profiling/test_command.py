"""The command profile on the toy: measures once, stores, shows; a session of the same key then has the curve."""

import json
from dataclasses import replace

import pytest
from safetensors.torch import save_file

from dspark_core.cli import main
from dspark_core.drafters.none import NoneDrafter
from dspark_core.errors import ParameterError
from dspark_core.loading import open_session
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.profiling.command import MEASURED_REQUESTS
from dspark_core.profiling.file import profile_path, read_profile, write_profile
from dspark_core.profiling.profile import token_counts
from dspark_core.profiling.report import line
from dspark_core.scheduling import POLICIES
from tests.conftest import TINY_CONFIG, make_tiny_state
from tests.profiling.test_profile import KEY
from tests.target.test_tokenizer import TEMPLATE, byte_tokenizer
from tests.toy import TableDrafter
from tests.toy_session import ToySession

QUICK = ["--budget-s", "0.001"]


class ProfiledToy(ToySession):
    """The toy with what a session knows of its profile."""

    num_draft_tokens = 2

    def __init__(self):
        super().__init__()
        self.drafters = {"table": TableDrafter(5, self.num_draft_tokens), "none": NoneDrafter()}
        self.profile_key = KEY
        self.profile, why_not = read_profile(KEY)
        object.__setattr__(self.info, "step_curve", why_not or line(self.profile))


@pytest.fixture
def opened(monkeypatch, tmp_path):
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path / "cache"))
    sessions = []

    def open_toy(*_, **__):
        sessions.append(ProfiledToy())
        return sessions[-1]

    monkeypatch.setattr("dspark_core.loading.open_session", open_toy)
    yield sessions
    assert all(session.closed for session in sessions)


def told(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.usefixtures("opened")
def test_it_measures_stores_and_then_only_shows(capsys):
    assert main(["profile", *QUICK]) == 0
    output = capsys.readouterr()
    *shown, last = output.out.splitlines()
    first = json.loads(last)
    assert first["measured_now"] is True
    assert first["repeats"] >= 3
    assert any("measured on CPU (toy, 1 thread)" in text for text in shown)
    assert "not profiled" in output.err
    assert "Measuring step times" in output.err
    stored = json.loads(profile_path(KEY).read_text())
    assert stored["steps"] == first["steps"]
    assert main(["profile", *QUICK]) == 0
    again = capsys.readouterr()
    assert "stored earlier" in again.out
    assert json.loads(again.out.splitlines()[-1]) == first | {"measured_now": False}


@pytest.mark.usefixtures("opened")
def test_with_json_there_is_one_line(capsys):
    assert main(["profile", "--json", *QUICK]) == 0
    (only,) = capsys.readouterr().out.splitlines()
    report = json.loads(only)
    assert report["curve"]["tokens"] == list(token_counts(3 * MEASURED_REQUESTS))
    assert report["curve"]["seconds"] == sorted(report["curve"]["seconds"])
    found = [(probe["drafter"], probe["drafts"], probe["requests"]) for probe in report["drafting"]]
    most = MEASURED_REQUESTS
    assert found == [("table", drafts, requests) for drafts in (1, 2) for requests in (1, most // 4, most)]


@pytest.mark.usefixtures("opened")
def test_force_measures_again(capsys):
    main(["profile", *QUICK])
    capsys.readouterr()
    assert main(["profile", "--force", *QUICK]) == 0
    assert told(capsys)["measured_now"] is True


@pytest.mark.usefixtures("opened")
def test_a_damaged_profile_is_said_and_measured_again(capsys):
    main(["profile", *QUICK])
    profile_path(KEY).write_text("{")
    capsys.readouterr()
    assert main(["profile", *QUICK]) == 0
    output = capsys.readouterr()
    assert "not valid JSON" in output.err
    assert json.loads(output.out.splitlines()[-1])["measured_now"] is True
    assert read_profile(KEY)[0] is not None


@pytest.mark.usefixtures("opened")
def test_a_drafter_that_is_not_in_the_stored_profile_is_measured(capsys, monkeypatch):
    main(["profile", *QUICK])
    capsys.readouterr()
    monkeypatch.setattr(ProfiledToy, "num_draft_tokens", 3)
    assert main(["profile", *QUICK]) == 0
    output = capsys.readouterr()
    assert "lacks the drafting of table" in output.err
    assert {probe["num_draft_tokens"] for probe in json.loads(output.out.splitlines()[-1])["drafting"]} == {3}


@pytest.mark.usefixtures("opened")
def test_an_interruption_keeps_the_older_profile_and_nothing_half_written(monkeypatch):
    main(["profile", *QUICK])
    before = profile_path(KEY).read_bytes()
    calls = []

    def interrupted(*_, **__):
        calls.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.toy.ToyTarget.forward", interrupted)
    assert main(["profile", "--force", *QUICK]) == 130
    assert calls
    assert profile_path(KEY).read_bytes() == before
    assert {path.name for path in profile_path(KEY).parent.iterdir()} <= {profile_path(KEY).name, ".lock"}


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf"])
def test_a_budget_that_is_none_is_refused_before_the_model_loads(opened, capsys, budget):
    assert main(["profile", f"--budget-s={budget}"]) == 2
    assert "budget-s is" in capsys.readouterr().err
    assert opened == []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny model of random weights in a user's own folder."""
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny"
    path.mkdir()
    config = TINY_CONFIG | {"vocab_size": 280}
    (path / "config.json").write_text(json.dumps(config))
    save_file(make_tiny_state(config), path / "model.safetensors")
    (path / "tokenizer.json").write_text(byte_tokenizer().to_str())
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return path


def test_a_session_of_the_same_key_has_the_curve_and_others_say_why_not(folder, capsys):
    words = ["--model", str(folder), "--device", "cpu", "--dtype", "float32"]
    with open_session(str(folder), device="cpu", dtype="float32") as session:
        assert session.step_curve is None
        assert session.info.step_curve.startswith("not profiled: no step times are stored")
        assert session.info.policies == ("threshold", "fixed", "banded")
    assert main(["profile", *words, *QUICK]) == 0
    report = told(capsys)
    assert report["key"]["model"] == "tiny"
    with open_session(str(folder), device="cpu", dtype="float32") as session:
        assert list(session.step_curve.smoothed_s) == report["curve"]["seconds"]
        assert session.info.step_curve.startswith(f"profiled: measured on {session.info.device_label}, ")
        assert session.info.policies == tuple(POLICIES)
        assert "ngram" in session.step_curve.drafting
        stored = session.profile
    whole = [at.drafts == at.num_draft_tokens for at in stored.drafting]
    longer = [
        replace(at, num_draft_tokens=99, drafts=99 if all_of_it else at.drafts)
        for at, all_of_it in zip(stored.drafting, whole, strict=True)
    ]
    write_profile(replace(stored, drafting=tuple(longer)))
    with open_session(str(folder), device="cpu", dtype="float32") as session:
        assert "ngram" not in session.step_curve.drafting, "it was measured with another block size"
        assert "not profiled: the drafting of ngram" in session.info.step_curve
    with open_session(str(folder), device="cpu", dtype="bfloat16") as session:
        assert session.step_curve is None
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    with open_session(str(folder), device="cpu", dtype="float32") as session:
        assert session.step_curve is None


def test_an_open_session_measures_itself_and_uses_what_it_measured(folder):
    told_to_us = []
    with open_session(str(folder), device="cpu", dtype="float32") as session:
        with pytest.raises(ParameterError, match="has not been measured"):
            session.engine.check(asked("prefix"))
        assert session.measure_steps(0.001, lambda stage, _: told_to_us.append(stage))
        assert session.info.policies == tuple(POLICIES)
        assert session.info.step_times[0] == (1, session.step_curve.smoothed_s[0])
        events = list(session.engine.submit(asked("prefix")))
        assert events[-1].finish_reason == "length"
    assert any("Measuring" in stage for stage in told_to_us)
    with open_session(str(folder), device="cpu", dtype="float32") as session:
        assert session.step_curve is not None


@pytest.mark.parametrize("moment", ["Filling", "Measuring"])
def test_a_request_ends_a_measurement_and_has_not_to_wait_for_it(folder, moment):
    with open_session(str(folder), device="cpu", dtype="float32") as session:
        answers = []

        def somebody_asks(stage, _):
            if stage.startswith(moment) and not answers:
                answers.append(session.engine.submit(asked("fixed")))

        assert not session.measure_steps(0.001, somebody_asks)
        assert list(answers[0])[-1].finish_reason == "length"
        assert session.step_curve is None
        assert not profile_path(session.profile_key).exists()
        assert session.measure_steps(0.001, lambda *_: None)


def test_what_another_process_stored_meanwhile_is_not_measured_again(folder):
    with (
        open_session(str(folder), device="cpu", dtype="float32") as first,
        open_session(str(folder), device="cpu", dtype="float32") as second,
    ):
        assert first.measure_steps(0.001, lambda *_: None)
        assert second.measure_steps(0.001, lambda *_: pytest.fail("it measures"))
        assert second.info == first.info


def asked(policy):
    return GenerationRequest((1, 2, 3), SamplingParams(max_new_tokens=4), ScheduleParams(policy), "ngram")
