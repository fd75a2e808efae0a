"""The commands and the page take the names of all drafters: --draft-model loads them, --drafter and --lanes choose."""

import json

import pytest
from safetensors.torch import save_file

import dspark_core.loading
from dspark_core.bench.command import _lane_names
from dspark_core.calibration.file import FILE_NAME
from dspark_core.cli import main, parse
from dspark_core.decode_loop import DecodeLoop
from dspark_core.engine import Engine
from dspark_core.loading import load_drafters
from dspark_core.params import GenerationRequest
from tests import toy_session
from tests.conftest import make_tiny_state
from tests.toy import FixedLoad, ToyTarget, ToyTokenizer, toy_lm_config
from ui.settings import read_settings

INFER = ["infer", "--prompt", "x", "--policy", "fixed", "--max-new-tokens", "3"]


@pytest.fixture
def lm_folder(tmp_path):
    """A draft model for the toy target."""
    config = toy_lm_config(max_context=1000) | {"architectures": ["LlamaForCausalLM"]}
    folder = tmp_path / "small"
    folder.mkdir()
    save_file(make_tiny_state(config), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class LmSession(toy_session.ToySession):
    """The toy with the drafters that ``--draft-model`` names."""

    def __init__(self, draft_model):
        super().__init__()
        self.engine.close()
        self.draft_model = draft_model
        self.target = ToyTarget(max_context=1000)
        self.drafters = load_drafters(toy_session.__file__, draft_model, self.target)
        self.engine = Engine(DecodeLoop(self.target, ToyTokenizer(), self.drafters, FixedLoad()))
        self.default_drafter = next(iter(self.drafters))

    def request(self, messages, sampling, schedule=None, drafter=None):
        self.asked = (messages, sampling, schedule, drafter)
        return GenerationRequest((1, 2), sampling, schedule, drafter)


@pytest.fixture
def opened(monkeypatch):
    """The sessions that a command opened."""
    sessions = []

    def open_session(_model, *, draft_model, **_):
        sessions.append(LmSession(draft_model))
        return sessions[-1]

    monkeypatch.setattr(dspark_core.loading, "open_session", open_session)
    yield sessions
    assert all(session.closed for session in sessions)


@pytest.mark.parametrize(
    ("words", "draft_model"),
    [
        ([], "auto"),
        (["--draft-model", "auto"], "auto"),
        (["--draft-model", "auto", "--draft-model", "mine"], "auto,mine"),
        (["--draft-model", "a", "--draft-model=b,c"], "a,b,c"),
    ],
)
def test_draft_model_may_be_repeated_on_the_command_line_and_for_the_page(words, draft_model):
    assert parse([*INFER, *words]).draft_model == draft_model
    assert read_settings(words, {}).draft_model == draft_model


def test_the_pages_environment_is_the_default_and_the_option_replaces_it():
    environment = {"DSPARK_DRAFT_MODEL": "a,b"}
    assert read_settings([], environment).draft_model == "a,b"
    assert read_settings(["--draft-model", "c"], environment).draft_model == "c"


@pytest.mark.parametrize("choice", [[], ["--drafter", "lm"]])
def test_infer_answers_with_a_draft_model(opened, lm_folder, choice, capsys):
    assert main([*INFER, "--draft-model", str(lm_folder), *choice, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["drafter"] == "lm"
    assert opened[0].asked[3] == "lm"


def test_infer_serves_the_threshold_policy_with_a_draft_model(opened, lm_folder, capsys):
    assert main(["infer", "--prompt", "x", "--draft-model", str(lm_folder), "--max-new-tokens", "9", "--json"]) == 0
    rounds = [json.loads(line) for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert all(0 < token["confidence"] <= 1 for event in rounds for token in event["draft"])
    assert opened


def test_infer_refuses_a_drafter_that_is_not_loaded_and_says_which_are(opened, lm_folder, capsys):
    assert main([*INFER, "--draft-model", str(lm_folder), "--drafter", "dspark"]) == 2
    assert "no drafter named 'dspark'. Choose one of: lm, none, ngram." in capsys.readouterr().err
    assert opened == []


def lanes(*words):
    return _lane_names(parse(["bench", *words]))


def test_the_race_is_between_all_that_is_loaded_unless_lanes_are_named(lm_folder):
    loaded = ["--draft-model", f"dspark-smollm2-135m,{lm_folder}"]
    assert lanes(*loaded) == ["plain", "dflash", "dspark", "lm", "transformers_generate"]
    assert lanes(*loaded, "--lanes", "lm,ngram") == ["plain", "ngram", "lm"]
    assert lanes("--draft-model", str(lm_folder)) == ["plain", "lm", "transformers_generate"]


def test_a_lane_of_a_drafter_that_is_not_loaded_is_refused_with_those_that_are(opened, lm_folder, capsys):
    assert main(["bench", "--draft-model", str(lm_folder), "--lanes", "dspark"]) == 2
    said = capsys.readouterr().err
    assert "no lane named 'dspark'. Choose from: plain, ngram" in said
    assert " lm, " in said
    assert "dflash" not in said
    assert opened == []


def test_a_draft_model_is_calibrated_and_then_used_so(opened, lm_folder, capsys):
    assert main(["calibrate", "--draft-model", str(lm_folder), "--limit", "9", "--max-new-tokens", "60"]) == 0
    assert (lm_folder / FILE_NAME).is_file()
    calibrated = load_drafters(lm_folder, str(lm_folder), ToyTarget())["lm"].calibration
    assert {t for setting in calibrated.settings for t in setting.confidence_temperatures} != {1.0}
    assert opened[0].draft_model == str(lm_folder)
    capsys.readouterr()


def test_one_drafter_is_calibrated_at_a_time(opened, lm_folder, capsys):
    assert main(["calibrate", "--draft-model", f"dspark-smollm2-135m,{lm_folder}"]) == 2
    assert "names 2 drafters; one is calibrated at a time" in capsys.readouterr().err
    assert opened == []
