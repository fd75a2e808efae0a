"""A load run to watch: users who come and go until it is stopped, or a walk through parts that are measured in turn.

Whoever watches calls `LiveRun.poll` a few times a second. No torch here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dspark_core.bench.paired import Case
from dspark_core.load_test.crowd import Asks, Crowd
from dspark_core.load_test.figures import Sums, counted, quantile, shares
from dspark_core.load_test.lane import PLAIN, Lane
from dspark_core.load_test.passes import joules_per_token, passes
from dspark_core.load_test.report import cell_figures, over_throughput
from dspark_core.load_test.resampled import Level
from dspark_core.load_test.trace import CellTrace
from dspark_core.params import SamplingParams, ScheduleParams

LEAST_S = 1.0  # shorter windows are not reported
_REFRESH_S = 3.0  # between two figures of a window that goes on


@dataclass(frozen=True, slots=True)
class Part:
    """So many users of one method."""

    users: int
    lane: Lane


def walk(lane: Lane, plain: Lane | None, users: Sequence[int]) -> list[Part]:
    """The method at every number of users, beside plain decoding if that is wanted; either goes first in turn."""
    lanes = [lane] if plain is None or lane.name == plain.name else [lane, plain]
    return [Part(n, it) for place, n in enumerate(users) for it in (lanes if place % 2 == 0 else lanes[::-1])]


class LiveRun:
    """One run.

    Args:
        engine: the engine, which others may use meanwhile.
        parts: what is measured in turn; the next begins when the last one's users are gone.
        cases: the questions; each part begins with the first.
        sampling: the law.
        seconds: how long each part is measured once all its users are served; None goes on with the first part until
            it is stopped.
        max_active: answers that the engine runs at once.

    Attributes:
        failure: why it ended early, or ''.
        over: whether nothing of it runs any more.
    """

    def __init__(
        self,
        engine: Asks,
        parts: Sequence[Part],
        cases: Sequence[Case],
        sampling: SamplingParams,
        seconds: float | None,
        max_active: int,
    ) -> None:
        self.failure = ""
        self.over = False
        self._engine = engine
        self._parts = list(parts)
        self._cases = cases
        self._sampling = sampling
        self._seconds = seconds
        self._max_active = max_active
        self._place = 0
        self._cells: dict[int, dict[str, CellTrace]] = {}
        self._figures: dict[int, list[dict[str, Any]]] = {}
        self._refreshed_s = 0.0
        self._begun_s = time.perf_counter()
        self._lock = threading.RLock()  # whoever stops it is another than who watches
        self._crowd = self._gathered()

    @property
    def part(self) -> Part:
        """What runs, or ran last."""
        return self._parts[self._place]

    @property
    def place(self) -> tuple[int, int]:
        """Which of the parts that is, from 1, and how many there are."""
        return self._place + 1, len(self._parts)

    @property
    def size(self) -> int:
        """Answers that it has in the engine."""
        return self._crowd.size

    def resize(self, users: int) -> None:
        """Another number of users, for a run that goes on until it is stopped."""
        with self._lock:
            self._parts[self._place] = Part(users, self.part.lane)
            self._crowd.resize(users)

    def steer(self, lane: Lane) -> None:
        """Another schedule under its own name; the drafter stays. Raises ParameterError."""
        with self._lock:
            self._take_closed()
            self._crowd.steer(lane.schedule)
            self._take_closed()
            self._parts[self._place] = Part(self.part.users, lane)

    def poll(self) -> None:
        """Note what was measured; go on to the next part when this one is done."""
        with self._lock:
            if not self.over:
                self._poll()

    def _poll(self) -> None:
        self._take_closed()
        cell = self._crowd.measured()
        if self._crowd.over:
            self.failure = self._crowd.failure
            self.over = True
        elif cell is not None and self._seconds is not None and cell.wall_s >= self._seconds:
            self._note(cell)
            self._next()
        elif cell is not None and time.perf_counter() >= self._refreshed_s + _REFRESH_S:
            self._refreshed_s = time.perf_counter()
            self._note(cell)

    def stop(self) -> None:
        """End it; returns when nothing runs any more. What was measured stays."""
        with self._lock:
            self._crowd.stop()
            self._take_closed()
            self.failure = self.failure or self._crowd.failure
            self.over = True

    def moment(self) -> dict[str, Any]:
        """Now: the figures of the last seconds, None where nothing is known."""
        with self._lock:  # not while its users are leaving
            cell = self._crowd.now()
            return {
                "t": cell.end_s - self._begun_s,
                "users": self.part.users,
                "waiting": self._crowd.waiting,
                **_summed(cell),
                "user_tokens_per_s": _user_speed(cell),
                **_passes(cell, self._max_active),
            }

    def figures(self) -> list[dict[str, Any]]:
        """What was measured, by users and lane: `report.cell_figures` with ``users``, ``lane``, passes and energy."""
        return [figures for users in sorted(self._figures) for figures in self._figures[users]]

    def _gathered(self) -> Crowd:
        return Crowd(self._engine, self.part.lane, self._cases, self._sampling, self.part.users)

    def _next(self) -> None:
        self._crowd.stop()
        self._crowd.take_closed()
        if self._place + 1 < len(self._parts):
            self._place += 1
            self._crowd = self._gathered()
        else:
            self.over = True

    def _take_closed(self) -> None:
        for cell in self._crowd.take_closed():
            self._note(cell)

    def _note(self, cell: CellTrace) -> None:
        if cell.wall_s < LEAST_S or not shares(cell):
            return
        lanes = self._cells.setdefault(cell.users, {})
        before = lanes.get(self.part.lane.name)
        if before is not None and before.start_s != cell.start_s and cell.wall_s < before.wall_s / 4:
            return  # a short window must not take the place of a long one
        lanes[self.part.lane.name] = cell
        self._figures[cell.users] = self._of_level(cell.users, lanes)

    def _of_level(self, users: int, lanes: dict[str, CellTrace]) -> list[dict[str, Any]]:
        """Each lane by its own answers; the ratio by those of both lanes to the same questions."""
        both = Level({name: [cell] for name, cell in lanes.items()})
        return [
            cell_figures(name, [], Level({name: [cell]}), [cell])
            | {"over": {PLAIN: over_throughput(name, PLAIN, both)} if PLAIN in lanes and name != PLAIN else {}}
            | {"users": users, "lane": name, "joules_per_token": joules_per_token(cell)}
            | _passes(cell, self._max_active)
            for name, cell in lanes.items()
        ]


def plain_lane() -> Lane:
    """Plain decoding."""
    return Lane(PLAIN, "none", ScheduleParams("fixed", 0, 0), own_drafter=False)


def _summed(cell: CellTrace) -> dict[str, float | None]:
    rows = list(shares(cell).values())
    if not rows:
        return dict.fromkeys(("throughput", "budget", "tau", "wasted_share"))
    sums = Sums(np.array(rows, dtype=np.float64).sum(axis=0, keepdims=True))
    return {name: _known(getattr(sums, name)[0]) for name in ("throughput", "budget", "tau", "wasted_share")}


def _user_speed(cell: CellTrace) -> float | None:
    speeds = [answer.tokens_per_s for answer in counted(cell) if answer.tokens_per_s is not None]
    return _known(quantile(np.array(speeds), np.ones((1, len(speeds))), 0.5)[0])


def _passes(cell: CellTrace, max_active: int) -> dict[str, float | None]:
    found = passes(cell, max_active)
    if found is None:
        return dict.fromkeys(("batch", "pass_tokens", "pass_s"))
    return {"batch": found.batch, "pass_tokens": found.tokens, "pass_s": found.seconds}


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
