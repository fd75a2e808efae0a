"""The engine: one background loop that steps every running answer, and streams of events to whoever asked."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

import torch

from dspark_core.admission import Limits, Line
from dspark_core.answer import Answer, Ending, failed, unanswered
from dspark_core.apart import settle
from dspark_core.decode_loop import DecodeLoop
from dspark_core.errors import ParameterError, ResourceError, shown
from dspark_core.events import Event, Finished, LoadSample, Waiting
from dspark_core.pace import Held, Pace
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.scheduling.load import LoadSensor

_LOG = logging.getLogger(__name__)

_HELD_LOOK_S = 0.5  # how long nobody looks, at most, while all that runs is held

Listener = Callable[[Event], None]
Result = TypeVar("Result")


class Generation:
    """One request's stream of events, to iterate over; safe to steer from other threads.

    The engine never waits for the reader: events queue up until they are read. Leaving the ``with`` block, or
    `cancel`, frees the request's place and memory within one round.

    Attributes:
        request: what is asked for now: `update_schedule`, `update_drafter` and `update_sampling` replace it.
        tokens: prompt and answer at most, which is what is held for it while it runs.
    """

    def __init__(
        self,
        request: GenerationRequest,
        loop: DecodeLoop,
        submitted_at: float,
        pace: Pace,
        listener: Listener | None = None,
    ) -> None:
        self.request = request
        self.tokens = loop.capacity_for(request)
        self._max_new_tokens = (
            request.sampling.max_new_tokens
        )  # what `tokens` has room for, whatever is asked for later
        self._loop = loop
        self._submitted_at = submitted_at
        self._pace = pace
        self._answer: Answer | None = None  # while it waits there is nothing: no slot, no drafter state
        self._reads_from = 0  # the engine's turn in which it began to read its prompt, or the text for a new drafter
        self._ahead: int | None = None  # as told last
        self._steering = threading.Lock()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._tell = listener or self._events.put
        self._cancelled = threading.Event()
        self._exhausted = listener is not None

    def update_schedule(self, schedule: ScheduleParams) -> None:
        """Bounds, threshold and policy of the rounds that have not begun. Raises ParameterError as `submit` does."""
        with self._steering:
            self._loop.check_schedule(schedule, self._loop.drafter_named(self.request.drafter))
            self.request = replace(self.request, schedule=schedule)

    def update_drafter(self, name: str) -> None:
        """Another drafter for the rounds that have not begun. It first reads the text so far, in chunks like a prompt;
        `DrafterChanged` then tells that it drafts. Raises ParameterError as `submit` does.
        """
        with self._steering:
            self._loop.check_schedule(self.request.schedule, self._loop.drafter_named(name))
            self.request = replace(self.request, drafter=name)

    def update_sampling(self, sampling: SamplingParams) -> None:
        """Temperature, cuts, penalties, bias and token limit of the rounds that have not begun.

        From then on the text follows the new law given what it has. A limit that is reached already ends the answer
        with what it has. Raises ParameterError as `submit` does, and for a change of what cannot change: the seed,
        which the text so far was drawn with, stop strings, which it was searched for, and a limit beyond the one that
        memory was set aside for.
        """
        with self._steering:
            now = self.request.sampling
            for name in ("seed", "stop"):
                if getattr(sampling, name) != getattr(now, name):
                    old, new = shown(getattr(now, name)), shown(getattr(sampling, name))
                    raise ParameterError(
                        f"{name} cannot change from {old} to {new} while an answer runs. Leave it, or submit a "
                        "new request."
                    )
            if sampling.max_new_tokens > self._max_new_tokens:
                raise ParameterError(
                    f"max_new_tokens is {sampling.max_new_tokens}, and memory was set aside for "
                    f"{self._max_new_tokens} when the request was submitted. Ask for at most so many, or submit a new "
                    "request."
                )
            request = replace(self.request, sampling=sampling)
            self._loop.check(request)
            self.request = request

    @property
    def _opening(self) -> GenerationRequest:
        """The request to open a slot for: as large as was submitted, so that the token limit may still rise to that."""
        request = self.request
        return replace(request, sampling=replace(request.sampling, max_new_tokens=self._max_new_tokens))

    def _hear(self, event: Event) -> None:
        """Give the event to whoever listens; a listener that fails ends its own generation and nothing else."""
        try:
            self._tell(event)
        except Exception as error:
            _LOG.error("A listener failed; its generation is cancelled.", exc_info=error)
            self.cancel()

    @property
    def held(self) -> Held:
        """Whether it is paused or slowed down, and why the engine itself has let it go on."""
        return self._pace.held

    def pause(self) -> None:
        """Take part in no further round until `resume` or `step`; it keeps its place and its memory.

        Its text is what it would have been without. The time does not count as the answer's. Nobody is held up: while
        others wait for a place or for memory, and after `Limits.max_held_s`, it goes on at full speed, and `held` says
        why. Raises ResourceError once it has been held for so long.
        """
        self._pace.set(0.0)

    def resume(self, rounds_per_s: float | None = None) -> None:
        """Go on, at full speed or at ``rounds_per_s`` at most (which is held as `pause` is). Raises ParameterError."""
        self._pace.set(rounds_per_s)

    def step(self) -> None:
        """One round more, then be paused. Raises ResourceError as `pause`."""
        self._pace.step()

    def cancel(self) -> None:
        """End it before its next round, with what it has (``finish_reason`` "cancelled")."""
        self._cancelled.set()
        self._pace.look()

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event, or None after ``timeout_s`` seconds without one. StopIteration after `Finished`."""
        if self._exhausted:
            raise StopIteration
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self._exhausted = isinstance(event, Finished)
        return event

    def __iter__(self) -> Iterator[Event]:
        while not self._exhausted:
            event = self.next_event()
            if event is not None:
                yield event

    def __enter__(self) -> Generation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


class Engine:
    """Runs generations side by side: first come, first served, all answers in one pass a round.

    Prompts are read in chunks, a chunk between two rounds of the others, so that a long one holds up nobody; short ones
    share a chunk.

    Args:
        loop: the decode loop over a target and its drafters.
        limits: how many answers and tokens run at once; further requests wait in a line, or are refused.
        clock: seconds that only ever rise.
    """

    def __init__(
        self, loop: DecodeLoop, limits: Limits | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits or Limits()
        self._loop = loop
        self._clock = clock
        self._wake = threading.Condition()
        self._line: Line[Generation] = Line(self.limits, loop.target.max_context)
        self._closing = False
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._nudges = 0  # reasons to look again while all that runs is held
        self._turns = 0
        self._thread = threading.Thread(target=self._serve, name="dspark-engine", daemon=True)
        self._thread.start()

    @property
    def load_sensor(self) -> LoadSensor:
        """Where rounds get their load samples."""
        return self._loop.load_sensor

    @property
    def max_tokens(self) -> int:
        """Tokens of all requests that run side by side at most, each with its prompt and all that it may have."""
        return self._line.max_tokens

    @property
    def num_active(self) -> int:
        """Requests that run or wait."""
        with self._wake:
            return len(self._line)

    def load(self) -> LoadSample:
        """How busy hardware and engine are now, at once."""
        with self._wake:
            running = len(self._line.running)
        return self._loop.load(running)

    def check(self, request: GenerationRequest) -> None:
        """Raise ParameterError if `submit` would refuse what the request asks for."""
        self._loop.check(request)

    def submit(self, request: GenerationRequest, listener: Listener | None = None) -> Generation:
        """Start a generation, or let it wait for its turn (`Waiting` events then tell its place in the line).

        Args:
            request: what to generate.
            listener: gets the events at the moment they happen, in the engine's own thread, which waits for it; so it
                must be quick, and not call the engine; if it raises, its generation is cancelled. The generation then
                has none to iterate over.

        Raises:
            ParameterError: the request cannot be honoured exactly (see `DecodeLoop.open`).
            ResourceError: it is larger than all that this engine holds, too many wait, or the engine is closed.
        """
        self._loop.check(request)
        with self._wake:
            if self._closing:
                raise ResourceError("The engine is closed. Open a new session.")
            pace = Pace(self._clock, self.limits.max_held_s, self._nudge)
            generation = Generation(request, self._loop, self._clock(), pace, listener)
            self._line.join(generation)
            self._nudge()
            return generation

    def call(self, work: Callable[[], Result]) -> Result:
        """What ``work()`` returns or raises, called in the engine's own thread between two rounds, which wait for it.

        For torch's work beside the engine: see `dspark_core.apart` for what a second thread's costs. Work that is
        itself such a call's calls its own at once; a caller that is interrupted takes back work that has not begun.
        Raises ResourceError when the engine is closed.
        """
        if threading.current_thread() is self._thread:  # which would wait for itself
            return work()
        outcome: Future[Result] = Future()
        with self._wake:
            if self._closing:
                raise ResourceError("The engine is closed. Open a new session.")
            self._calls.append((work, outcome))
            self._nudge()
        try:
            return outcome.result()
        finally:
            outcome.cancel()  # without effect once it has begun

    def close(self) -> None:
        """End everything that runs and waits, stop the loop; safe to repeat."""
        with self._wake:
            self._closing = True
            self._nudge()
        self._thread.join()

    def _nudge(self) -> None:
        with self._wake:
            self._nudges += 1
            self._wake.notify()

    def _serve(self) -> None:
        try:
            self._serve_all()
        except BaseException as error:  # a reader must never wait for an engine that is gone
            _LOG.error("The engine has stopped.", exc_info=error)
            stopped = ResourceError("The engine has stopped after an error that it cannot go on from. Start again.")
            with self._wake:
                self._closing = True
                left = [*self._line.running, *self._line.waiting]
                calls = [self._calls.popleft() for _ in range(len(self._calls))]
            self._fail(left, stopped)
            for _, outcome in calls:
                if outcome.set_running_or_notify_cancel():
                    outcome.set_exception(stopped)

    @torch.inference_mode()
    def _serve_all(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: len(self._line) or self._calls or self._closing)
                calls = [self._calls.popleft() for _ in range(len(self._calls))]
                seen = self._nudges
                running, waiting = list(self._line.running), list(self._line.waiting)
                reason = self._line.reason
                if self._closing:
                    for generation in (*running, *waiting):
                        generation.cancel()
            for ahead, generation in enumerate(waiting):
                self._tell(generation, ahead, reason)
            for work, outcome in calls:
                settle(outcome, work)
            if not running and not waiting:
                if calls:
                    continue
                return
            if self._turn(running, waiting):
                self._rest(running, seen)

    def _rest(self, held: list[Generation], seen: int) -> None:
        """Wait until the first of those that are held is due, or somebody has wanted something since ``seen``."""
        due = min(generation._pace.due_in() for generation in held)
        with self._wake:
            self._wake.wait_for(lambda: self._nudges != seen, min(due, _HELD_LOOK_S))

    def _turn(self, running: list[Generation], waiting: list[Generation]) -> bool:
        """Drop the cancelled, open slots, read a piece of the prompts, then one round of all whose prompt is read.

        Returns:
            Whether nothing could be done because all that run are held.
        """
        for generation in (*waiting, *running):
            if generation._cancelled.is_set():
                self._end(generation, Ending("cancelled", "stopped by request"))
            elif generation in waiting and self._is_late(generation):
                self._fail([generation], self._too_late())
        self._turns += 1
        live = [generation for generation in running if not generation._cancelled.is_set()]
        opened, short = self._open(live)
        reading = [pair for pair in opened if not pair[1].ready]
        if reading:  # who began to read first; whoever changes its drafter over and over holds up itself alone
            self._prefill(sorted(reading, key=lambda pair: pair[0]._reads_from))
        crowded = bool(waiting) or short
        decoding = [pair for pair in opened if pair not in reading and pair[0]._pace.may_go(crowded=crowded)]
        if decoding:
            self._round(decoding)
        return not reading and not decoding and bool(opened) and len(opened) == len(running)

    def _open(self, live: list[Generation]) -> tuple[list[tuple[Generation, Answer]], bool]:
        """Those that have their slots, with their answers, which obey what was asked for last.

        Where memory is short for one, it and those after it wait until another has given its own back.

        Returns:
            These, and whether memory was short.
        """
        opened: list[tuple[Generation, Answer]] = []
        for generation in live:
            try:
                begins = generation._answer is None
                answer = generation._answer = generation._answer or self._loop.open(generation._opening)
                if self._loop.steer(answer, generation.request) or begins:
                    generation._reads_from = self._turns
                if answer.ending is None:
                    opened.append((generation, answer))
                else:
                    self._end(generation, answer.ending)
            except Exception as error:  # the engine serves others: it must outlive any one request's failure
                if opened and self._may_wait_after(error, generation):
                    self._tell(generation, 0, "memory is short")
                    return opened, True
                self._fail([generation], error)
        return opened, False

    def _prefill(self, reading: list[tuple[Generation, Answer]]) -> None:
        try:
            with self._loop.busy:
                outcomes = self._loop.prefill([answer for _, answer in reading])
        except Exception as error:  # as above
            self._fail([generation for generation, _ in reading], error)
            return
        for (generation, _), outcome in zip(reading, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._fail([generation], outcome)
            elif outcome is not None:
                generation._hear(outcome)

    def _round(self, decoding: list[tuple[Generation, Answer]]) -> None:
        for generation, _ in decoding:
            generation._pace.went()
        try:
            with self._loop.busy:
                rounds = self._loop.step([answer for _, answer in decoding])
        except Exception as error:  # as above
            self._fail([generation for generation, _ in decoding], error)
            return
        for (generation, answer), event in zip(decoding, rounds, strict=True):
            if event is None:
                self._fail([generation], answer.failure or RuntimeError("no reason is known"))
                continue
            generation._hear(event)
            if answer.ending is not None:
                self._end(generation, answer.ending)

    def _fail(self, generations: Sequence[Generation], error: Exception) -> None:
        _LOG.error("A request failed; it ends with an error, the engine goes on.", exc_info=error)
        for generation in generations:
            self._end(generation, failed(error))

    def _end(self, generation: Generation, ending: Ending) -> None:
        answer = generation._answer
        try:
            finished = unanswered(ending) if answer is None else answer.finish(ending)
        except Exception as error:  # what it held may be lost, its place and its reader are not
            _LOG.error("A request could not be ended as it should; the engine goes on.", exc_info=error)
            finished = unanswered(failed(error))
        with self._wake:
            self._line.leave(generation)
            self._nudge()  # the places in the line are told anew
        generation._hear(finished)

    def _may_wait_after(self, error: Exception, generation: Generation) -> bool:
        """Whether the error may pass when others give their memory back: it is of that kind, and nothing has begun."""
        return isinstance(error, ResourceError) and generation._answer is None and not self._is_late(generation)

    def _is_late(self, generation: Generation) -> bool:
        return self._clock() - generation._submitted_at >= self.limits.max_wait_s

    def _too_late(self) -> ResourceError:
        return ResourceError(
            f"The request has waited for {self.limits.max_wait_s:g} s without its turn ({self._line.reason}). "
            "Try again later, or ask for fewer new tokens."
        )

    def _tell(self, generation: Generation, ahead: int, reason: str) -> None:
        if generation._ahead != ahead:
            generation._ahead = ahead
            generation._hear(Waiting(ahead, reason))
