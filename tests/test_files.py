"""Whole files and folders: what was there stays until the new is complete; a disk that refuses is told in words."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_core.errors import ParameterError, ResourceError
from dspark_core.files import check_place, make_folder, new_folder, write_json, write_whole, write_whole_text
from tests.sources import ROOT


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_text_is_written_as_it_is_whatever_the_platform(tmp_path):
    write_whole_text(tmp_path / "a.txt", "one\nτ\n")
    assert (tmp_path / "a.txt").read_bytes() == "one\nτ\n".encode()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_json_ends_with_a_line_end(tmp_path):
    write_json(tmp_path / "a.json", {"b": [1]})
    write_json(tmp_path / "c.json", {"b": 1}, indent=2)
    assert content(tmp_path) == {"a.json": '{"b": [1]}\n', "c.json": '{\n  "b": 1\n}\n'}


def test_others_may_read_what_was_written_as_the_umask_allows(tmp_path):
    write_whole_text(tmp_path / "a.txt", "x")
    old = os.umask(0)
    os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~old


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device"), ResourceError),
        (RuntimeError("unexpected pos 64 vs 0"), ResourceError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ValueError("a fault of ours"), ValueError),
    ],
)
@pytest.mark.parametrize("when", ["writing", "replacing"])
def test_whatever_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, error, told, when):
    file = tmp_path / "a.txt"
    file.write_text("old")

    def fail(*_):
        raise error

    def write(path):
        path.write_text("ne")
        if when == "writing":
            fail()

    if when == "replacing":
        monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(told) as caught:
        write_whole(file, write)
    assert content(tmp_path) == {"a.txt": "old"}
    if told is ResourceError:
        assert "a.txt cannot be written" in str(caught.value)
        assert getattr(error, "strerror", None) or str(error) in str(caught.value)
        assert "repeat the command" in str(caught.value)


def test_what_a_killed_writer_left_is_no_file_of_ours_and_the_next_writer_replaces_it(tmp_path):
    killed = (
        "import os, pathlib, signal\nfrom dspark_core.files import write_whole\n"
        "def write(path):\n    path.write_text('ne')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"write_whole(pathlib.Path({str(tmp_path / 'a.txt')!r}), write)\n"
    )
    write_whole_text(tmp_path / "a.txt", "old")
    assert subprocess.run([sys.executable, "-c", killed], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "a.txt").read_text() == "old"
    left = [path.name for path in tmp_path.iterdir() if path.name != "a.txt"]
    assert len(left) == 1
    assert left[0].startswith(".")
    write_whole_text(tmp_path / "a.txt", "new")
    assert content(tmp_path) == {"a.txt": "new"}


def test_a_disk_that_is_really_full_is_told(tmp_path):
    resource = pytest.importorskip("resource")
    write_whole_text(tmp_path / "a.txt", "old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(ResourceError, match=r"a\.txt cannot be written \(File too large\)"):
            write_whole_text(tmp_path / "a.txt", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert content(tmp_path) == {"a.txt": "old"}


@pytest.mark.parametrize("place", ["none/a.txt", "file/a.txt", "x" * 300])
def test_a_place_that_takes_no_file_is_told(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be written"):
        write_whole_text(tmp_path / place, "x")


def test_a_folder_is_made_with_those_above_it_or_the_fault_is_told(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="cannot be made"):
        make_folder(tmp_path / "file" / "b")


def fill(folder):
    with new_folder(folder) as unfinished:
        (unfinished / "a").write_text("1")
        assert not (folder / "a").exists()
        assert [path for path in folder.parent.iterdir() if not path.name.startswith(".")] in ([], [folder])


@pytest.mark.parametrize("empty", [True, False])
def test_a_folder_appears_with_all_its_files_where_none_or_an_empty_one_is(tmp_path, empty):
    place = tmp_path / "new"
    if empty:
        place.mkdir()
    fill(place)
    assert content(place) == {"a": "1"}
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    old = os.umask(0)
    os.umask(old)
    assert stat.S_IMODE(place.stat().st_mode) == 0o777 & ~old


def test_the_folders_above_a_new_one_are_made(tmp_path):
    fill(tmp_path / "a" / "b")
    assert content(tmp_path / "a" / "b") == {"a": "1"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ResourceError("full"), ValueError])
def test_a_folder_that_is_not_finished_leaves_nothing(tmp_path, error):
    def broken():
        with new_folder(tmp_path / "new") as unfinished:
            (unfinished / "a").write_text("1")
            raise error

    with pytest.raises(error if isinstance(error, type) else ResourceError):
        broken()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_content_is_refused_and_stays(tmp_path):
    (tmp_path / "mine").write_text("1")
    with pytest.raises(ParameterError, match=r"is not empty \(it holds 'mine'\)"):
        fill(tmp_path)
    with pytest.raises(ParameterError, match="cannot be made or read"):
        fill(tmp_path / "mine")
    assert content(tmp_path) == {"mine": "1"}


def test_content_that_came_meanwhile_stays(tmp_path):
    def slow():
        with new_folder(tmp_path / "new") as unfinished:
            (unfinished / "a").write_text("1")
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "theirs").write_text("2")

    with pytest.raises(ResourceError, match="cannot be put in its place"):
        slow()
    assert content(tmp_path / "new") == {"theirs": "2"}
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("place", ["x" * 300, "file/new"])
def test_a_folder_that_cannot_be_made_is_told(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="cannot be made"):
        fill(tmp_path / place)


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_what_names_no_file_is_refused_in_words(name):
    with pytest.raises(ParameterError, match="it is a folder"):
        write_whole(Path(name), lambda path: path.write_text("x"))


def test_a_place_is_checked_before_anything_is_written(tmp_path):
    check_place(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("old")
    check_place(tmp_path / "a.txt")
    with pytest.raises(ParameterError, match="it is a folder"):
        check_place(tmp_path)
    with pytest.raises(ParameterError, match="its folder is missing or closed"):
        check_place(tmp_path / "none" / "a.txt")
    assert content(tmp_path) == {"a.txt": "old"}
