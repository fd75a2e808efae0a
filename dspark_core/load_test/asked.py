"""One question on its way: the engine's thread notes when its answer moved on. No torch here."""

from __future__ import annotations

import queue
import threading
import time

from dspark_core.events import DecodeRound, Event, Finished
from dspark_core.load_test.trace import AnswerTrace, Commit


class Asked:
    """A question on its way, filled by the engine's thread; when it has ended it goes into ``ended``.

    Attributes:
        commits: its rounds so far.
        failure: why it failed, or ''.
        waits: whether it stands in the engine's line.
        over: set when it has ended, however.
    """

    def __init__(self, index: int, kind: str, ended: queue.SimpleQueue[Asked]) -> None:
        self.commits: list[Commit] = []
        self.failure = ""
        self.over = threading.Event()
        self.waits = False
        self._index = index
        self._kind = kind
        self._ended = ended
        self._submitted_s = time.perf_counter()
        self._ended_s: float | None = None

    def hear(self, event: Event) -> None:
        """Note an event of the engine."""
        now = time.perf_counter()
        self.waits = event.type == "waiting"
        if isinstance(event, DecodeRound):
            self.commits.append(commit_of(event, now))
        if isinstance(event, Finished):
            self._ended_s = None if event.finish_reason in ("cancelled", "error") else now
            self.failure = event.detail if event.finish_reason == "error" else ""
            self.over.set()
            self._ended.put(self)

    def trace(self) -> AnswerTrace:
        """What came of it so far; from any thread."""
        return AnswerTrace(self._index, self._kind, self._submitted_s, tuple(self.commits), self._ended_s)


def commit_of(event: DecodeRound, at_s: float) -> Commit:
    """What a round is to a load test."""
    timings = event.timings
    return Commit(
        at_s,
        len(event.committed),
        event.verify_len,
        event.num_accepted,
        timings.draft_s,
        timings.schedule_s,
        timings.total_s,
        event.load.occupancy,
        event.load.energy_j,
    )
