"""The files of a feature cache: whatever is broken is told with the way out, and a killed writer leaves no trap."""

import json
import re
import shutil

import pytest

from dspark_core.errors import ParameterError
from dspark_core.training.cache import FeatureCache, build_cache
from dspark_core.training.data import Conversation
from tests.training.setup import HIDDEN, TAPS, conversations, tiny_cache, tiny_source

FILES = ("index.json", "progress.json", "tokens.bin", "features.bin")
NAN = float("nan")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    tiny_cache(folder)
    return folder


@pytest.fixture
def folder(tmp_path, whole):
    """A finished cache that a test may break."""
    return shutil.copytree(whole, tmp_path / "features")


def refused(folder, file, words):
    """Neither reading nor building takes the folder, and neither changes a byte of it."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for use in (FeatureCache, tiny_cache):
        with pytest.raises(ParameterError, match=re.escape(str(folder / file)) + f".*{words}.*Delete this folder"):
            use(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("file", FILES[:2])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b'{"taps": [0, 2], "hid', "not valid JSON"),
        (b"\x00" * 40, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b"[]", "list, not an object"),
        (b"{}", "is missing"),
    ],
)
def test_broken_json_is_told(folder, file, content, words):
    (folder / file).write_bytes(content)
    refused(folder, file, words)


@pytest.mark.parametrize("key", ["format", "hidden_size", "taps", "tokens"])
def test_a_key_that_the_index_lacks_is_named(folder, key):
    index = json.loads((folder / "index.json").read_text())
    del index[key]
    (folder / "index.json").write_text(json.dumps(index))
    refused(folder, "index.json", f"{key}. is missing")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("hidden_size", 0),
        ("hidden_size", "32"),
        ("hidden_size", True),
        ("hidden_size", 32.0),
        ("taps", []),
        ("taps", "02"),
        ("taps", [0, 2.5]),
        ("tokens", 0),
        ("tokens", 10**30),
        ("tokens", 12),
        ("sequences", None),
        ("sequences", []),
        ("sequences", {"start": 0}),
    ],
)
def test_a_key_of_the_index_that_cannot_be_is_named(folder, key, value):
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(index | {key: value}))
    refused(folder, "index.json", key)


@pytest.mark.parametrize(
    "changes",
    [
        {"start": 1},
        {"start": -1},
        {"start": 0.0},
        {"length": 0},
        {"length": -3},
        {"length": 10**30},
        {"length": "5"},
        {"prompt_length": 0},
        {"prompt_length": 10**6},
        {"prompt_length": True},
        {"temperature": None},
        {"temperature": NAN},
        {"temperature": -1},
        {"split": "test"},
        {"split": ["train"]},
        {"more": 1},
    ],
)
def test_a_sequence_that_cannot_be_is_shown(folder, changes):
    index = json.loads((folder / "index.json").read_text())
    index["sequences"][0] |= changes
    (folder / "index.json").write_text(json.dumps(index))
    refused(folder, "index.json", "sequence that cannot be|is .* of its sequences")


@pytest.mark.parametrize("sequence", [None, 7, [0, 5], "train", {}])
def test_a_sequence_that_is_none_is_shown(folder, sequence):
    index = json.loads((folder / "index.json").read_text())
    index["sequences"][1] = sequence
    (folder / "index.json").write_text(json.dumps(index))
    refused(folder, "index.json", "sequence that cannot be")


@pytest.mark.parametrize("done", [-1, 11, 3.0, "3", True, [3], 10**30])
def test_progress_that_cannot_be_is_told(folder, done):
    (folder / "progress.json").write_text(json.dumps({"sequences_done": done}))
    refused(folder, "progress.json", "sequences_done is .*from 0 to 10")


@pytest.mark.parametrize("file", FILES[2:])
@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda data: data[: len(data) // 2], lambda data: data[:-1], lambda data: data + b"\x00" * 4],
    ids=["empty", "half", "one byte short", "longer"],
)
def test_a_file_of_another_size_is_told_and_left_as_it_is(folder, file, damage):
    (folder / file).write_bytes(damage((folder / file).read_bytes()))
    refused(folder, file, "index asks for")


@pytest.mark.parametrize("file", ["index.json", "tokens.bin", "features.bin"])
def test_a_lost_file_is_told(folder, file):
    (folder / file).unlink()
    refused(folder, file, "")


def test_other_texts_of_the_same_lengths_are_other_data(folder):
    changed = [Conversation(c.prompt_ids, c.answer_ids[::-1], c.temperature) for c in conversations(8)]
    with pytest.raises(ParameterError, match="other data"):
        build_cache(folder, tiny_source(), TAPS, HIDDEN, changed, conversations(2, seed=9))


def test_a_kill_at_any_replacement_leaves_a_folder_that_the_next_run_finishes(tmp_path, whole, monkeypatch):
    from os import replace

    def killed_at(number):
        left = iter(range(number))

        def kill(*paths):
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(*paths)

        return kill

    for number in range(4):  # tokens, index, progress at 0, progress at the end
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr("os.replace", killed_at(number))
            patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # a killed process does not tidy up either
            with pytest.raises(KeyboardInterrupt):
                tiny_cache(folder)
        assert any(path.name.endswith(".tmp") for path in folder.iterdir())
        tiny_cache(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            path.name: path.read_bytes() for path in whole.iterdir()
        }


def test_a_half_written_replacement_is_never_read(folder):
    for file in FILES:
        (folder / f".{file}.tmp").write_bytes(b'{"half')
    assert FeatureCache(folder).ready == tiny_cache(folder).ready == 10


def test_a_file_in_the_folders_place_is_told(tmp_path):
    (tmp_path / "features").write_text("a file")
    with pytest.raises(ParameterError, match="cannot be made"):
        tiny_cache(tmp_path / "features")


def test_a_cache_of_nothing_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="one conversation"):
        build_cache(tmp_path, tiny_source(), TAPS, HIDDEN, [], [])
