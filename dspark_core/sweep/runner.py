"""Runs a sweep: one answer at a time, through an open session's engine; may be stopped at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dspark_core.bench.paired import NUM_SEEDS, WARM_UP_TOKENS
from dspark_core.bench.run import PLAIN_SCHEDULE, Run
from dspark_core.errors import DSparkError, ParameterError, ResourceError
from dspark_core.events import Event, Finished, Prefilled
from dspark_core.load_test.time_left import TimeLeft
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.ports import Generation, Session
from dspark_core.sweep.grid import Grid
from dspark_core.sweep.plan import Settings, Step, steps
from dspark_core.sweep.results import Measured, Results
from dspark_core.telemetry import fold

_POLL_S = 0.2
_PATIENCE_S = 20.0  # a step waits so long for other answers to end; then it runs beside them, and says so
_SEEDS_APART = 1_000_003  # from one repeat's first seed to the next one's: more than a repeat has prompts


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a sweep stands.

    Attributes:
        done, total: answers.
        left_s: seconds still to come, from what each setting took so far; None before the first answer.
        now: what is being done.
        waits: whether it waits for other answers on the engine to end.
    """

    done: int
    total: int
    left_s: float | None
    now: str
    waits: bool = False


class Stopped(Exception):  # noqa: N818 - no error: somebody asked for it
    """The sweep was stopped; what was measured stays."""


class Sweep:
    """One sweep over an open session.

    Args:
        session: where it runs.
        grid: the settings.
        settings: prompts, tokens, repeats, seed.
        patience_s: how long a step lets other answers go first.

    Attributes:
        results: what was measured so far.
        stopped: whether it was stopped before its end.
        failure: why it ended early, or ''.

    Raises:
        ParameterError: a prompt or the number of tokens is refused.
    """

    def __init__(self, session: Session, grid: Grid, settings: Settings, *, patience_s: float = _PATIENCE_S) -> None:
        self.grid = grid
        self.settings = settings
        self.results = Results(grid.points)
        self.stopped = False
        self.failure = ""
        self._session = session
        self._patience_s = patience_s
        self._stop = threading.Event()
        for prompt in range(len(settings.prompts)):  # refused now rather than after an hour
            self._request(Step(None, 0.0, prompt, 0, 0))

    @property
    def partial(self) -> bool:
        """Whether something that was asked for is missing."""
        return self.stopped or bool(self.failure) or bool(self.results.failures)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def pause(self, seconds: float) -> None:
        """Wait so long, or until `stop`."""
        self._stop.wait(seconds)

    def stop(self) -> None:
        """End it after the round in progress; safe from any thread."""
        self._stop.set()

    def run(self) -> Iterator[Progress]:
        """Measure; yields before each answer and at the end. Whatever ends it, ``results`` has what is done."""
        todo = steps(self.grid.points, self.settings)
        left = TimeLeft([_part(step) for step in todo], lambda _: 1)
        try:
            yield from self._warm_up(len(todo))
            left.begin()
            for done, step in enumerate(todo):
                yield from self._wait(Progress(done, len(todo), left.seconds, self._words(step)))
                self._measure(step)
                left.done(_part(step))
            yield Progress(len(todo), len(todo), 0.0, "measured")
        except Stopped:
            self.stopped = True
        except DSparkError as error:
            self.failure = str(error)

    def _warm_up(self, total: int) -> Iterator[Progress]:
        """A short answer by each drafter and by plain decoding, left out of everything."""
        first: dict[str, ScheduleParams] = {"none": PLAIN_SCHEDULE}
        for point in self.grid.points:
            first.setdefault(point.drafter, point.schedule)
        tokens = min(WARM_UP_TOKENS, self.settings.max_new_tokens)
        for drafter, schedule in first.items():
            yield Progress(0, total, None, f"warm-up, left out: {drafter}")
            sampling = SamplingParams(max_new_tokens=tokens, seed=0)
            self._answer(self._asked(0, sampling, schedule, drafter))

    def _wait(self, progress: Progress) -> Iterator[Progress]:
        """Let other answers go first, for a while; visitors who chat should not wait for a sweep."""
        yield progress
        until = time.monotonic() + self._patience_s
        while self._session.engine.num_active and time.monotonic() < until:
            yield replace(progress, waits=True)
            if self._stop.wait(_POLL_S):
                raise Stopped

    def _measure(self, step: Step) -> None:
        if step.point in self.results.failures:
            return
        try:
            begun = time.monotonic()
            events, beside = self._answer(self._request(step))
        except DSparkError as error:
            if step.point is None:
                raise DSparkError(f"Plain decoding, which all is compared with, failed: {error}") from error
            self.results.fail(step.point, str(error))
            return
        finished = events[-1]
        token_ids = finished.token_ids if isinstance(finished, Finished) else ()
        run = Run(token_ids, fold(events), time.monotonic() - begun)
        gamma = next((event.num_draft_tokens for event in events if isinstance(event, Prefilled)), 0)
        self.results.add(Measured(step, run, gamma, beside))

    def _answer(self, request: GenerationRequest) -> tuple[list[Event], bool]:
        """All events of an answer, and whether others ran beside it. Raises Stopped, DSparkError."""
        if self._stop.is_set():
            raise Stopped
        generation = self._submit(request)
        events: list[Event] = []
        beside = False
        try:
            while not events or not isinstance(events[-1], Finished):
                event = generation.next_event(_POLL_S)
                if self._stop.is_set():
                    raise Stopped
                if event is not None:
                    events.append(event)
                beside = beside or self._session.engine.num_active > 1
        finally:
            generation.cancel()
        last = events[-1]
        if isinstance(last, Finished) and last.finish_reason in ("error", "cancelled"):
            raise DSparkError(f"The answer was not finished: {last.detail}")
        return events, beside

    def _submit(self, request: GenerationRequest) -> Generation:
        """Into the engine, as soon as its line has a place. Raises Stopped; ResourceError after a while."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._session.engine.submit(request)
            except ResourceError:
                if time.monotonic() > until:
                    raise
            if self._stop.wait(_POLL_S):
                raise Stopped

    def _request(self, step: Step) -> GenerationRequest:
        seed = (self.settings.seed + step.repeat * _SEEDS_APART + step.prompt) % NUM_SEEDS
        sampling = SamplingParams(temperature=step.temperature, max_new_tokens=self.settings.max_new_tokens, seed=seed)
        if step.point is None:
            return self._asked(step.prompt, sampling, PLAIN_SCHEDULE, "none")
        point = self.grid.points[step.point]
        return self._asked(step.prompt, sampling, point.schedule, point.drafter)

    def _asked(
        self, prompt: int, sampling: SamplingParams, schedule: ScheduleParams, drafter: str
    ) -> GenerationRequest:
        messages = [{"role": "user", "content": self.settings.prompts[prompt].text}]
        try:
            return self._session.request(messages, sampling, schedule, drafter)
        except ParameterError as error:
            raise ParameterError(f"Prompt {prompt + 1}: {error}") from error

    def _words(self, step: Step) -> str:
        who = "plain decoding" if step.point is None else str(self.grid.points[step.point])
        return f"{who}; prompt {step.prompt + 1}, repeat {step.repeat + 1}"


def _part(step: Step) -> tuple[int, str]:
    return (1, f"plain {step.temperature}" if step.point is None else str(step.point))
