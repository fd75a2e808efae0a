"""The command ``evaluate``: real decoding of prompt sets by drafters, as tables, one JSON line, and charts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_core.admission import MAX_ACTIVE
from dspark_core.bench.prompts import DEFAULT_SETS, SETS, Prompt, chosen
from dspark_core.cli import FAILED, INTERRUPTED
from dspark_core.errors import ParameterError
from dspark_core.evaluate.command_line import command_line
from dspark_core.evaluate.readme import check_readme, write_readme
from dspark_core.evaluate.wording import temperature_key
from dspark_core.fetch import ProgressBar
from dspark_core.fields import shown
from dspark_core.options import add_model_options, add_schedule_options, schedule_from
from dspark_core.params import GenerationRequest, SamplingParams
from dspark_core.terminal import tell, write_text

if TYPE_CHECKING:
    from dspark_core.evaluate.measure import Job
    from dspark_core.loading import Session

_DEFAULT_TEMPERATURES = (0.0, 1.0)
_DEFAULT_BASELINE = "dflash"
_ALL = "all"
_MOST_DRAFTS = 64  # above every drafter's γ, which then is the limit: every draft is verified


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core evaluate``."""
    parser.add_argument(
        "--prompts",
        type=Path,
        action="append",
        metavar="FILE",
        help='prompts, one {"turns": ["…"]} a line; several turns are asked in one conversation; may be repeated',
    )
    parser.add_argument(
        "--set",
        action="append",
        choices=(*SETS, _ALL),
        dest="sets",
        help=f"packaged prompts; may be repeated (default: {', '.join(DEFAULT_SETS)})",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="first N prompts of each set (default: all)")
    parser.add_argument(
        "--drafter",
        action="append",
        dest="drafters",
        metavar="NAME",
        help="may be repeated; none is plain decoding (default: every drafter of the model, without none)",
    )
    parser.add_argument(
        "--baseline",
        metavar="NAME",
        help="compare the others with this drafter, prompt by prompt (default: dflash; if not measured, the first)",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        action="append",
        dest="temperatures",
        metavar="T",
        help="0 is greedy; may be repeated (default: 0 and 1)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of each set's first turn (default: %(default)s)")
    parser.add_argument(
        "--max-new-tokens", type=int, default=256, metavar="N", help="end a turn after N tokens (%(default)s)"
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="answer N prompts side by side, which takes less time and changes no law (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write charts there, as PNG files and a HTML page")
    parser.add_argument(
        "--write-readme",
        type=Path,
        nargs="?",
        const=Path("README.md"),
        metavar="FILE",
        help="put the tables between the evaluate markers of that file (README.md)",
    )
    add_model_options(parser)
    add_schedule_options(parser)
    parser.set_defaults(policy="fixed", l_max=_MOST_DRAFTS)


def run(options: argparse.Namespace) -> int:
    """Measure and report; returns 0, 1 when a prompt failed, 130 when interrupted. Raises the DSparkError family."""
    laws = _laws(options)
    schedule_from(options)
    if not 1 <= options.at_once <= MAX_ACTIVE:
        raise ParameterError(f"at-once is {options.at_once}; it must be from 1 to {MAX_ACTIVE}.")
    prompts = _prompts(options)
    _check_outputs(options)
    from dspark_core.evaluate.measure import measure  # torch is slow to import: first the checks that need none
    from dspark_core.evaluate.report import results
    from dspark_core.loading import open_session

    bar = ProgressBar()
    try:
        with open_session(
            options.model, draft_model=options.draft_model, device=options.device, dtype=options.dtype, progress=bar
        ) as session:
            job = _job(session, options, prompts, laws)
            head = _head(session, options, job)
            measured = measure(session, job, bar)
    finally:
        bar.close()
    report = results(job, measured) | head
    _show(report, options)
    if measured.partial:
        tell("dspark: interrupted; the figures are of the prompts that were finished.\n")
        return INTERRUPTED
    return FAILED if measured.failures else 0


def _laws(options: argparse.Namespace) -> list[SamplingParams]:
    temperatures = dict.fromkeys(t + 0.0 for t in options.temperatures or _DEFAULT_TEMPERATURES)  # -0 is 0
    return [
        SamplingParams(temperature=t, seed=options.seed, max_new_tokens=options.max_new_tokens) for t in temperatures
    ]


def _prompts(options: argparse.Namespace) -> dict[str, list[Prompt]]:
    if options.limit is not None and options.limit < 1:
        raise ParameterError(f"limit is {options.limit}; it must be 1 or more. Leave it out for all prompts.")
    sets = SETS if _ALL in (options.sets or ()) else options.sets
    return chosen(options.prompts or [], sets or [], options.limit)


def _check_outputs(options: argparse.Namespace) -> None:
    """What would fail after an hour of measuring is refused now."""
    if options.write_readme:
        check_readme(options.write_readme)
    if options.plots:
        from dspark_core.evaluate.page import plotly_script
        from dspark_core.evaluate.png import check_matplotlib

        check_matplotlib()
        plotly_script()
        try:
            options.plots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ParameterError(f"The folder {options.plots} cannot be made: {error}. Name another one.") from error


def _job(
    session: Session, options: argparse.Namespace, prompts: dict[str, list[Prompt]], laws: list[SamplingParams]
) -> Job:
    from dspark_core.evaluate.measure import Job

    names = list(dict.fromkeys(options.drafters or (name for name in session.info.drafters if name != "none")))
    if not names:
        raise ParameterError(
            f"There is no drafter for {session.info.model} here, so nothing can be evaluated. Name one with "
            "--draft-model, or measure plain decoding with --drafter none."
        )
    schedule = schedule_from(options)
    for name in names:  # an unknown drafter, or a policy that it cannot serve, is refused before anything is measured
        session.engine.check(GenerationRequest((0,), laws[0], schedule, name))
    return Job(prompts, names, laws, schedule, _baseline(options.baseline, names), options.at_once)


def _baseline(asked: str | None, names: Sequence[str]) -> str | None:
    if asked is not None and asked not in names:
        raise ParameterError(
            f"The baseline {shown(asked)} is not among the drafters that are measured: {', '.join(names)}. Add "
            "--drafter with its name, or choose one of these."
        )
    if len(names) < 2:
        return None
    return asked or (_DEFAULT_BASELINE if _DEFAULT_BASELINE in names else names[0])


def _head(session: Session, options: argparse.Namespace, job: Job) -> dict[str, Any]:
    """What was measured, where and when."""
    from dspark_core.bench.report import measured_on

    info = session.info
    schedule = job.schedule
    gammas = {name: session.drafters[name].num_draft_tokens for name in job.drafters}
    l_max = min(schedule.l_max, max(gammas.values()))
    return {
        **measured_on(info),
        "settings": {
            "command": command_line(options, add_arguments),
            "draft_model": options.draft_model,
            "drafters": {name: info.drafters[name] for name in job.drafters},
            "baseline": job.baseline,
            "num_draft_tokens": max(gammas.values()),
            "num_draft_tokens_by_drafter": gammas,
            "policy": schedule.policy,
            "l_min": min(schedule.l_min, l_max),
            "l_max": l_max,
            "threshold": schedule.threshold,
            "stop_early": schedule.stop_early,
            "temperatures": [temperature_key(law.temperature) for law in job.laws],
            "max_new_tokens": options.max_new_tokens,
            "seed": options.seed,
            "at_once": job.at_once,
            "prompts": {kind: len(group) for kind, group in job.prompts.items()},
        },
    }


def _show(report: Mapping[str, Any], options: argparse.Namespace) -> None:
    from dspark_core.evaluate.tables import tables

    try:
        if not options.json:
            write_text(sys.stdout, tables(report) + "\n")
        write_text(sys.stdout, json.dumps(report, allow_nan=False) + "\n")
    finally:  # a reader that went away must not cost the files
        _write(report, options)


def _write(report: Mapping[str, Any], options: argparse.Namespace) -> None:
    if options.plots:
        from dspark_core.evaluate.charts import charts
        from dspark_core.evaluate.page import write_page
        from dspark_core.evaluate.png import write_pngs

        drawn = charts(report)
        for path in [*write_pngs(drawn, options.plots), write_page(drawn, options.plots)]:
            tell(f"dspark: wrote {path}\n")
    if options.write_readme and report["partial"]:
        tell(f"dspark: {options.write_readme} stays as it was: these figures are partial.\n")
    elif options.write_readme:
        write_readme(options.write_readme, report)
        tell(f"dspark: wrote the results into {options.write_readme}\n")
