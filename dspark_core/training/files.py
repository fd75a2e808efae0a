"""What a training run's folders need beside whole files: one run at a time, and a log that grows line by line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dspark_core.errors import ResourceError
from dspark_core.files import make_folder, write_json, write_whole

__all__ = ["append_line", "end_last_line", "held", "make_folder", "write_json", "write_whole"]


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
