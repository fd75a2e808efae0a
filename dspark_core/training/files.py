"""Files that a training run writes: each appears whole or not at all, and a disk that refuses is told in words."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dspark_core.errors import ParameterError, ResourceError


def make_folder(folder: Path) -> None:
    """Create `folder` and those above it where they are missing. ParameterError when the machine refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(
            f"The folder {folder} cannot be made ({error.strerror or error}). Give one that may be written."
        ) from error


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold the lock file: two runs that write into one folder would spoil each other's work.

    ResourceError when another process holds it; the system frees the lock of a killed one.
    """
    holder = FileLock(lock)
    try:
        holder.acquire(timeout=0)
    except Timeout as error:
        raise ResourceError(
            f"Another run is writing into {lock.parent}. Wait until it has ended, or give another folder."
        ) from error
    except (OSError, NotImplementedError):  # a file system without locks: the user has to take care
        yield
        return
    try:
        yield
    finally:
        holder.release()


def write_whole(file: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `file`, then put it in its place. A kill leaves the old file as it was.

    What a killed writer left behind has a fixed, hidden name: no reader takes it, and the next writer replaces it.
    ResourceError when the disk is full or refuses.
    """
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        write(temporary)
        os.replace(temporary, file)
    except (OSError, RuntimeError) as error:  # torch's writer says RuntimeError
        raise ResourceError(
            f"{file} cannot be written ({error}). Free some space or give another folder, then repeat the command."
        ) from error


def write_json(file: Path, values: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write `values` as JSON, whole or not at all. ResourceError as in `write_whole`."""
    text = json.dumps(values, indent=indent) + "\n"
    write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))


def append_line(file: Path, line: str) -> None:
    """Add a line to a text file. ResourceError when the disk refuses."""
    try:
        with file.open("a", encoding="utf-8") as out:
            out.write(line + "\n")
    except OSError as error:
        raise ResourceError(
            f"{file} cannot be written ({error.strerror or error}). Free some space, then repeat the command."
        ) from error


def end_last_line(file: Path) -> None:
    """Take away the last line of a text file if a killed writer left it unfinished. ResourceError as `append_line`."""
    try:
        data = file.read_bytes() if file.exists() else b""
        if data and not data.endswith(b"\n"):
            os.truncate(file, data.rfind(b"\n") + 1)
    except OSError as error:
        raise ResourceError(f"{file} cannot be read ({error.strerror or error}). Delete it, then repeat.") from error
