"""Files that appear whole or not at all, and the folders they go into. A disk that refuses is told in words."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
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


def write_whole(file: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``file``, then put it in its place. Whatever fails, an older file stays.

    The unfinished file has a fixed, hidden name and goes away with any error, Ctrl-C too. A killed writer leaves it:
    no reader takes it, and the next writer replaces it. So a file has one writer at a time; where two might meet, hold
    a lock.

    Raises:
        ResourceError: the disk is full or refuses.
    """
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
