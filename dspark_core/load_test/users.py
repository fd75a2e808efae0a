"""N virtual users, each of whom asks the next question as soon as the last answer has ended (a closed loop).

Their first answers have 1/N, 2/N, … of the length, so that they do not all end, and all wait for a prefill, at once.
These serve to get going; then the questions of the list count. Until the last of these is answered, users who find
the list empty go on from its beginning: so that the others are never alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from dspark_core.bench.paired import NUM_SEEDS, Case
from dspark_core.engine import Engine, Generation
from dspark_core.errors import DSparkError
from dspark_core.events import DecodeRound, Finished
from dspark_core.load_test.lane import Lane
from dspark_core.load_test.trace import AnswerTrace, CellTrace, Commit
from dspark_core.params import GenerationRequest, SamplingParams


class Users:
    """One method with N users, once.

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
        self._changed = threading.Condition()  # guards all below
        self._next = 0
        self._served: set[int] = set()
        self._counted = 0
        self._start_s = self._end_s = 0.0
        self._running: dict[int, Generation] = {}
        self._stopping = False
        self._error: BaseException | None = None
        self._traces: list[AnswerTrace] = []

    def run(self) -> CellTrace:
        """Answer. When it returns or raises, nothing runs any more.

        Raises:
            DSparkError: an answer failed, or was refused.
            KeyboardInterrupt: as it came.
        """
        threads = [threading.Thread(target=self._live, args=(user,), daemon=True) for user in range(self._users)]
        try:
            for thread in threads:
                thread.start()
            self._wait()
        finally:
            self._stop()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self._error is not None:
            raise self._error
        return CellTrace(self._users, self._start_s, self._end_s, tuple(self._traces), self._answers)

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._error or len(self._served) == self._users)
            self._changed.wait_for(lambda: self._error or self._counted == self._answers, timeout=self._seconds)
            if self._seconds is not None:
                self._end_s = time.perf_counter()

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            for generation in self._running.values():
                generation.cancel()

    def _live(self, user: int) -> None:
        """One user, from the first question until the test stops."""
        try:
            self._ask(user, -1 - user, max(1, user * self._sampling.max_new_tokens // self._users))
            while (index := self._take()) is not None:
                self._ask(user, index, self._sampling.max_new_tokens)
        except BaseException as error:  # whatever it is, the test must end with it instead of waiting for ever
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            if self._stopping:
                return None
            self._next += 1
            return self._next - 1

    def _ask(self, user: int, index: int, max_new_tokens: int) -> None:
        case = self._cases[index % len(self._cases)]
        seed = ((self._sampling.seed or 0) + index) % NUM_SEEDS
        sampling = replace(self._sampling, seed=seed, max_new_tokens=max_new_tokens)
        submitted_s = time.perf_counter()
        request = GenerationRequest(case.prompt_ids, sampling, self._lane.schedule, self._lane.drafter)
        with self._engine.submit(request) as generation:
            self._begin(user, generation)
            commits, ended_s = self._follow(user, generation)
        self._note(AnswerTrace(index, case.kind, submitted_s, tuple(commits), ended_s))

    def _begin(self, user: int, generation: Generation) -> None:
        with self._changed:
            self._running[user] = generation
            if self._stopping:
                generation.cancel()

    def _follow(self, user: int, generation: Generation) -> tuple[list[Commit], float | None]:
        commits: list[Commit] = []
        for event in generation:
            now = time.perf_counter()
            if isinstance(event, DecodeRound):
                commits.append(_commit(event, now))
                if user not in self._served:
                    self._is_served(user, now)
            if isinstance(event, Finished):
                if event.finish_reason == "error":
                    raise DSparkError(f"The lane {self._lane.name} failed with {self._users} users: {event.detail}.")
                return commits, None if event.finish_reason == "cancelled" else now
        raise DSparkError(f"The lane {self._lane.name} failed with {self._users} users: an answer has no end.")

    def _is_served(self, user: int, now: float) -> None:
        with self._changed:
            self._served.add(user)
            self._start_s = max(self._start_s, now)  # threads may come here in another order than they read the clock
            if len(self._served) == self._users:
                self._changed.notify_all()

    def _note(self, trace: AnswerTrace) -> None:
        with self._changed:
            self._traces.append(trace)
            if trace.ended_s is None or self._answers is None or not 0 <= trace.index < self._answers:
                return
            self._counted += 1
            self._end_s = max(self._end_s, trace.ended_s)
            if self._counted == self._answers:
                self._changed.notify_all()


def _commit(event: DecodeRound, at_s: float) -> Commit:
    timings = event.timings
    return Commit(
        at_s,
        len(event.committed),
        event.verify_len,
        event.num_accepted,
        timings.draft_s,
        timings.schedule_s,
        timings.total_s,
    )
