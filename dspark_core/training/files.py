"""What a training run's folders need beside whole files: one run at a time, and a log that grows line by line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dspark_core.errors import ResourceError
from dspark_core.files import make_folder, write_json, write_whole, write_whole_text

__all__ = ["append_line", "held", "keep_lines", "make_folder", "write_json", "write_whole"]


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


def keep_lines(file: Path, wanted: Callable[[str], bool]) -> None:
    """Take away the lines of a text file that are not `wanted`. ResourceError when it cannot be read or written."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    except OSError as error:
        raise ResourceError(f"{file} cannot be read ({error.strerror or error}). Delete it, then repeat.") from error
    kept = "".join(line + "\n" for line in text.splitlines() if wanted(line))
    if kept != text:
        write_whole_text(file, kept)
