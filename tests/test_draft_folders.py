"""From what --draft-model says to named folders: shipped names, paths, several at once, and what is refused."""

import json
from pathlib import Path

import pytest

from dspark_core import draft_folders
from dspark_core.catalog import CATALOG, ModelEntry
from dspark_core.draft_folders import CHECKPOINTS, drafter_names, find_draft_folders, lender_of_dflash
from dspark_core.errors import CheckpointError, DSparkError, ModelUnavailableError, ParameterError
from tests.modules.tiny import tiny_config

HERE = Path(__file__).parent  # a target without shipped drafters
KINDS = {
    "dspark": {"markov_rank": 6},
    "dspark-rnn": {"markov_rank": 6, "markov_head_type": "rnn"},
    "dspark-conv": {"markov_rank": 6, "markov_head_type": "conv"},
    "dflash": {"markov_rank": 0, "confidence_head_with_markov": False},
    "lm": None,
}


def write_config(folder, kind):
    folder.mkdir(parents=True)
    values = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    if KINDS[kind] is not None:
        values = tiny_config(**KINDS[kind]).to_dict()
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A model whose catalogue entry names five drafters, of which three ship."""
    monkeypatch.setattr(draft_folders, "CHECKPOINTS", tmp_path / "checkpoints")
    for kind in ("dflash", "dspark", "lm"):
        write_config(tmp_path / "checkpoints" / f"{kind}-tiny", kind)
    return ModelEntry("tiny", "Tiny", "MIT", "", drafters={kind: f"{kind}-tiny" for kind in KINDS})


def found(model, text):
    return {name: (folder.path.name, folder.kind) for name, folder in find_draft_folders(model, text).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_named_by_its_kind(tmp_path, kind):
    write_config(tmp_path / "mine", kind)
    assert found(HERE, str(tmp_path / "mine")) == {kind: ("mine", kind)}


def test_auto_is_every_shipped_one_in_the_catalogues_order(shipped):
    assert found(shipped, "auto") == {
        "dspark": ("dspark-tiny", "dspark"),
        "dflash": ("dflash-tiny", "dflash"),
        "lm": ("lm-tiny", "lm"),
    }
    assert found(HERE, "auto") == found(shipped, "none") == {}


def test_shipped_ones_go_by_their_name_and_by_their_folder(shipped):
    assert found(shipped, "lm") == found(shipped, "lm-tiny") == {"lm": ("lm-tiny", "lm")}
    assert list(find_draft_folders(shipped, "lm,dspark")) == ["lm", "dspark"]
    assert list(find_draft_folders(shipped, " lm , dspark ")) == ["lm", "dspark"]
    assert find_draft_folders(shipped, "lm,lm-tiny,auto").keys() == {"lm", "dspark", "dflash"}


def test_two_of_a_kind_are_told_apart_by_the_folder(tmp_path, shipped):
    mine, other = write_config(tmp_path / "mine", "dspark"), write_config(tmp_path / "other", "dspark")
    assert found(shipped, f"auto,{mine}")["mine"] == ("mine", "dspark")
    assert list(find_draft_folders(HERE, f"{mine},{other}")) == ["dspark", "other"]
    same_name = write_config(tmp_path / "deep" / "other", "dspark")
    with pytest.raises(ParameterError, match=r"has no name left: 'dspark' and 'other' are taken\. Rename"):
        find_draft_folders(HERE, f"{mine},{other},{same_name}")


@pytest.mark.parametrize("name", ["none", "ngram", "plain", "transformers_generate", "settings"])
def test_a_folder_does_not_take_a_name_that_means_something_else(tmp_path, name):
    first, second = write_config(tmp_path / "mine", "lm"), write_config(tmp_path / name, "lm")
    with pytest.raises(ParameterError, match="has no name left"):
        find_draft_folders(HERE, f"{first},{second}")


def test_one_folder_twice_is_one_drafter(tmp_path):
    mine = write_config(tmp_path / "mine", "dspark")
    assert list(find_draft_folders(HERE, f"{mine},{mine}/../mine")) == ["dspark"]


def test_a_path_may_hold_commas(tmp_path):
    mine = write_config(tmp_path / "mine, and yours", "dspark")
    assert found(HERE, str(mine)) == {"dspark": ("mine, and yours", "dspark")}


def test_a_shipped_name_wins_over_a_folder_here(tmp_path, shipped, monkeypatch):
    write_config(tmp_path / "here" / "lm", "dspark")
    write_config(tmp_path / "here" / "dspark-conv", "dspark")
    monkeypatch.chdir(tmp_path / "here")
    assert found(shipped, "lm") == {"lm": ("lm-tiny", "lm")}
    assert found(shipped, "./lm") == {"dspark": ("lm", "dspark")}
    assert found(shipped, "dspark-conv") == {"dspark": ("dspark-conv", "dspark")}, "named, but it does not ship"


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("", ModelUnavailableError, "There is no drafter ''"),
        ("dspark,", ModelUnavailableError, "There is no drafter ''"),
        ("dspark,nowhere", ModelUnavailableError, "There is no drafter 'nowhere'.*dspark, dflash, lm"),
        ("dspark-rnn", ModelUnavailableError, "There is no drafter 'dspark-rnn'"),
        ("x" * 5000, ModelUnavailableError, "There is no drafter"),
        ("none,dspark", ParameterError, "asks for none and for others"),
        (str(HERE), CheckpointError, "config.json is missing"),
    ],
)
def test_what_cannot_be_found_is_refused_by_name(shipped, text, error, says):
    with pytest.raises(error, match=says):
        find_draft_folders(shipped, text)


@pytest.mark.parametrize("content", ["[]", "{", "{}", '{"architectures": 5}', '{"architectures": ["GPT2LMHeadModel"]}'])
def test_a_config_of_neither_kind_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(DSparkError, match=r"config|Config"):
        find_draft_folders(HERE, str(tmp_path))


def test_the_names_of_a_session_end_with_those_that_every_session_has(shipped):
    assert drafter_names(HERE, "auto") == ["none", "ngram"]
    assert drafter_names(shipped, "auto") == ["dspark", "dflash", "lm", "none", "ngram"]
    assert drafter_names(shipped, "lm") == ["lm", "none", "ngram"]


def test_dflash_is_borrowed_from_the_first_dspark_where_none_was_trained(tmp_path, shipped):
    assert lender_of_dflash(find_draft_folders(shipped, "auto")) is None
    rnn = write_config(tmp_path / "mine", "dspark-rnn")
    assert lender_of_dflash(find_draft_folders(shipped, f"lm,{rnn},dspark")) == "dspark-rnn"
    assert drafter_names(shipped, f"lm,{rnn},dspark") == ["lm", "dspark-rnn", "dspark", "dflash", "none", "ngram"]


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.name)
def test_what_ships_is_of_the_kind_that_the_catalogue_says_and_the_default_ships(entry):
    folders = find_draft_folders(entry, "auto")
    assert next(iter(folders)) == next(iter(entry.drafters)), "the default drafter does not ship"
    for name, folder in folders.items():
        assert folder.kind == name
        assert (folder.path / "model.safetensors").is_file()


def test_every_shipped_folder_is_in_the_catalogue():
    named = {folder for entry in CATALOG for folder in entry.drafters.values()}
    assert {path.name for path in CHECKPOINTS.iterdir() if path.is_dir()} <= named
