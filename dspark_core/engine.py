"""The engine: one background loop that steps every running answer, and streams of events to whoever asked."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from types import TracebackType

import torch

from dspark_core.answer import Answer, Ending
from dspark_core.decode_loop import FULL_BATCH, DecodeLoop, failed
from dspark_core.errors import ResourceError
from dspark_core.events import Event, Finished
from dspark_core.params import GenerationRequest, ScheduleParams
from dspark_core.scheduling.load import LoadSensor

_LOG = logging.getLogger(__name__)
MAX_ACTIVE = FULL_BATCH


class Generation:
    """One request's stream of events, to iterate over; safe to steer from other threads.

    The engine never waits for the reader: events queue up until they are read. Leaving the ``with`` block, or
    `cancel`, frees the request's memory within one round.
    """

    def __init__(self, answer: Answer, loop: DecodeLoop) -> None:
        self.request = answer.request
        self._answer = answer
        self._loop = loop
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._exhausted = False
        self._started = False  # the prompt is read and `Prefilled` sent

    def update_schedule(self, schedule: ScheduleParams) -> None:
        """Bounds, threshold and policy of the rounds that have not begun. Raises ParameterError as `submit` does."""
        self._loop.check_schedule(schedule, self._answer.drafter)
        self._answer.schedule = schedule

    def cancel(self) -> None:
        """End the answer before its next round, with what it has (``finish_reason`` "cancelled")."""
        self._cancelled.set()

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
    """Runs generations side by side: first come, first served for prompts, all answers in one pass a round.

    Args:
        loop: the decode loop over a target and its drafters.
        max_active: more requests at once are refused.
    """

    def __init__(self, loop: DecodeLoop, max_active: int = MAX_ACTIVE) -> None:
        self._loop = loop
        self._max_active = max_active
        self._wake = threading.Condition()
        self._active: list[Generation] = []  # in order of arrival
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="dspark-engine", daemon=True)
        self._thread.start()

    @property
    def load_sensor(self) -> LoadSensor:
        """Where rounds get their load samples."""
        return self._loop.load_sensor

    @property
    def num_active(self) -> int:
        """Requests running or waiting for their prompt to be read."""
        with self._wake:
            return len(self._active)

    def check(self, request: GenerationRequest) -> None:
        """Raise ParameterError if `submit` would refuse what the request asks for."""
        self._loop.check(request)

    def submit(self, request: GenerationRequest) -> Generation:
        """Start a generation.

        Raises:
            ParameterError: the request cannot be honoured exactly (see `DecodeLoop.open`).
            ResourceError: too many requests, memory short, or the engine is closed.
        """
        with self._wake:
            if self._closing:
                raise ResourceError("The engine is closed. Open a new session.")
            if len(self._active) >= self._max_active:
                raise ResourceError(
                    f"{len(self._active)} answers are running, which is all this engine takes at once. "
                    "Try again in a moment."
                )
            generation = Generation(self._loop.open(request), self._loop)
            self._active.append(generation)
            self._wake.notify()
            return generation

    def close(self) -> None:
        """End everything that runs, stop the loop; safe to repeat."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    @torch.inference_mode()
    def _serve(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._active or self._closing)
                if self._closing:
                    for generation in self._active:
                        generation.cancel()
                running = list(self._active)
            if not running:
                return
            self._turn(running)

    def _turn(self, running: list[Generation]) -> None:
        """Drop the cancelled, read a piece of one waiting prompt, then one round of all the others."""
        for generation in running:
            if generation._cancelled.is_set():
                self._end(generation, Ending("cancelled", "stopped by request"))
        live = [generation for generation in running if not generation._cancelled.is_set()]
        waiting = [generation for generation in live if generation._answer.unread_prompt or not generation._started]
        if waiting:
            self._prefill(waiting[0])
        decoding = [generation for generation in live if generation not in waiting]
        if decoding:
            self._round(decoding)

    def _prefill(self, generation: Generation) -> None:
        try:
            event = self._loop.prefill_chunk(generation._answer)
        except Exception as error:  # the engine serves others: it must outlive any one request's failure
            self._fail([generation], error)
            return
        if event is not None:
            generation._started = True
            generation._events.put(event)

    def _round(self, generations: list[Generation]) -> None:
        try:
            rounds = self._loop.step([generation._answer for generation in generations])
        except Exception as error:  # as above
            self._fail(generations, error)
            return
        for generation, event in zip(generations, rounds, strict=True):
            if event is None:
                self._fail([generation], generation._answer.failure or RuntimeError("no reason is known"))
                continue
            generation._events.put(event)
            if generation._answer.ending is not None:
                self._end(generation, generation._answer.ending)

    def _fail(self, generations: list[Generation], error: Exception) -> None:
        _LOG.error("A round failed; its answers end with an error, the engine goes on.", exc_info=error)
        for generation in generations:
            self._leave(generation, failed(generation._answer, error))

    def _end(self, generation: Generation, ending: Ending) -> None:
        self._leave(generation, generation._answer.finish(ending))

    def _leave(self, generation: Generation, finished: Finished) -> None:
        with self._wake:
            self._active.remove(generation)
        generation._events.put(finished)
