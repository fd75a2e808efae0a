"""The command ``sweep``: a grid of settings beside plain decoding, as a table, one JSON line, and files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from dspark_core.bench.prompts import DEFAULT_SETS, SETS, Prompt, chosen
from dspark_core.cli import FAILED, INTERRUPTED
from dspark_core.errors import ParameterError
from dspark_core.evaluate.command_line import command_line
from dspark_core.fetch import ProgressBar
from dspark_core.files import make_folder, write_json, write_whole_text
from dspark_core.options import add_model_options
from dspark_core.params import SamplingParams
from dspark_core.sweep.grid import grid_of
from dspark_core.sweep.plan import Settings
from dspark_core.sweep.report import csv_text, head, report
from dspark_core.sweep.runner import Sweep
from dspark_core.sweep.tables import table
from dspark_core.sweep.values import AXES, read_values
from dspark_core.terminal import printable, tell, write_text

_DEFAULTS = {
    "drafter": "the first",
    "policy": "threshold",
    "gamma": "all that the drafters can",
    "l_min": "the policy's own",
    "l_max": "γ",
    "threshold": "0.3",
    "temperature": "0",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core sweep``."""
    group = parser.add_argument_group("grid: values with commas (1,2,4) or ranges first:last:step (0:0.9:0.1)")
    for axis in AXES:
        option = "--" + axis.name.replace("_", "-")
        group.add_argument(option, metavar="V,V,…", help=f"{axis.symbol} (default: {_DEFAULTS[axis.name]})")
    parser.add_argument(
        "--prompts", type=Path, action="append", metavar="FILE",
        help='prompts, one {"turns": ["…"]} a line, of which the first turn is asked; may be repeated',
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", choices=SETS, dest="sets",
        help=f"packaged prompts; may be repeated (default: {', '.join(DEFAULT_SETS)})",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, default=2, metavar="N", help="first N of each set (%(default)s)")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="answer every prompt N times (%(default)s)")
    parser.add_argument("--max-new-tokens", type=int, default=64, metavar="N", help="of an answer (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first prompt (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write sweep.json and sweep.csv there")
    add_model_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure and report; returns 0, 1 when something failed, 130 when interrupted. Raises the DSparkError family."""
    texts = {axis.name: getattr(options, axis.name) or "" for axis in AXES}
    for axis in AXES:
        read_values(axis, texts[axis.name])
    settings = _settings(options)
    if options.out:
        make_folder(options.out)
    from dspark_core.loading import open_session  # torch is slow to import: first the checks that need none

    bar = ProgressBar()
    try:
        with open_session(
            options.model, draft_model=options.draft_model, device=options.device, dtype=options.dtype, progress=bar
        ) as session:
            sweep = Sweep(session, grid_of(session, texts), settings)
            about = head(session.info) | {"command": command_line(options, add_arguments, "sweep")}
            interrupted = _measure(sweep, bar)
    finally:
        bar.close()
    written = report(about, sweep) | ({"partial": True, "stopped": True} if interrupted else {})
    try:
        _show(written, json_alone=options.json)
    finally:  # a reader that went away must not cost the files
        if options.out:
            _write(written, options.out)
    if interrupted:
        tell("dspark: interrupted; the figures are of what was finished.\n")
        return INTERRUPTED
    if sweep.failure:
        tell(f"dspark: ended early; the figures are of what was finished. {printable(sweep.failure)}\n")
    return FAILED if sweep.failure or sweep.results.failures else 0


def _measure(sweep: Sweep, bar: ProgressBar) -> bool:
    """Run it; whether Ctrl-C ended it."""
    try:
        for progress in sweep.run():
            left = "" if progress.left_s is None else f", {_time(progress.left_s)} left"
            bar(
                f"measuring: answer {progress.done}/{progress.total}{left}, {progress.now}",
                progress.done / progress.total,
            )
    except KeyboardInterrupt:
        if not sweep.results.answers:
            raise
        return True
    return False


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _settings(options: argparse.Namespace) -> Settings:
    if options.limit < 1:
        raise ParameterError(f"limit is {options.limit}; it must be 1 or more.")
    SamplingParams(max_new_tokens=options.max_new_tokens, seed=options.seed)
    groups = chosen(options.prompts or [], options.sets or [], options.limit).values()
    prompts: list[Prompt] = [it for it in chain.from_iterable(zip_longest(*groups)) if it is not None]
    return Settings(tuple(prompts), options.max_new_tokens, options.repeats, options.seed)


def _show(written: Mapping[str, Any], *, json_alone: bool) -> None:
    if not json_alone:
        write_text(sys.stdout, table(written) + "\n")
    write_text(sys.stdout, json.dumps(written, allow_nan=False) + "\n")


def _write(written: Mapping[str, Any], folder: Path) -> None:
    write_json(folder / "sweep.json", written)
    write_whole_text(folder / "sweep.csv", csv_text(written))
    for name in ("sweep.json", "sweep.csv"):
        tell(f"dspark: wrote {folder / name}\n")
