"""The command ``profile``: measure what a step costs here unless that is stored, and show it."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING

from dspark_core.admission import MAX_ACTIVE
from dspark_core.apart import apart
from dspark_core.errors import ParameterError
from dspark_core.fetch import ProgressBar
from dspark_core.options import add_model_options
from dspark_core.storage import Progress
from dspark_core.terminal import printable, tell

if TYPE_CHECKING:
    from dspark_core.loading import Session
    from dspark_core.profiling.measure import Measured
    from dspark_core.profiling.profile import StepProfile

DEFAULT_BUDGET_S = 25.0
MEASURED_REQUESTS = MAX_ACTIVE  # side by side, as many as run at once unless the session is told otherwise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core profile``."""
    parser.add_argument(
        "--budget-s",
        type=float,
        default=DEFAULT_BUDGET_S,
        metavar="S",
        help="measure for about S seconds (%(default)g); every time is measured three times in any case",
    )
    parser.add_argument("--force", action="store_true", help="measure again even when a profile is stored")
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    add_model_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure or read, store and report."""
    if not 0 < options.budget_s < math.inf:
        raise ParameterError(f"budget-s is {options.budget_s}; it must be a number of seconds above 0.")
    from dspark_core.loading import open_session
    from dspark_core.profiling.report import report, table

    bar = ProgressBar()
    try:
        with open_session(
            options.model, draft_model=options.draft_model, device=options.device, dtype=options.dtype, progress=bar
        ) as session:
            profile = None if options.force else _stored(session)
            fresh = profile is None
            if profile is None:
                profile = measure_and_store(session, options.budget_s, bar)
    finally:
        bar.close()
    if not options.json:
        where = "" if fresh else "\nstored earlier; measure again with --force"
        sys.stdout.write(printable(table(profile)) + where + "\n")
    sys.stdout.write(json.dumps({"measured_now": fresh, **report(profile)}, allow_nan=False) + "\n")
    return 0


def _stored(session: Session) -> StepProfile | None:
    """The session's profile where it has all that is to be shown; otherwise says why it is measured."""
    profile = session.profile
    if profile is None:
        tell(printable(session.info.step_curve) + "\n")
        return None
    lacking = profile.lacks((name, drafter.num_draft_tokens) for name, drafter in session.drafters.items())
    if lacking:
        tell(f"The stored profile lacks the drafting of {', '.join(lacking)}: measuring again.\n")
        return None
    return profile


def measure_and_store(
    session: Session, budget_s: float, progress: Progress, run: Callable[[Callable[[], Measured]], Measured] = apart
) -> StepProfile:
    """Measure the session's step times; a session opened after this uses them. Errors as `measure` and `file` raise.

    ``run`` does the measuring in the engine's conditions: it must be the only one with threads of torch. Where the
    engine has computed already, that is its own thread (`Engine.call`).
    """
    from dspark_core.profiling.file import only_one, write_profile
    from dspark_core.profiling.measure import measure
    from dspark_core.profiling.profile import StepProfile

    with only_one():
        measured = run(
            lambda: measure(
                session.target, session.drafters, max_requests=MEASURED_REQUESTS, budget_s=budget_s, progress=progress
            )
        )
        profile = StepProfile(
            key=session.profile_key,
            measured_on=date.today().isoformat(),
            repeats=measured.repeats,
            steps=measured.steps,
            spread=measured.spread,
            drafting=measured.drafting,
        )
        write_profile(profile)
    return profile
