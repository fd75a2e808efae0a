"""Virtual users who come and go while the engine runs: each asks the next question when the last answer has ended.

As in `users`, the first answer of each has a part of the length only, so that they do not all end at once. No torch
here.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from dspark_core.bench.paired import NUM_SEEDS, Case
from dspark_core.errors import DSparkError, so_many
from dspark_core.events import Event
from dspark_core.load_test.asked import Asked
from dspark_core.load_test.lane import Lane
from dspark_core.load_test.trace import AnswerTrace, CellTrace
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams

_LOG = logging.getLogger(__name__)
_TICK_S = 0.05
LIVE_S = 5.0  # what "now" means: the figures of the last so many seconds
LONGEST_S = 60.0  # of one window; then the next begins


class Steered(Protocol):
    """A running answer, as far as a crowd steers it."""

    def update_schedule(self, schedule: ScheduleParams) -> None:
        """Use ``schedule`` from the next round on."""

    def cancel(self) -> None:
        """End it before its next round."""


class Asks(Protocol):
    """What answers: an engine."""

    def submit(self, request: GenerationRequest, listener: Callable[[Event], None] | None = None) -> Steered:
        """Start an answer whose events go to ``listener``."""


@dataclass(slots=True)
class _Seat:
    """A user: the answer on its way, and whether it ever had a token."""

    asked: Asked
    generation: Steered
    served: bool = False


@dataclass(slots=True)
class _Window:
    """From when all users are served until their number changes."""

    start_s: float | None = None
    ended: list[AnswerTrace] = field(default_factory=list)


class Crowd:
    """Users on an engine; their number and schedule may change at any time, between two rounds.

    Its own thread asks the questions, the engine's thread notes the times; every method may be called from any thread.

    Args:
        engine: others may use it meanwhile.
        lane: how the answers are made.
        cases: the questions; after the last comes the first again.
        sampling: the law; question i has the seed ``sampling.seed + i``.
        users: how many.

    Attributes:
        failure: why it ended early, or ''.
    """

    def __init__(self, engine: Asks, lane: Lane, cases: Sequence[Case], sampling: SamplingParams, users: int) -> None:
        self.failure = ""
        self._engine = engine
        self._lane = lane
        self._cases = cases
        self._sampling = sampling
        self._wanted = users
        self._next = 0
        self._joined = 0
        self._seats: list[_Seat] = []
        self._leaving: set[Asked] = set()
        self._ended: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._window = _Window()
        self._closed: list[CellTrace] = []
        self._recent: deque[tuple[float, AnswerTrace]] = deque()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._begun_s = time.perf_counter()
        self._thread = threading.Thread(target=self._serve, name="dspark-crowd", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more."""
        return not self._thread.is_alive()

    @property
    def size(self) -> int:
        """Users who ask, and answers of those who left that have not ended yet."""
        with self._lock:
            return len(self._seats) + len(self._leaving)

    @property
    def waiting(self) -> int:
        """Answers that wait for a place in the engine, or for their first token."""
        with self._lock:
            return sum(seat.asked.waits or not seat.asked.commits for seat in self._seats)

    def resize(self, users: int) -> None:
        """So many users from the next round on: who leaves is cut off, who joins asks at once."""
        with self._lock:
            self._wanted = users

    def steer(self, schedule: ScheduleParams) -> None:
        """Another schedule from the next round on. Raises ParameterError as the engine does, then nothing changes."""
        with self._lock:
            if schedule == self._lane.schedule:
                return
            for seat in self._seats:
                seat.generation.update_schedule(schedule)
            self._lane = replace(self._lane, schedule=schedule)
            self._close()

    def stop(self) -> None:
        """Everybody leaves; returns when nothing runs any more, which takes a round. Safe to repeat."""
        self._stopping.set()
        with self._lock:
            for seat in self._seats:
                seat.generation.cancel()
        self._thread.join()

    def now(self) -> CellTrace:
        """The last `LIVE_S` seconds, whoever came or went meanwhile."""
        with self._lock:
            end_s = time.perf_counter()
            start_s = max(self._begun_s, end_s - LIVE_S)
            while self._recent and self._recent[0][0] < start_s:
                self._recent.popleft()
            answers = (*(trace for _, trace in self._recent), *self._on_their_way())
            return CellTrace(len(self._seats), start_s, end_s, answers)

    def measured(self) -> CellTrace | None:
        """From when all users of now were served until now; None as long as somebody is not."""
        with self._lock:
            return self._measured()

    def take_closed(self) -> list[CellTrace]:
        """What was measured until the number of users changed (or the longest time had passed), each once."""
        with self._lock:
            closed, self._closed = self._closed, []
            return closed

    def _serve(self) -> None:
        try:
            while not self._stopping.is_set():
                with self._lock:
                    self._fit()
                    self._settle()
                self._go_on()
        except DSparkError as error:
            self.failure = str(error)
        except Exception as error:
            _LOG.error("A crowd of virtual users failed.", exc_info=error)
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self._disband()

    def _fit(self) -> None:
        if len(self._seats) != self._wanted:
            self._close()
        while len(self._seats) > self._wanted:
            seat = self._seats.pop()
            self._leaving.add(seat.asked)
            seat.generation.cancel()
        while len(self._seats) < self._wanted:
            self._joined += 1
            length = max(1, len(self._seats) * self._sampling.max_new_tokens // self._wanted)
            self._seats.append(_Seat(*self._ask(-self._joined, length)))

    def _settle(self) -> None:
        """The window begins when everybody is served and who left is gone; it ends after the longest time."""
        now = time.perf_counter()
        if self._window.start_s is None:
            for seat in self._seats:
                seat.served = seat.served or bool(seat.asked.commits)
            if self._seats and not self._leaving and all(seat.served for seat in self._seats):
                self._window.start_s = now
        elif now - self._window.start_s >= LONGEST_S:
            self._close()
            self._window.start_s = now

    def _close(self) -> None:
        cell = self._measured()
        if cell is not None:
            self._closed.append(cell)
        self._window = _Window()

    def _measured(self) -> CellTrace | None:
        if self._window.start_s is None:
            return None
        answers = (*self._window.ended, *self._on_their_way())
        return CellTrace(len(self._seats), self._window.start_s, time.perf_counter(), answers)

    def _on_their_way(self) -> list[AnswerTrace]:
        return [seat.asked.trace() for seat in self._seats]

    def _ask(self, index: int, max_new_tokens: int) -> tuple[Asked, Steered]:
        case = self._cases[index % len(self._cases)]
        seed = ((self._sampling.seed or 0) + index) % NUM_SEEDS
        sampling = replace(self._sampling, seed=seed, max_new_tokens=max_new_tokens)
        request = GenerationRequest(case.prompt_ids, sampling, self._lane.schedule, self._lane.drafter)
        asked = Asked(index, case.kind, self._ended)
        return asked, self._engine.submit(request, asked.hear)

    def _go_on(self) -> None:
        """Whoever has an answer asks the next question."""
        try:
            asked = self._ended.get(timeout=_TICK_S)
        except queue.Empty:
            return
        with self._lock:
            trace = asked.trace()
            self._recent.append((time.perf_counter(), trace))
            if asked in self._leaving:
                self._leaving.discard(asked)
                return
            if asked.failure:
                raise DSparkError(f"An answer failed with {so_many(len(self._seats), 'user')}: {asked.failure}")
            self._window.ended.append(trace)
            seat = next(seat for seat in self._seats if seat.asked is asked)
            if len(self._seats) <= self._wanted and not self._stopping.is_set():
                seat.asked, seat.generation = self._ask(self._next, self._sampling.max_new_tokens)
                self._next += 1
            else:  # somebody is to leave anyway: let it be who has just ended
                self._close()
                self._seats.remove(seat)

    def _disband(self) -> None:
        with self._lock:
            self._close()
            seats, self._seats = self._seats, []
            leaving, self._leaving = set(self._leaving), set()
        for seat in seats:
            seat.generation.cancel()
        for asked in (*(seat.asked for seat in seats), *leaving):
            asked.over.wait()
