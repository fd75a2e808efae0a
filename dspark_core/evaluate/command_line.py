"""The command that a report came from, ready to be given again."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

_FLAGS = {"sets": "--set", "drafters": "--drafter", "temperatures": "--temperature", "stop_early": "--no-stop-early"}
_OUTPUTS = ("json", "plots", "write_readme", "out")  # these change no figure


def command_line(
    options: argparse.Namespace,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    command: str = "evaluate",
) -> str:
    """What was asked, in one line: every option that a figure depends on and that is not at its default.

    A README should not tell where somebody keeps files, so of an absolute path only the name is shown.
    """
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = ["python", "-m", "dspark_core", command]
    for name, default in vars(parser.parse_args([])).items():
        given = getattr(options, name)
        if name in _OUTPUTS or given == default:
            continue
        no = "no-" if given is False else ""
        flag = _FLAGS.get(name, f"--{no}{name.replace('_', '-')}")
        if isinstance(given, bool):
            words.append(flag)
            continue
        for value in given if isinstance(given, list) else [given]:
            text = _without_folders("=".join(map(str, value)) if isinstance(value, tuple) else str(value))
            words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]  # else it reads as an option
    return " ".join(shlex.join(words).split())


def _without_folders(value: str) -> str:
    """Absolute paths as their own names; behind ``name=`` and between commas too."""
    pairs = [part.rpartition("=") for part in value.split(",")]
    return ",".join(
        f"{name}{equals}{Path(path).name if Path(path).is_absolute() else path}" for name, equals, path in pairs
    )
