"""How long a load test or a sweep will go on, from how long its parts took so far."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from statistics import mean

Part = tuple[int, str]  # number of users, lane


class TimeLeft:
    """Counts down.

    Args:
        parts: all parts to come; the same ones come up in every repeat.
        answers: how many answers a part with so many users has.
        now: seconds that only ever rise.
    """

    def __init__(
        self, parts: Iterable[Part], answers: Callable[[int], int], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._to_come = Counter(parts)
        self._all = self._to_come.total()
        self._answers = answers
        self._taken: dict[Part, list[float]] = defaultdict(list)
        self._now = now
        self._last = now()

    def begin(self) -> None:
        """The first part begins now, and not when this was made."""
        self._last = self._now()

    def done(self, part: Part) -> None:
        """That part has just ended; it began when the one before ended."""
        now = self._now()
        self._taken[part].append(now - self._last)
        self._last = now
        self._to_come[part] -= 1

    @property
    def share(self) -> float:
        """The share of parts that are done."""
        return 1 - self._to_come.total() / self._all if self._all else 1.0

    @property
    def seconds(self) -> float | None:
        """Seconds for the parts to come; None before the first has ended."""
        if not self._taken:
            return None
        return sum(self._expected(part) * count for part, count in self._to_come.items())

    def __str__(self) -> str:
        seconds = self.seconds
        if seconds is None:
            return "time left not known yet"
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"

    def _expected(self, part: Part) -> float:
        """What it took before; else what other lanes took with as many users; else so much for each answer."""
        users = part[0]
        alike = self._taken.get(part) or [t for (n, _), times in self._taken.items() if n == users for t in times]
        if alike:
            return mean(alike)
        per_answer = [t / self._answers(n) for (n, _), times in self._taken.items() for t in times]
        return mean(per_answer) * self._answers(users)
