"""The command ``bench``: the race on the packaged prompts or a file's, as a table and as one JSON line."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_core.bench.prompts import DEFAULT_SETS, SETS, Prompt, chosen
from dspark_core.catalog import find_model
from dspark_core.draft_folders import DFLASH, drafter_names
from dspark_core.errors import ParameterError
from dspark_core.fetch import ProgressBar
from dspark_core.options import (
    add_model_options,
    add_sampling_options,
    add_schedule_options,
    sampling_from,
    schedule_from,
)
from dspark_core.params import SamplingParams, ScheduleParams

if TYPE_CHECKING:
    from dspark_core.bench.lanes import Lane
    from dspark_core.loading import Session

_PLAIN, _GENERATE = "plain", "transformers_generate"
_ALL = "-all"  # ends the name of a lane that drafts beyond the cut
_LIGHT = ("none", "ngram")  # drafters that come with every session; none is the plain lane


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core bench``."""
    parser.add_argument("--prompts", type=Path, metavar="FILE", help='prompts, one {"turns": ["…"]} a line')
    parser.add_argument(
        "--set",
        action="append",
        choices=SETS,
        dest="sets",
        help=f"packaged prompts; may be repeated (default: {', '.join(DEFAULT_SETS)})",
    )
    parser.add_argument("--limit", type=int, default=4, metavar="N", help="first N of each set (%(default)s); 0: all")
    parser.add_argument(
        "--lanes",
        metavar="A,B,…",
        help=f"which of {_PLAIN}, ngram, the drafters and {_GENERATE} run; {_PLAIN} always does (all but ngram); "
        f"NAME{_ALL} is a drafter that drafts beyond the cut, to compare T_draft: --lanes dspark,dspark{_ALL}",
    )
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    add_model_options(parser)
    add_schedule_options(parser)
    add_sampling_options(parser, max_new_tokens=64)


def run(options: argparse.Namespace) -> int:
    """Measure and report."""
    sampling, schedule = sampling_from(options), schedule_from(options)
    names = _lane_names(options)
    prompts = _prompts(options)
    from dspark_core.loading import open_session

    bar = ProgressBar()
    try:
        with open_session(
            options.model, draft_model=options.draft_model, device=options.device, dtype=options.dtype, progress=bar
        ) as session:
            report = _measure(session, options, names, prompts, sampling, schedule, bar)
    finally:
        bar.close()
    if not options.json:
        sys.stdout.write(_text(report, names) + "\n")
    sys.stdout.write(json.dumps(report, allow_nan=False) + "\n")
    return 0


def _lane_names(options: argparse.Namespace) -> list[str]:
    drafters = drafter_names(find_model(options.model), options.draft_model)
    trained = sorted((name for name in drafters if name not in _LIGHT), key=lambda name: name != DFLASH)  # dflash first
    if options.lanes is None:
        return [_PLAIN, *(trained or ["dflash", "dspark"]), _GENERATE]  # without any, the first lane is refused
    lanes = [_PLAIN, *(lane for name in ("ngram", *trained) for lane in (name, name + _ALL)), _GENERATE]
    asked = [name.strip() for name in options.lanes.split(",") if name.strip()]
    unknown = [name for name in asked if name not in lanes]
    if unknown:
        raise ParameterError(f"There is no lane named {unknown[0]!r}. Choose from: {', '.join(lanes)}.")
    return [name for name in lanes if name == _PLAIN or name in asked]


def _prompts(options: argparse.Namespace) -> list[Prompt]:
    if options.limit < 0:
        raise ParameterError(f"limit is {options.limit}; it must be 0 (all) or more.")
    groups = chosen([options.prompts] if options.prompts else [], options.sets or [], options.limit or None)
    return [prompt for group in groups.values() for prompt in group]


def _measure(
    session: Session,
    options: argparse.Namespace,
    names: list[str],
    prompts: list[Prompt],
    sampling: SamplingParams,
    schedule: ScheduleParams,
    bar: ProgressBar,
) -> dict[str, Any]:
    import torch

    from dspark_core.bench.paired import Case, of_kind, race
    from dspark_core.bench.report import BASELINE, lane_report, machine_report

    machine = machine_report(
        session.info.device_label, session.info.dtype, torch.get_num_threads(), str(torch.__version__)
    )
    lanes = [_lane(name, session, options.model, schedule) for name in names]
    cases = [
        Case(p.kind, session.request([{"role": "user", "content": p.text}], sampling, drafter="none").prompt_ids)
        for p in prompts
    ]
    runs = race(lanes, cases, sampling, bar)

    def reports(of: dict[str, Any]) -> dict[str, Any]:
        return {
            lane.name: lane_report(of[lane.name], of[BASELINE], greedy=sampling.greedy, note=lane.note)
            for lane in lanes
        }

    kinds = list(dict.fromkeys(case.kind for case in cases))
    return {
        **reports(runs),
        "by_set": {kind: reports(of_kind(runs, cases, kind)) for kind in kinds},
        "machine": machine,
        "settings": {
            "model": session.info.model,
            "draft_model": options.draft_model,
            "num_draft_tokens": session.info.num_draft_tokens,
            "policy": schedule.policy,
            "l_min": schedule.l_min,
            "l_max": schedule.l_max,
            "threshold": schedule.threshold,
            "band_low": schedule.band_low,
            "band_high": schedule.band_high,
            "load_signal": schedule.load_signal,
            "simulated_load": schedule.simulated_load if schedule.load_signal == "simulated" else None,
            "stop_early": schedule.stop_early,
            "back_off": schedule.back_off,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "logit_bias": [f"{token_id}={bias:g}" for token_id, bias in sampling.logit_bias],
            "max_new_tokens": sampling.max_new_tokens,
            "seed": sampling.seed or 0,
            "prompts": {kind: sum(case.kind == kind for case in cases) for kind in kinds},
            "later_turns_left_out": sum(prompt.more_turns for prompt in prompts),
        },
    }


def _lane(name: str, session: Session, model: str, schedule: ScheduleParams) -> Lane:
    from dspark_core.bench.lanes import EngineLane, TransformersLane
    from dspark_core.bench.run import PLAIN_SCHEDULE
    from dspark_core.cache import ensure_model

    if name == _GENERATE:
        target = session.target
        return TransformersLane(
            ensure_model(model),
            dtype=target.dtype,
            device=target.device,
            stop_token_ids=target.stop_token_ids,
            call=session.engine.call,
        )
    drafter = "none" if name == _PLAIN else name.removesuffix(_ALL)
    if drafter not in session.info.drafters:
        raise ParameterError(
            f"The lane {name} needs a drafter for {session.info.model}, and none is here. Name one with --draft-model, "
            "or leave the lane out: --lanes plain,transformers_generate."
        )
    note = session.info.drafters[drafter]
    if drafter == "none":
        schedule = PLAIN_SCHEDULE
    elif name != drafter:
        schedule, note = replace(schedule, stop_early=False), f"{note} It drafts beyond the cut.".strip()
    return EngineLane(name, session.engine, drafter, schedule, note)


def _text(report: dict[str, Any], names: list[str]) -> str:
    from dspark_core.bench.report import table

    machine, settings = report["machine"], report["settings"]
    lanes = {name: report[name] for name in names}
    lines = [
        f"{settings['model']} in {machine['dtype']} on {machine['device']}, torch {machine['torch']}, "
        f"load average at the start {machine['load_average_at_start']}",
        f"prompts {settings['prompts']}, up to {settings['max_new_tokens']} tokens each, temperature "
        f"{settings['temperature']}, policy {settings['policy']}, L {settings['l_min']} to {settings['l_max']}, "
        f"threshold {settings['threshold']}, γ = {settings['num_draft_tokens']}",
        "",
        table(lanes),
    ]
    if len(report["by_set"]) > 1:
        for kind, of_kind in report["by_set"].items():
            lines += ["", f"only {kind}:", table(of_kind)]
    lines += ["", *(f"{name}: {lane['note']}" for name, lane in lanes.items() if lane["note"]), ""]
    return "\n".join(lines)
