"""Stored profiles: read as written, whole or not at all, and never used where they do not belong."""

import json
import os
import threading
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from dspark_core.errors import ModelUnavailableError, ResourceError
from dspark_core.profiling.file import only_one, profile_path, read_profile, weights_id, write_profile
from tests.profiling.test_profile import KEY, PROFILE


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def stored():
    with only_one():
        return write_profile(PROFILE)


def changed(path, change):
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def test_what_was_written_is_read(stored):
    assert read_profile(KEY) == (PROFILE, "")
    assert stored == profile_path(KEY)


def test_without_a_file_the_command_is_named_and_nothing_is_made(cache):
    profile, why = read_profile(KEY)
    assert profile is None
    assert why.startswith("not profiled: no step times are stored")
    assert "python -m dspark_core profile." in why
    assert not cache.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"model": "toy2"},
        {"weights": "cd" * 32},
        {"dtype": "bfloat16"},
        {"device": "cuda:0 (toy)"},
        {"threads": 2},
        {"torch": "2.y"},
        {"taps": (0,)},
    ],
)
def test_another_key_finds_nothing_and_a_file_under_its_name_is_not_used(stored, other):
    key = replace(KEY, **other)
    assert read_profile(key)[0] is None
    stored.rename(profile_path(key))
    profile, why = read_profile(key)
    assert profile is None
    assert "belongs to another model, type or machine" in why
    assert "--force" in why


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda values: values.update(format=3), "has the format 3; this version reads 4"),
        (lambda values: values.pop("format"), "has the format None"),
        (lambda values: values.pop("steps"), "missing: ['steps']"),
        (lambda values: values.update(more=1), "unknown: ['more']"),
        (lambda values: values["steps"].pop(), "different token counts"),
        (lambda values: values["steps"][0].update(seconds=0), "must be a finite number"),
        (lambda values: values["steps"][0].update(seconds="1"), "must be a finite number"),
        (lambda values: values["steps"][0].update(tokens=1.5), "of type int"),
        (lambda values: values.update(measured_on="\x1b[2J"), "must be a day"),
        (lambda values: values["key"].update(taps=["x"]), "of type int"),
    ],
)
def test_a_damaged_file_is_not_used_and_the_reason_is_said(stored, change, said):
    changed(stored, change)
    profile, why = read_profile(KEY)
    assert profile is None
    assert why.startswith("not profiled: ")
    assert said in why
    assert "Measure again: python -m dspark_core profile --force" in why


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"format": 4, "key": NaN}'])
def test_what_is_no_profile_at_all_is_not_used(stored, content):
    stored.write_bytes(content)
    profile, why = read_profile(KEY)
    assert profile is None
    assert str(stored) in why


def test_a_folder_in_its_place_is_not_used_and_cannot_be_replaced(stored):
    stored.unlink()
    stored.mkdir()
    assert "not profiled" in read_profile(KEY)[1]
    with pytest.raises(ResourceError, match="cannot be written"):
        write_profile(PROFILE)


def test_a_write_that_fails_leaves_the_older_file(stored, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ResourceError, match="No space left"):
        write_profile(replace(PROFILE, repeats=9))
    assert read_profile(KEY) == (PROFILE, "")
    assert [path.name for path in stored.parent.iterdir() if path.name != ".lock"] == [stored.name]


def test_a_model_with_a_path_for_a_name_stays_inside_the_folder(cache):
    path = profile_path(replace(KEY, model="../../owner/na me" + "x" * 300))
    assert path.parent == cache / "profiles"
    assert len(path.name) < 100


def test_two_measurements_at_a_time_are_refused():
    refused = []

    def second():
        try:
            with only_one():
                pass
        except ResourceError as error:
            refused.append(str(error))

    with only_one():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert "Another process is measuring" in refused[0]
    with only_one():
        pass


def test_a_cache_that_cannot_be_written_is_said_before_anything_is_measured(cache):
    cache.write_text("a file")
    with pytest.raises(ResourceError, match=r"cannot be written.*DSPARK_CACHE"), only_one():
        pytest.fail("measuring had begun")


def model_folder(folder, shape=(3, 4), dtype=torch.float32, fill=0.0, config="{}"):
    folder.mkdir()
    save_file({"weight": torch.full(shape, fill, dtype=dtype)}, folder / "model.safetensors")
    (folder / "config.json").write_text(config)
    return folder


def test_weights_are_told_apart_by_shape_type_and_config_but_not_by_values(tmp_path):
    base = weights_id(model_folder(tmp_path / "base"))
    assert weights_id(model_folder(tmp_path / "trained", fill=1.0)) == base
    others = [
        model_folder(tmp_path / "shape", shape=(4, 3)),
        model_folder(tmp_path / "dtype", dtype=torch.float16),
        model_folder(tmp_path / "config", config='{"a": 1}'),
    ]
    assert len({base, *map(weights_id, others)}) == 4


def test_weights_that_cannot_be_read_are_said(tmp_path):
    with pytest.raises(ModelUnavailableError, match=r"config\.json cannot be read"):
        weights_id(tmp_path)
