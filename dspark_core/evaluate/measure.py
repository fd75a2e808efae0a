"""Real decoding of prompt sets by drafters. What is finished stays, whatever happens to the rest."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from dspark_core.bench.lanes import whole_answer
from dspark_core.bench.paired import NUM_SEEDS, WARM_UP_TOKENS, rotated
from dspark_core.bench.prompts import Prompt
from dspark_core.errors import DSparkError
from dspark_core.evaluate.confidence import ConfidenceRounds, all_of, confidence_rounds
from dspark_core.params import SamplingParams, ScheduleParams
from dspark_core.storage import Progress
from dspark_core.telemetry import Summary, fold, merge

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
        baseline: the drafter that the others are compared with, prompt by prompt; None: no comparison.
        at_once: prompts that are answered side by side, in shared passes: the same law, in less time.
    """

    prompts: Mapping[str, Sequence[Prompt]]
    drafters: Sequence[str]
    laws: Sequence[SamplingParams]
    schedule: ScheduleParams
    baseline: str | None = None
    at_once: int = 1


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt's answer by one drafter, or one turn of it.

    Attributes:
        summary: its figures.
        confidence: its rounds as the confidences saw them; None where the drafts had no confidence.
    """

    summary: Summary
    confidence: ConfidenceRounds | None


@dataclass(slots=True)
class Measured:
    """What came of a job.

    Attributes:
        outcomes: for each cell its finished prompts by their number in the set (from 1), all turns of one together.
        failures: the prompts that did not finish.
        partial: whether the job was interrupted.
    """

    outcomes: dict[Cell, dict[int, Outcome]] = field(default_factory=lambda: defaultdict(dict))
    failures: list[Failure] = field(default_factory=list)
    partial: bool = False


def measure(session: Session, job: Job, progress: Progress) -> Measured:
    """Every drafter answers every prompt at every temperature, ``job.at_once`` answers at a time, after a warm-up.

    The warm-up is left out. The drafter that goes first changes from prompt to prompt, as in ``bench``. Ctrl-C ends the
    job with what is done; answers that are under way are finished first.

    Raises:
        KeyboardInterrupt: interrupted before the first prompt was done with.
    """
    measured = Measured()
    try:
        _warm_up(session, job, progress)
        _take_all(session, job, measured, progress)
    except KeyboardInterrupt:
        if not measured.outcomes and not measured.failures:
            raise
        measured.partial = True
    return measured


def _take_all(session: Session, job: Job, measured: Measured, progress: Progress) -> None:
    steps = list(_steps(job))
    with ThreadPoolExecutor(job.at_once) as pool:
        answers = [pool.submit(_taken, session, job, step) for step in steps]
        left = deque(zip(steps, answers, strict=True))
        try:
            for step in _told(steps, progress):
                _keep(step, left[0][1].result(), measured)
                left.popleft()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            for step, answer in left:
                if answer.done() and not answer.cancelled() and answer.exception() is None:
                    _keep(step, answer.result(), measured)
            raise


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


def _taken(session: Session, job: Job, step: _Step) -> Outcome | Failure:
    turns: list[Outcome] = []
    try:
        turns.extend(_converse(session, job.schedule, step.cell.drafter, step.prompt, step.sampling))
    except DSparkError as error:
        return Failure(*step.cell, step.number, len(turns) + 1, str(error))
    return Outcome(merge(turn.summary for turn in turns), all_of(turn.confidence for turn in turns))


def _keep(step: _Step, taken: Outcome | Failure, measured: Measured) -> None:
    if isinstance(taken, Failure):
        measured.failures.append(taken)
    else:
        measured.outcomes[step.cell][step.number] = taken


def _converse(
    session: Session, schedule: ScheduleParams, drafter: str, prompt: Prompt, sampling: SamplingParams
) -> Iterator[Outcome]:
    """Ask turn after turn, each with the answers before it; what came of each. Raises DSparkError."""
    messages: list[dict[str, str]] = []
    for index, turn in enumerate(prompt.turns):
        messages.append({"role": "user", "content": turn})
        seeded = replace(sampling, seed=((sampling.seed or 0) + index) % NUM_SEEDS)
        request = session.request(messages, seeded, schedule, drafter)
        events, finished = whole_answer(session.engine, request, f"The drafter {drafter}")
        messages.append({"role": "assistant", "content": finished.text})
        yield Outcome(fold(events), confidence_rounds(events))
