"""The command calibrate on the toy: rolls out, fits, writes; refuses early; keeps nothing half-done."""

import json

import pytest

from dspark_core.calibration import command, halves
from dspark_core.calibration.file import FILE_NAME, read_calibration, weights_sha256
from dspark_core.calibration.recorded import read_recorded
from dspark_core.checkpoint import save_drafter
from dspark_core.cli import main
from dspark_core.decode_loop import DecodeLoop
from dspark_core.engine import Engine
from dspark_core.events import DecodeRound
from dspark_core.loading import load_drafters
from dspark_core.params import GenerationRequest
from dspark_core.training.openings import Openings, measured_prompts, plain_words
from tests.toy import FixedLoad, ToyTarget, ToyTokenizer, toy_draft_model
from tests.toy_session import ToySession

LONG = ["--max-new-tokens", "40"]


@pytest.fixture
def checkpoint(tmp_path):
    loaded = toy_draft_model()
    save_drafter(tmp_path / "toy", loaded.config, loaded.modules.state_dict())
    return tmp_path / "toy"


class DSparkToySession(ToySession):
    """The toy with the checkpoint's own drafter; every text becomes a prompt of its own."""

    def __init__(self, folder):
        super().__init__()
        self.engine.close()
        self.target = ToyTarget(max_context=1000)
        self.drafters = load_drafters(folder, str(folder), self.target)
        self.engine = Engine(DecodeLoop(self.target, ToyTokenizer(), self.drafters, FixedLoad()))
        self.default_drafter = next(iter(self.drafters))
        self.requests = []

    def request(self, messages, sampling, schedule=None, drafter=None):
        (message,) = messages
        prompt = tuple(ord(letter) % 3 for letter in message["content"])
        self.requests.append(GenerationRequest(prompt, sampling, schedule, drafter))
        return self.requests[-1]


@pytest.fixture
def opened(monkeypatch):
    sessions = []

    def open_session(_model, *, draft_model, **_):
        sessions.append(DSparkToySession(draft_model))
        return sessions[-1]

    monkeypatch.setattr("dspark_core.loading.open_session", open_session)
    return sessions


def calibrate(checkpoint, *words):
    return main(["calibrate", "--draft-model", str(checkpoint), *words])


def test_the_command_writes_a_calibration_for_each_setting_beside_the_drafter(opened, checkpoint, capsys):
    assert calibrate(checkpoint, "--limit", "9", *LONG) == 0
    calibration, note = read_calibration(checkpoint, 2)
    assert note == ""
    assert calibration.weights_sha256 == weights_sha256(checkpoint)
    assert [setting.name for setting in calibration.settings] == ["greedy", "T=0.7", "T=1"]
    assert (calibration.fitted_on.fit_prompts, calibration.fitted_on.held_out_prompts) == (5, 4)
    for setting in calibration.settings:
        assert len(setting.confidence_temperatures) == 2
        assert setting.fit_rounds > 50
        assert 50 < setting.before[0].n == setting.after[0].n <= setting.held_out_rounds  # an end may leave no draft
        assert [at.auc for at in setting.before] == [at.auc for at in setting.after]
    assert any(t != 1 for setting in calibration.settings for t in setting.confidence_temperatures)
    shown = capsys.readouterr().out
    for words in ("greedy: fitted on", "ECE before", "AUC after", "mean ECE of survival", f"written: {checkpoint}"):
        assert words in shown
    assert opened[0].closed


def test_every_draft_is_verified_in_every_setting_with_a_seed_for_each_prompt(opened, checkpoint, capsys):
    assert calibrate(checkpoint, "--limit", "3", "--seed", "7", *LONG) == 0
    requests = opened[0].requests
    assert [request.sampling.temperature for request in requests] == [0.0] * 3 + [0.7] * 3 + [1.0] * 3
    assert [request.sampling.seed for request in requests] == [7, 8, 9] * 3
    assert {(r.schedule.policy, r.schedule.l_min, r.schedule.l_max) for r in requests} == {("fixed", 2, 2)}
    assert {request.drafter for request in requests} == {"dspark"}
    capsys.readouterr()


@pytest.mark.usefixtures("opened")
def test_fitted_on_the_first_third_and_so_on_and_measured_on_the_others(checkpoint, monkeypatch, capsys):
    rounds = []
    fit = halves.fitted_setting

    def spy(temperature, parts, num_positions):
        rounds.append([len(part) for part in parts])
        return fit(temperature, parts, num_positions)

    monkeypatch.setattr(halves, "fitted_setting", spy)
    assert calibrate(checkpoint, "--limit", "5", *LONG) == 0
    calibration, _ = read_calibration(checkpoint, 2)
    for setting, of_prompt in zip(calibration.settings, rounds, strict=True):
        assert setting.fit_rounds == of_prompt[0] + of_prompt[2] + of_prompt[4]
        assert setting.held_out_rounds == of_prompt[1] + of_prompt[3]
    capsys.readouterr()


def test_fitting_again_gives_the_same_since_the_heads_own_confidences_are_used(opened, checkpoint, capsys):
    words = ("--limit", "6", *LONG)
    assert calibrate(checkpoint, *words) == 0
    before = (checkpoint / FILE_NAME).read_bytes()
    assert calibrate(checkpoint, *words, "--overwrite") == 0
    assert json.loads((checkpoint / FILE_NAME).read_bytes())["settings"] == json.loads(before)["settings"]
    assert opened[1].drafters["dspark"].calibration is not None
    capsys.readouterr()


@pytest.mark.usefixtures("opened")
def test_out_writes_elsewhere_and_leaves_the_drafter_as_it_was(checkpoint, tmp_path, capsys):
    assert calibrate(checkpoint, "--limit", "2", "--out", str(tmp_path / "other.json"), *LONG) == 0
    assert (tmp_path / "other.json").is_file()
    assert sorted(path.name for path in checkpoint.iterdir()) == ["config.json", "model.safetensors"]
    capsys.readouterr()


@pytest.mark.usefixtures("opened")
def test_hardly_any_rounds_say_so_and_leave_the_temperatures_at_1(checkpoint, capsys):
    assert calibrate(checkpoint, "--limit", "2", "--max-new-tokens", "3") == 0
    calibration, _ = read_calibration(checkpoint, 2)
    assert {t for setting in calibration.settings for t in setting.confidence_temperatures} == {1.0}
    assert "T stays 1 where fewer than 50 rounds" in capsys.readouterr().out


def test_a_calibrated_drafter_answers_with_calibrated_confidences(opened, checkpoint, capsys):
    assert calibrate(checkpoint, "--limit", "9", *LONG) == 0
    session = DSparkToySession(checkpoint)
    try:
        with session.engine.submit(opened[0].requests[-1]) as generation:
            tokens = [token for event in generation if isinstance(event, DecodeRound) for token in event.draft]
    finally:
        session.close()
    assert all(token.raw_confidence is not None for token in tokens)
    assert any(token.raw_confidence != token.confidence for token in tokens)
    capsys.readouterr()


@pytest.mark.parametrize("when", ["rollout", "writing"])
def test_interrupted_it_keeps_nothing(opened, checkpoint, monkeypatch, capsys, when):
    before = sorted(path.name for path in checkpoint.iterdir())
    calls = []

    def interrupt(*arguments):
        calls.append(arguments)
        if when == "writing" or len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    where = "os.replace" if when == "writing" else "dspark_core.calibration.halves.fitted_setting"
    original = halves.fitted_setting
    monkeypatch.setattr(where, interrupt)
    assert calibrate(checkpoint, "--limit", "2", *LONG) == 130
    assert sorted(path.name for path in checkpoint.iterdir()) == before
    assert opened[0].closed
    assert "interrupted" in capsys.readouterr().err


def test_a_reader_that_went_away_does_not_cost_the_rollouts(opened, checkpoint, monkeypatch):
    def gone(_):
        raise BrokenPipeError

    monkeypatch.setattr("sys.stdout.write", gone)
    monkeypatch.setattr("dspark_core.cli._discard", lambda _: None)
    assert calibrate(checkpoint, "--limit", "2", *LONG) == 141
    assert len(opened) == 1
    assert (checkpoint / FILE_NAME).exists()


def test_a_terminal_obeys_no_path(opened, checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert calibrate(checkpoint, "--limit", "2", "--out", str(tmp_path / "a\x1b[31mb"), *LONG) == 0
    assert len(opened) == 1
    assert "a[31mb" in capsys.readouterr().out


def refused(capsys, checkpoint, *words):
    assert calibrate(checkpoint, *words) == 2
    return capsys.readouterr().err


def test_an_old_file_is_replaced_only_when_asked(opened, checkpoint, capsys):
    (checkpoint / FILE_NAME).write_text("old")
    assert "--overwrite" in refused(capsys, checkpoint)
    assert (checkpoint / FILE_NAME).read_text() == "old"
    assert opened == []  # said before anything is loaded


def test_what_cannot_work_is_refused_before_anything_is_loaded(opened, checkpoint, tmp_path, capsys):
    assert "Give 2 or more" in refused(capsys, checkpoint, "--limit", "1")
    assert "limit is -1" in refused(capsys, checkpoint, "--limit", "-1")
    assert "max_new_tokens is 0" in refused(capsys, checkpoint, "--max-new-tokens", "0")
    assert "seed is -1" in refused(capsys, checkpoint, "--seed", "-1")
    assert "cannot be written" in refused(capsys, checkpoint, "--out", str(tmp_path / "none" / "x.json"))
    assert "cannot be written" in refused(capsys, checkpoint, "--out", str(tmp_path))
    assert "it is a folder" in refused(capsys, checkpoint, "--out", str(tmp_path))
    assert "Say one of the two" in refused(capsys, checkpoint, "--rounds", "a.json", "--out", "b.json")
    assert "There is no drafter to calibrate" in refused(capsys, "none")
    assert "There is no drafter" in refused(capsys, tmp_path / "nothing")
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"turns": ["the same"]}\n{"turns": ["the same"]}\n')
    assert "1 different prompt" in refused(capsys, checkpoint, "--prompts", str(twice))
    assert opened == []


def test_after_the_largest_seed_comes_0(opened, checkpoint):
    assert calibrate(checkpoint, "--limit", "3", "--seed", str(2**63 - 1), *LONG) == 0
    assert {request.sampling.seed for request in opened[0].requests} == {2**63 - 1, 0, 1}


def test_a_drafter_without_confidences_is_refused_by_name(opened, tmp_path, capsys):
    loaded = toy_draft_model(markov_rank=0)
    save_drafter(tmp_path / "headless", loaded.config, loaded.modules.state_dict())
    assert "'dflash' has no confidence head" in refused(capsys, tmp_path / "headless", "--limit", "2")
    assert opened[0].closed


def packaged():
    return [json.loads(line)["turns"] for line in command.PROMPTS.read_text(encoding="utf-8").splitlines()]


def test_the_packaged_prompts_are_many_and_all_different():
    texts = [plain_words(turns[0]) for turns in packaged()]
    assert len(texts) >= 48
    assert len(set(texts)) == len(texts)
    assert all(len(turns) == 1 for turns in packaged())


def test_no_packaged_prompt_is_one_that_is_measured_or_trained_on():
    texts = {plain_words(turns[0]) for turns in packaged()}
    assert measured_prompts()
    assert texts & measured_prompts() == set()
    openings = Openings(["word"])
    assert [text for text in texts if openings.could_draw(text)] == []


def test_the_rounds_are_kept_in_place_of_a_calibration_where_that_is_asked_for(opened, checkpoint, tmp_path, capsys):
    kept = tmp_path / "rounds.json.gz"
    assert calibrate(checkpoint, "--limit", "4", "--rounds", str(kept), *LONG) == 0
    assert not (checkpoint / FILE_NAME).exists()
    recorded = read_recorded(kept)
    assert recorded.weights_sha256 == weights_sha256(checkpoint)
    assert (recorded.made_by.fit_prompts, recorded.made_by.held_out_prompts) == (2, 2)
    assert list(recorded.parts) == [0.0, 0.7, 1.0]
    assert all(len(parts) == 4 and all(len(part) for part in parts) for parts in recorded.parts.values())
    assert f"written: {kept}" in capsys.readouterr().out
    assert calibrate(checkpoint, "--limit", "4", "--rounds", str(kept), *LONG) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert len(opened) == 1
