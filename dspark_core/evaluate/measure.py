"""Real decoding of prompt sets by drafters. What is finished stays, whatever happens to the rest."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from dspark_core.bench.lanes import EngineLane
from dspark_core.bench.paired import NUM_SEEDS, WARM_UP_TOKENS, rotated
from dspark_core.bench.prompts import Prompt
from dspark_core.errors import DSparkError
from dspark_core.params import SamplingParams, ScheduleParams
from dspark_core.storage import Progress
from dspark_core.telemetry import Summary, merge

if TYPE_CHECKING:
    from dspark_core.loading import Session


class Cell(NamedTuple):
    """One line of the report: a drafter on a prompt set at a temperature."""

    drafter: str
    kind: str
    temperature: float


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured.

    Attributes:
        prompts: by set, in order; none of the sets is empty.
        drafters: names in the session.
        laws: one sampling per temperature; their ``seed`` is that of each set's first turn.
        schedule: what is verified, the same for every drafter.
    """

    prompts: Mapping[str, Sequence[Prompt]]
    drafters: Sequence[str]
    laws: Sequence[SamplingParams]
    schedule: ScheduleParams


@dataclass(frozen=True, slots=True)
class Failure:
    """A prompt that was refused or whose answer failed: no figure holds any of it.

    Attributes:
        drafter, kind, temperature: where.
        number: which prompt of the set, from 1.
        turn: which of its turns, from 1.
        reason: what the engine said.
    """

    drafter: str
    kind: str
    temperature: float
    number: int
    turn: int
    reason: str


@dataclass(slots=True)
class Measured:
    """What came of a job.

    Attributes:
        summaries: for each cell the figures of its finished prompts, one `Summary` a prompt, all turns together.
        failures: the prompts that did not finish.
        partial: whether the job was interrupted.
    """

    summaries: dict[Cell, list[Summary]] = field(default_factory=lambda: defaultdict(list))
    failures: list[Failure] = field(default_factory=list)
    partial: bool = False


def measure(session: Session, job: Job, progress: Progress) -> Measured:
    """Every drafter answers every prompt at every temperature, one answer at a time, after a warm-up left out.

    The drafter that goes first changes from prompt to prompt, as in ``bench``. Ctrl-C ends the job with what is done.

    Raises:
        KeyboardInterrupt: interrupted before the first prompt was done with.
    """
    measured = Measured()
    try:
        _warm_up(session, job, progress)
        for step in _told(list(_steps(job)), progress):
            _take(session, job, step, measured)
    except KeyboardInterrupt:
        if not measured.summaries and not measured.failures:
            raise
        measured.partial = True
    return measured


@dataclass(frozen=True, slots=True)
class _Step:
    """One prompt for one drafter. ``sampling`` has the seed of the first turn; each further turn has the next one."""

    cell: Cell
    number: int
    of: int
    prompt: Prompt
    sampling: SamplingParams


def _steps(job: Job) -> Iterator[_Step]:
    for law in job.laws:
        for kind, prompts in job.prompts.items():
            seed = law.seed or 0
            for index, prompt in enumerate(prompts):
                seeded = replace(law, seed=seed % NUM_SEEDS)
                for drafter in rotated(job.drafters, index):
                    cell = Cell(drafter, kind, law.temperature)
                    yield _Step(cell, index + 1, len(prompts), prompt, seeded)
                seed += len(prompt.turns)


def _told(steps: Sequence[_Step], progress: Progress) -> Iterator[_Step]:
    """The steps, with the time left at the speed so far."""
    start = time.monotonic()
    for done, step in enumerate(steps):
        left = (time.monotonic() - start) * (len(steps) - done) / done if done else None
        cell = step.cell
        stage = f"T={cell.temperature:g} {cell.kind} {step.number}/{step.of}{_shown(left)}: {cell.drafter}"
        progress(stage, done / len(steps))
        yield step
    progress("measured", 1.0)


def _shown(left_s: float | None) -> str:
    if left_s is None:
        return ""
    return f", {left_s / 60:.0f} min left" if left_s >= 90 else f", {left_s:.0f} s left"


def _warm_up(session: Session, job: Job, progress: Progress) -> None:
    first = next(_steps(job))
    prompt = replace(first.prompt, turns=first.prompt.turns[:1])
    short = replace(first.sampling, max_new_tokens=min(WARM_UP_TOKENS, first.sampling.max_new_tokens))
    for drafter in job.drafters:
        progress(f"warm-up (left out): {drafter}", 0.0)
        with suppress(DSparkError):  # it fails again, and is then named, when the prompt's turn comes
            list(_converse(session, job.schedule, drafter, prompt, short))


def _take(session: Session, job: Job, step: _Step, measured: Measured) -> None:
    turns: list[Summary] = []
    try:
        turns.extend(_converse(session, job.schedule, step.cell.drafter, step.prompt, step.sampling))
    except DSparkError as error:
        measured.failures.append(Failure(*step.cell, step.number, len(turns) + 1, str(error)))
    else:
        measured.summaries[step.cell].append(merge(turns))


def _converse(
    session: Session, schedule: ScheduleParams, drafter: str, prompt: Prompt, sampling: SamplingParams
) -> Iterator[Summary]:
    """Ask turn after turn, each with the answers before it; the figures of each turn. Raises DSparkError."""
    lane = EngineLane(drafter, session.engine, drafter, schedule)
    messages: list[dict[str, str]] = []
    for index, turn in enumerate(prompt.turns):
        messages.append({"role": "user", "content": turn})
        request = session.request(messages, sampling, schedule, drafter)
        seeded = replace(sampling, seed=((sampling.seed or 0) + index) % NUM_SEEDS)
        run = lane.run(request.prompt_ids, seeded)
        messages.append({"role": "assistant", "content": run.text})
        yield run.summary
