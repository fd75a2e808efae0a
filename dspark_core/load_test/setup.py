"""From a load test's options to its job, and what is told of the machine and the settings."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dspark_core.bench.paired import Case
from dspark_core.bench.prompts import Prompt
from dspark_core.bench.report import measured_on
from dspark_core.errors import ParameterError, so_many
from dspark_core.fields import shown
from dspark_core.load_test.lane import Lane, default_lanes, lane_named
from dspark_core.load_test.race import Job
from dspark_core.load_test.report import lane_settings
from dspark_core.loading import Session
from dspark_core.options import sampling_from, schedule_from
from dspark_core.params import GenerationRequest, SamplingParams


def job_from(session: Session, options: argparse.Namespace, users: Sequence[int], prompts: Sequence[Prompt]) -> Job:
    """What is to be measured. Raises ParameterError for what this session cannot do, by name."""
    sampling = sampling_from(options)
    lanes = _lanes(session, options, sampling)
    cases = [
        Case(p.kind, session.request([{"role": "user", "content": p.text}], sampling, drafter="none").prompt_ids)
        for p in prompts
    ]
    longest = max(len(case.prompt_ids) for case in cases) + sampling.max_new_tokens
    _check_room(session, max(users), min(longest, session.info.max_context))
    return Job(lanes, cases, sampling, users, options.repeats, options.answers_per_user, options.seconds)


def _check_room(session: Session, users: int, tokens: int) -> None:
    """Refuse users who would only wait for each other: it would not be N at once that is measured."""
    answers, held = session.engine.limits.max_active, session.engine.max_tokens
    if users > answers:
        raise ParameterError(
            f"{users} users are asked for; this engine runs {so_many(answers, 'answer')} side by side, and more of "
            f"them would only wait for their turn. Ask for at most {answers}."
        )
    if users * tokens > held:
        raise ParameterError(
            f"{so_many(users, 'user')} with {tokens} tokens each (prompt and answer) are asked for; this engine holds "
            f"{held} side by side, and the others would only wait for their turn. Ask for fewer new tokens or fewer "
            "users."
        )


def _lanes(session: Session, options: argparse.Namespace, sampling: SamplingParams) -> list[Lane]:
    """The lanes asked for, all of which the engine takes."""
    drafter = session.default_drafter
    if options.lanes is None and drafter == "none":
        raise ParameterError(
            f"There is no drafter for {session.info.model} here, so there is nothing to compare. Name one with "
            "--draft-model, or measure plain decoding alone: --lanes plain."
        )
    asked = default_lanes(list(session.info.drafters)) if options.lanes is None else options.lanes.split(",")
    lanes = [lane_named(name.strip(), drafter, schedule_from(options)) for name in asked if name.strip()]
    if not lanes or len({lane.name for lane in lanes}) < len(lanes):
        raise ParameterError(
            f"lanes is {shown(options.lanes)}; it must name at least one lane, and none of them twice: plain,fixed."
        )
    for lane in lanes:
        try:
            session.engine.check(GenerationRequest((0,), sampling, lane.schedule, lane.drafter))
        except ParameterError as error:
            way_out = " Or add --profile, which measures it first." if "dspark_core profile" in str(error) else ""
            raise ParameterError(f"The lane {lane.name} cannot run. {error}{way_out}") from error
    return lanes


def setup(session: Session, options: argparse.Namespace, job: Job, command: str) -> dict[str, Any]:
    """What is measured, where and when: the report without its figures."""
    info = session.info
    return {
        **measured_on(info),
        "settings": {
            "command": command,
            "draft_model": options.draft_model,
            "drafter": session.default_drafter,
            "drafters": {lane.drafter: info.drafters[lane.drafter] for lane in job.lanes},
            "num_draft_tokens": session.drafters[session.default_drafter].num_draft_tokens,
            "step_curve": info.step_curve,
            "lanes": lane_settings(job.lanes),
            "users": list(job.users),
            "repeats": job.repeats,
            "answers": {str(users): job.answers(users) for users in job.users},
            "seconds": job.seconds,
            "temperature": job.sampling.temperature,
            "max_new_tokens": job.sampling.max_new_tokens,
            "seed": job.sampling.seed or 0,
            "prompts": dict(Counter(case.kind for case in job.cases)),
        },
    }
