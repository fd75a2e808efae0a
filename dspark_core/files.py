"""Files and folders that appear whole or not at all. A disk that refuses is told in words."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError, ResourceError


def make_folder(folder: Path) -> None:
    """Create ``folder`` and those above it where they are missing. ParameterError when the machine refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(
            f"The folder {folder} cannot be made ({error.strerror or error}). Give one that may be written."
        ) from error


def check_new_folder(folder: Path) -> None:
    """Raise ParameterError when ``folder`` exists and holds anything, or is no folder."""
    try:
        found = os.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ParameterError(
            f"The folder {folder} cannot be made or read ({error.strerror or error}). Give one that does not exist yet."
        ) from error
    if found:
        raise ParameterError(
            f"The folder {folder} is not empty (it holds {min(found)!r:.80}), and nothing in it is overwritten. Give "
            "one that does not exist yet, or empty it."
        )


def check_place(file: Path) -> None:
    """Raise ParameterError when ``file`` could not be written: for those who would find out after hours."""
    if file.is_dir():
        raise ParameterError(f"{file} cannot be written: it is a folder. Name a file in it.")
    folder = file.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ParameterError(f"{file} cannot be written: its folder is missing or closed. Name a file elsewhere.")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which becomes ``folder`` when the body has ended; after any error nothing of it is left.

    Raises:
        ParameterError: ``folder`` exists and holds anything, or cannot be made.
        ResourceError: it cannot be put in its place.
    """
    check_new_folder(folder)
    folder = Path(os.path.abspath(folder))  # "." has no name
    make_folder(folder.parent)
    try:
        around = Path(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=folder.parent))
    except OSError as error:
        raise ParameterError(
            f"The folder {folder} cannot be made ({error.strerror or error}). Give one that may be written."
        ) from error
    unfinished = around / folder.name
    try:
        make_folder(unfinished)  # mkdtemp's own is closed to others
        yield unfinished
        try:
            with suppress(FileNotFoundError):
                folder.rmdir()  # empty, as was checked
            os.replace(unfinished, folder)
        except OSError as error:
            raise ResourceError(
                f"The folder {folder} cannot be put in its place ({error.strerror or error}). Give another one, then "
                "repeat the command."
            ) from error
    finally:
        shutil.rmtree(around, ignore_errors=True)


def write_whole(file: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``file``, then put it in its place. Whatever fails, an older file stays.

    The unfinished file has a fixed, hidden name and goes away with any error, Ctrl-C too. A killed writer leaves it:
    no reader takes it, and the next writer replaces it. So a file has one writer at a time; where two might meet, hold
    a lock.

    Raises:
        ParameterError: ``file`` is no file's name, as "." and "/" are none.
        ResourceError: the disk is full or refuses.
    """
    if not file.name:
        raise ParameterError(f"{file} cannot be written: it is a folder. Name a file in it.")
    unfinished = file.with_name(f".{file.name}.tmp")
    try:
        write(unfinished)
        os.replace(unfinished, file)
    except (OSError, RuntimeError) as error:  # torch's writer says RuntimeError
        raise ResourceError(
            f"{file} cannot be written ({getattr(error, 'strerror', None) or error}). Free some space or give another "
            "place, then repeat the command."
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def write_whole_text(file: Path, text: str) -> None:
    """Write ``text`` as UTF-8 with plain line ends, whole or not at all. ResourceError as `write_whole`."""
    write_whole(file, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))


def write_json(file: Path, values: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write ``values`` as JSON, whole or not at all. ResourceError as `write_whole`."""
    write_whole_text(file, json.dumps(values, indent=indent) + "\n")
