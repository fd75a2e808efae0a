"""The cache holds whole models or nothing, whatever goes wrong; pip is played by a script that copies a file."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from dspark_core import cache, catalog, download, storage
from dspark_core.cache import ensure_model
from dspark_core.catalog import CATALOG, ModelEntry, PackageSource, find_model
from dspark_core.errors import ModelUnavailableError, ParameterError, ResourceError

FAKE_PIP = """
import os, pathlib, shutil, sys, time
pathlib.Path(os.environ["FAKE_CALLS"]).open("a").write("call\\n")
mode = os.environ.get("FAKE_MODE", "good")
if mode != "good":
    sys.exit(mode)
assert "--no-deps" in sys.argv
target = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
shutil.copy(os.environ["FAKE_WHEEL"], target)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch, tiny_gguf):
    """A catalogue with one tiny model, a folder for the cache and a package index that is a folder."""
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tiny_gguf, "tiny/model.gguf")
    source = PackageSource(
        package="tiny",
        version="1",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member="tiny/model.gguf",
        gguf_sha256=hashlib.sha256(tiny_gguf.read_bytes()).hexdigest(),
        gguf_bytes=tiny_gguf.stat().st_size,
        converted_bytes=1000,
    )
    setup_fake(monkeypatch, source, tmp_path)
    monkeypatch.setenv("FAKE_WHEEL", str(wheel))
    return tmp_path


def setup_fake(monkeypatch, source, folder):
    modules = folder / "modules" / "pip"
    modules.mkdir(parents=True, exist_ok=True)
    (modules / "__init__.py").write_text("")
    (modules / "__main__.py").write_text(FAKE_PIP)
    monkeypatch.setenv("PYTHONPATH", str(modules.parent))
    monkeypatch.setenv("FAKE_CALLS", str(folder / "calls"))
    monkeypatch.setenv("DSPARK_CACHE", str(folder / "cache"))
    monkeypatch.setattr(catalog, "CATALOG", (ModelEntry("tiny", "Tiny", "none", "owner/tiny", source),))


def calls(folder):
    path = folder / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


def assert_nothing_left(folder):
    root = folder / "cache"
    assert not list((root / "tmp").glob("*")) if (root / "tmp").exists() else True
    assert not list((root / "models").glob("*")) if (root / "models").exists() else True


def change_source(monkeypatch, **changes):
    entry = catalog.CATALOG[0]
    changed = replace(entry, package=replace(entry.package, **changes))
    monkeypatch.setattr(catalog, "CATALOG", (changed,))


def test_the_first_use_fetches_and_converts_later_ones_find(fake):
    seen = []
    folder = ensure_model("tiny", lambda stage, fraction: seen.append((stage, fraction)))
    assert folder == fake / "cache" / "models" / "tiny"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    assert not any(path.suffix == ".gguf" for path in (fake / "cache").rglob("*"))
    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions)
    assert 0 <= fractions[0] < fractions[-1] == 1
    assert ensure_model("tiny") == folder
    assert calls(fake) == 1
    ensure_model("tiny", force=True)
    assert calls(fake) == 2


def test_a_warm_start_writes_nothing(fake):
    ensure_model("tiny")
    for name in ("tmp", "locks"):
        shutil.rmtree(fake / "cache" / name)
    ensure_model("tiny")
    assert {path.name for path in (fake / "cache").iterdir()} == {"models"}


@pytest.mark.parametrize("damage", ["cut", "missing", "manifest", "old format"])
def test_a_damaged_model_is_made_again(fake, damage):
    folder = ensure_model("tiny")
    if damage == "cut":
        (folder / "model.safetensors").write_bytes(b"short")
    elif damage == "missing":
        (folder / "tokenizer.json").unlink()
    elif damage == "manifest":
        (folder / "manifest.json").write_text("{")
    else:
        (folder / "manifest.json").write_text(json.dumps({"format": 0, "source": "x", "files": {}}))
    assert ensure_model("tiny") == folder
    assert calls(fake) == 2
    assert storage.read_source(folder) is not None
    assert not list((fake / "cache" / "tmp").iterdir())


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        ("ERROR: No matching distribution found for tiny==1", ModelUnavailableError, "No matching.*Check the network"),
        ("ERROR: Could not install: [Errno 28] No space left on device", ResourceError, "full.*DSPARK_CACHE"),
        ("segmentation fault", ModelUnavailableError, "segmentation fault"),
    ],
)
def test_what_pip_fails_with_is_said(fake, monkeypatch, output, error, words):
    monkeypatch.setenv("FAKE_MODE", output)
    with pytest.raises(error, match=words):
        ensure_model("tiny")
    assert_nothing_left(fake)


def test_without_pip_the_way_out_is_said(fake, monkeypatch):
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ModelUnavailableError, match="uv pip install pip"):
        ensure_model("tiny")
    assert_nothing_left(fake)


@pytest.mark.parametrize("which", ["wheel_sha256", "gguf_sha256"])
def test_a_wrong_hash_is_refused(fake, monkeypatch, which):
    change_source(monkeypatch, **{which: "0" * 64})
    with pytest.raises(ModelUnavailableError, match=r"SHA-256.*Nothing was kept"):
        ensure_model("tiny")
    assert_nothing_left(fake)


def test_a_cut_wheel_is_refused(fake, monkeypatch):
    wheel = Path(os.environ["FAKE_WHEEL"])
    wheel.write_bytes(wheel.read_bytes()[:-100])
    with pytest.raises(ModelUnavailableError, match="SHA-256"):
        ensure_model("tiny")
    change_source(monkeypatch, wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    with pytest.raises(ModelUnavailableError, match="does not hold"):
        ensure_model("tiny")
    assert_nothing_left(fake)


def test_a_wheel_without_the_file_is_refused(fake, monkeypatch):
    change_source(monkeypatch, member="tiny/other.gguf")
    with pytest.raises(ModelUnavailableError, match=r"other\.gguf"):
        ensure_model("tiny")
    assert_nothing_left(fake)


def test_space_is_checked_before_the_download(fake, monkeypatch):
    change_source(monkeypatch, converted_bytes=10**18)
    with pytest.raises(ResourceError, match=r"MB are free.*DSPARK_CACHE"):
        ensure_model("tiny")
    assert calls(fake) == 0
    assert_nothing_left(fake)


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "is full"), (errno.EROFS, "cannot be written"), (errno.EACCES, "cannot be")]
)
def test_a_disk_that_refuses_while_converting_is_explained(fake, monkeypatch, number, words):
    def half_written(_source, folder, _progress):
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("dspark_core.target.gguf.convert_gguf", half_written)
    with pytest.raises(ResourceError, match=words):
        ensure_model("tiny")
    assert_nothing_left(fake)


def test_safetensors_full_disk_is_recognised(fake, monkeypatch):
    from safetensors import SafetensorError

    def full(*_args, **_kwargs):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("dspark_core.target.gguf.save_file", full)
    with pytest.raises(ResourceError, match="is full"):
        ensure_model("tiny")
    assert_nothing_left(fake)


@pytest.mark.usefixtures("fake")
def test_a_read_only_cache_is_explained_but_a_model_in_it_works(monkeypatch):
    folder = ensure_model("tiny")

    def refuse(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(storage.tempfile, "mkdtemp", refuse)
    assert ensure_model("tiny") == folder
    with pytest.raises(ResourceError, match=r"cannot be written.*DSPARK_CACHE"):
        ensure_model("tiny", force=True)
    assert ensure_model("tiny") == folder


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_cache_path_that_is_a_file_is_explained(fake, monkeypatch, below):
    (fake / "file").write_text("x")
    monkeypatch.setenv("DSPARK_CACHE", str(fake / "file" / below))
    with pytest.raises(ResourceError, match=r"is a file.*Set DSPARK_CACHE"):
        ensure_model("tiny")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("path", ["/proc/nowhere/x", "/tmp/" + "x" * 300, "/dev/null/x"])
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="the paths are Linux's")
def test_a_cache_that_cannot_be_made_names_the_setting_to_change(monkeypatch, path):
    monkeypatch.setenv("DSPARK_CACHE", path)
    with pytest.raises(ResourceError, match="Set DSPARK_CACHE to a folder"):
        ensure_model("tiny")


@pytest.mark.parametrize("chosen", ["~nosuchuser/x", "~nosuchuser"])
def test_a_home_folder_that_is_unknown_is_explained(monkeypatch, chosen):
    monkeypatch.setenv("DSPARK_CACHE", chosen)
    with pytest.raises(ResourceError, match=r"~nosuchuser.*Set DSPARK_CACHE"):
        storage.cache_root()


@pytest.mark.skipif(os.name == "nt", reason="uids are POSIX's")
@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_a_user_without_a_home_is_told_to_choose_a_cache(monkeypatch, platform):
    import pwd

    def unknown(uid):
        raise KeyError(uid)

    for name in ("DSPARK_CACHE", "HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(ResourceError, match="Set DSPARK_CACHE"):
        storage.cache_root()


def test_a_current_folder_that_is_gone_is_explained(monkeypatch):
    def gone():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setenv("DSPARK_CACHE", "here")
    monkeypatch.setattr(os, "getcwd", gone)
    with pytest.raises(ResourceError, match="full path"):
        storage.cache_root()


def test_a_broken_model_is_fetched_again_where_it_is_ours_and_left_alone_where_it_is_the_users(fake):
    folder = ensure_model("tiny")
    assert storage.way_to_repair(folder) == "Fetch it again: python -m dspark_core fetch tiny --force."
    assert storage.way_to_repair(storage.model_folder("a/b")).endswith("fetch a/b --force.")
    assert "etch" not in storage.way_to_repair(fake / "mine")


def test_a_manifest_nested_without_end_is_no_complete_model(tmp_path):
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    assert storage.read_source(tmp_path) is None


def test_leftovers_of_a_killed_run_are_removed(fake):
    leftover = fake / "cache" / "tmp" / "tiny.killed"
    leftover.mkdir(parents=True)
    (leftover / "model.gguf").write_bytes(b"half")
    other = fake / "cache" / "tmp" / "another.model"
    other.mkdir()
    ensure_model("tiny")
    assert not leftover.exists()
    assert other.exists()  # somebody else's work


def test_an_interrupted_download_stops_pip_and_leaves_nothing(fake, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "60")

    def interrupt(_stage, _fraction):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_model("tiny", interrupt)
    assert_nothing_left(fake)


def _ensure_in_child(entries, results):
    catalog.CATALOG = entries
    results.put(str(ensure_model("tiny")))


def test_two_processes_at_once_fetch_once(fake, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "1")
    context = multiprocessing.get_context("spawn")
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1]), *sys.path])
    results = context.Queue()
    workers = [context.Process(target=_ensure_in_child, args=(catalog.CATALOG, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
    assert found == [str(fake / "cache" / "models" / "tiny")] * 2
    assert calls(fake) == 1


def test_hub_models_land_in_the_same_form(fake, monkeypatch):
    made = ensure_model("tiny")

    def snapshot(hub_id, folder):
        assert hub_id == "owner/tiny"
        for path in made.iterdir():
            if path.name != "manifest.json":
                shutil.copy(path, folder)

    monkeypatch.setattr(cache, "download_hub", snapshot)
    assert ensure_model("tiny", from_hub=True) == made
    assert storage.read_source(made) == "owner/tiny (model hub)"
    assert ensure_model("tiny") == made  # whichever source is there serves
    assert calls(fake) == 1
    by_id = ensure_model("owner/tiny")
    assert by_id.name == "owner--tiny"


def test_a_hub_that_cannot_be_reached_is_explained(fake, monkeypatch):
    def offline(*_args, **_kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ModelUnavailableError, match=r"no route to host.*without --from-hub"):
        ensure_model("tiny", from_hub=True)
    assert_nothing_left(fake)


def test_local_folders_are_taken_as_they_are(fake):
    folder = ensure_model("tiny")
    assert ensure_model(str(folder)) == folder
    for option in ("force", "from_hub"):
        with pytest.raises(ParameterError, match="nothing is fetched for it"):
            ensure_model(str(folder), **{option: True})
    empty = fake / "empty"
    empty.mkdir()
    with pytest.raises(ModelUnavailableError, match=r"lacks config\.json and tokenizer\.json"):
        ensure_model(str(empty))


@pytest.mark.parametrize(
    "name", ["", "nothing", "a/b/c", "../x", "a\0b", "~nobody-here/x/y", "x" * 300, "/" + "x" * 300]
)
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(ModelUnavailableError, match="Known names: smollm2-135m"):
        find_model(name)


def test_the_catalogue_names_exact_sources():
    for entry in CATALOG:
        assert find_model(entry.name) is entry
        assert entry.licence
        assert len(entry.package.wheel_sha256) == len(entry.package.gguf_sha256) == 64


def test_the_cache_has_a_default_place(monkeypatch, tmp_path):
    monkeypatch.delenv("DSPARK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert storage.cache_root() == tmp_path / "dspark"
