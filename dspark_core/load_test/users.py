"""N virtual users, each of whom asks the next question as soon as the last answer has ended (a closed loop).

Their first answers have 1/N, 2/N, … of the length, so that they do not all end, and all wait for a prefill, at once.
These serve to get going; then the questions of the list count. Until the last of these is answered, users who find
the list empty go on from its beginning: so that the others are never alone.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from dataclasses import replace

from dspark_core.bench.paired import NUM_SEEDS, Case
from dspark_core.engine import Engine, Generation
from dspark_core.errors import DSparkError, so_many
from dspark_core.load_test.asked import Asked
from dspark_core.load_test.lane import Lane
from dspark_core.load_test.trace import AnswerTrace, CellTrace
from dspark_core.params import GenerationRequest, SamplingParams

_TICK_S = 0.1  # between two looks at the clock, and at Ctrl-C


class Users:
    """One method with N users, once.

    All of them live in the caller's thread, and the engine notes the times: so they take no time away from it.

    Args:
        engine: which nobody else uses meanwhile.
        lane: how the answers are made.
        cases: the questions; after the last comes the first again.
        sampling: the law; question i has the seed ``sampling.seed + i`` whoever asks it and by whatever method.
        users: N.
        answers: so many answers count; None takes all until ``seconds`` have passed.
        seconds: length of the window when ``answers`` is None, else None.
    """

    def __init__(
        self,
        engine: Engine,
        lane: Lane,
        cases: Sequence[Case],
        sampling: SamplingParams,
        *,
        users: int,
        answers: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self._engine = engine
        self._lane = lane
        self._cases = cases
        self._sampling = sampling
        self._users = users
        self._answers = answers
        self._seconds = seconds
        self._next = 0  # index of the next question
        self._starting: list[Asked] = []
        self._running: dict[Asked, Generation] = {}
        self._ended: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._traces: list[AnswerTrace] = []

    def run(self) -> CellTrace:
        """Answer. When it returns or raises, nothing runs any more.

        Raises:
            DSparkError: an answer failed, or was refused.
            KeyboardInterrupt: as it came.
        """
        try:
            for user in range(self._users):
                length = max(1, user * self._sampling.max_new_tokens // self._users)
                self._starting.append(self._ask(-1 - user, length))
            while (end_s := self._end_s()) is None:
                self._go_on()
        finally:
            self._stop()
        return CellTrace(self._users, self._start_s() or end_s, end_s, tuple(self._traces), self._answers)

    def _start_s(self) -> float | None:
        """When the last user had a first token; None while somebody has none."""
        firsts = [asked.commits[0].at_s for asked in self._starting if asked.commits]
        return max(firsts) if len(firsts) == self._users else None

    def _end_s(self) -> float | None:
        """When the window was over; None while it is not."""
        start_s = self._start_s()
        if self._seconds is not None:
            over = start_s is not None and time.perf_counter() >= start_s + self._seconds
            return start_s + self._seconds if over and start_s is not None else None
        ended = [
            trace.ended_s
            for trace in self._traces
            if trace.ended_s is not None and 0 <= trace.index < (self._answers or 0)
        ]
        return max(ended) if len(ended) == self._answers and start_s is not None else None

    def _ask(self, index: int, max_new_tokens: int) -> Asked:
        case = self._cases[index % len(self._cases)]
        seed = ((self._sampling.seed or 0) + index) % NUM_SEEDS
        sampling = replace(self._sampling, seed=seed, max_new_tokens=max_new_tokens)
        request = GenerationRequest(case.prompt_ids, sampling, self._lane.schedule, self._lane.drafter)
        asked = Asked(index, case.kind, self._ended)
        self._running[asked] = self._engine.submit(request, asked.hear)
        return asked

    def _go_on(self) -> None:
        """Whoever has an answer asks the next question."""
        try:
            asked = self._ended.get(timeout=_TICK_S)
        except queue.Empty:
            return
        self._leave(asked)
        if asked.failure:
            raise DSparkError(f"The lane {self._lane.name} failed with {so_many(self._users, 'user')}: {asked.failure}")
        if self._end_s() is None:
            self._ask(self._next, self._sampling.max_new_tokens)
            self._next += 1

    def _stop(self) -> None:
        for generation in self._running.values():
            generation.cancel()
        for asked in list(self._running):  # not by `_ended`: a Ctrl-C may have lost one that was taken out of it
            asked.over.wait()
            self._leave(asked)

    def _leave(self, asked: Asked) -> None:
        del self._running[asked]
        self._traces.append(asked.trace())
