"""The command ``load``: many users at once, method beside method, as tables, one JSON line, charts and rows."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_core.bench.prompts import DEFAULT_SETS, SETS, Prompt, chosen, in_turn
from dspark_core.cli import FAILED, INTERRUPTED
from dspark_core.errors import ParameterError
from dspark_core.evaluate.command_line import command_line
from dspark_core.fetch import ProgressBar
from dspark_core.fields import shown
from dspark_core.options import (
    add_model_options,
    add_sampling_options,
    add_schedule_options,
    sampling_from,
    schedule_from,
)
from dspark_core.terminal import printable, tell

if TYPE_CHECKING:
    from dspark_core.loading import Session

_USERS = (1, 2, 4, 8, 16, 32)
_MOST_DRAFTS = 64  # above every drafter's γ, which then is the limit
_LIMIT = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core load``."""
    parser.add_argument(
        "--users",
        default=",".join(map(str, _USERS)),
        metavar="N,N,…",
        help="users at once, each asking the next question when the last answer has ended (%(default)s)",
    )
    parser.add_argument(
        "--lanes",
        metavar="A,B,…",
        help="plain, or policies (with the default drafter), or DRAFTER+POLICY; fixed@4 verifies 4 drafts a round, "
        "fixed the whole block, threshold@0.6 cuts at 0.6 (default: plain, fixed, dflash+threshold and every policy)",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        action="append",
        metavar="FILE",
        help='prompts, one {"turns": ["…"]} a line, of which the first turn is asked; may be repeated',
    )
    parser.add_argument(
        "--set",
        action="append",
        choices=SETS,
        dest="sets",
        help=f"packaged prompts; may be repeated (default: {', '.join(DEFAULT_SETS)})",
    )
    parser.add_argument("--limit", type=int, default=_LIMIT, metavar="N", help="first N of each set (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="measure all of it N times (%(default)s)")
    parser.add_argument(
        "--answers-per-user",
        type=int,
        default=2,
        metavar="N",
        help="N answers for each user count, but at least one for each prompt (%(default)s)",
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="instead, count what ends in S seconds")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="if the step times that prefix and delayed need were never measured here, measure them first",
    )
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="write the report (load.json), a row an answer (answers.csv) and charts (PNG files, load.html) there",
    )
    add_model_options(parser)
    add_schedule_options(parser, with_policy=False)
    add_sampling_options(parser, max_new_tokens=64)
    parser.set_defaults(policy="threshold", l_min=0, l_max=_MOST_DRAFTS, threshold=0.6)


def run(options: argparse.Namespace) -> int:
    """Measure and report; returns 0, 1 when an answer failed, 130 when interrupted. Raises the DSparkError family."""
    users = _users(options)
    sampling_from(options)
    schedule_from(options)
    prompts = _prompts(options)
    from dspark_core.load_test import outputs

    if options.out:
        outputs.check_folder(options.out)
    from dspark_core.load_test.race import measure  # torch is slow to import: first the checks that need none
    from dspark_core.load_test.report import results
    from dspark_core.load_test.setup import job_from, setup

    bar = ProgressBar()
    try:
        with _session(options, bar) as session:
            job = job_from(session, options, users, prompts)
            head = setup(session, options, job, command_line(options, add_arguments, "load"))
            measured = measure(session.engine, job, bar)
    finally:
        bar.close()
    report = results(job.lanes, measured) | head
    try:
        outputs.show(report, json_alone=options.json)
    finally:  # a reader that went away must not cost the files
        if options.out:
            outputs.write(report, measured, options.out)
    if measured.interrupted:
        tell("dspark: interrupted; the figures are of what was finished.\n")
        return INTERRUPTED
    if measured.failure:
        tell(f"dspark: ended early; the figures are of what was finished. {printable(measured.failure)}\n")
        return FAILED
    return 0


def _users(options: argparse.Namespace) -> list[int]:
    words = [word.strip() for word in options.users.split(",") if word.strip()]
    if not words or not all(re.fullmatch("0*[1-9][0-9]{0,8}", word) for word in words):
        raise ParameterError(
            f"users is {shown(options.users)}; it must be whole numbers from 1 on, with commas between: 1,2,4."
        )
    for name in ("limit", "repeats", "answers_per_user"):
        if getattr(options, name) < 1:
            raise ParameterError(f"{name.replace('_', '-')} is {getattr(options, name)}; it must be 1 or more.")
    if options.seconds is not None and not 0 < options.seconds < math.inf:
        raise ParameterError(f"seconds is {options.seconds}; it must be a number above 0.")
    return sorted({int(word) for word in words})


def _prompts(options: argparse.Namespace) -> list[Prompt]:
    return in_turn(chosen(options.prompts or [], options.sets or [], options.limit).values())


def _session(options: argparse.Namespace, bar: ProgressBar) -> Session:
    """The session; with ``--profile`` one that has step times."""
    from dspark_core.loading import open_session

    def opened() -> Session:
        return open_session(
            options.model, draft_model=options.draft_model, device=options.device, dtype=options.dtype, progress=bar
        )

    session = opened()
    if not options.profile or session.profile is not None:
        return session
    from dspark_core.profiling.command import DEFAULT_BUDGET_S, measure_and_store

    with session:
        measure_and_store(session, DEFAULT_BUDGET_S, bar)
    return opened()
