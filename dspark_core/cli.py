"""The command line. Each command lives in its own module, which is imported only when it is asked for.

Exit codes: 0 done; 1 the work itself failed (an answer ended with an error, a file is out of date); 2 refused, with
the reason on stderr; 130 interrupted; 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from dspark_core import __version__
from dspark_core.errors import DSparkError
from dspark_core.terminal import open_missing_streams, printable, tell

INTERRUPTED = 130
BROKEN_PIPE = 141
FAILED = 1
REFUSED = 2

_SILENT = logging.NullHandler()

COMMANDS = {
    "infer": ("dspark_core.infer", "answer one prompt, as text or as JSON events"),
    "bench": ("dspark_core.bench.command", "measure plain decoding, the drafters and transformers side by side"),
    "evaluate": (
        "dspark_core.evaluate.command",
        "measure how many drafts are accepted, by prompt set and drafter",
    ),
    "load": ("dspark_core.load_test.command", "measure throughput, waiting and verification with many users at once"),
    "sweep": ("dspark_core.sweep.command", "measure a grid of settings beside plain decoding: speed against waste"),
    "fetch": ("dspark_core.fetch", "bring a model into the cache"),
    "calibrate": ("dspark_core.calibration.command", "fit the drafter's confidences to what the target accepts"),
    "profile": ("dspark_core.profiling.command", "measure what a step costs on this machine, for the schedulers"),
    "train": ("dspark_core.training.command", "train a drafter for a model"),
    "export": ("dspark_core.export", "write a drafter in DeepSpec's layout, for other engines"),
    "space": ("dspark_core.space", "check or write the files made from the Spacefile"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (see the module) and never shows a traceback for a `DSparkError`."""
    words = list(sys.argv[1:] if argv is None else argv)
    open_missing_streams()
    _never_fail_to_encode()
    _choose_log()
    try:
        return _run(words)
    finally:
        for stream in (sys.stdout, sys.stderr):
            _flush_or_discard(stream)


def _run(words: Sequence[str]) -> int:
    try:
        options = parse(words)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except DSparkError as error:
        tell(f"dspark: {printable(str(error))}\n")
        return REFUSED
    except KeyboardInterrupt:
        tell("dspark: interrupted.\n")
        return INTERRUPTED
    except BrokenPipeError:
        _discard(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        tell(f"dspark: the system refused: {printable(str(error))}\n")
        _discard(sys.stdout)
        return FAILED


def _choose_log() -> None:
    """A user has the reason in the answer's own error; the traceback in the log is for who asks with DSPARK_DEBUG=1."""
    log = logging.getLogger("dspark_core")
    if os.environ.get("DSPARK_DEBUG") == "1":
        log.removeHandler(_SILENT)
    else:
        log.addHandler(_SILENT)


def _flush_or_discard(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Python flushes the streams once more at its end: give this one a place where that cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _never_fail_to_encode() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; ``run`` among them does the work. Exits like argparse on a wrong call."""
    parser = argparse.ArgumentParser(
        prog="python -m dspark_core", description="DSpark: speculative decoding with a confidence scheduler."
    )
    parser.add_argument("--version", action="version", version=f"dspark {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((word for word in words if not word.startswith("-")), None)
    for name, (module_name, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == chosen:
            module = importlib.import_module(module_name)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser.parse_args(words)
