"""The engine's busy share: which part of the last seconds it spent computing, by its own clock."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 5.0


class BusyShare:
    """A context manager around the engine's work, and the share of the last seconds that was spent inside it.

    One thread works, any thread may ask. What is in progress counts up to now.

    Args:
        window_s: the seconds looked back on; fewer where the meter is younger.
        clock: seconds that only ever rise.
    """

    def __init__(self, window_s: float = WINDOW_S, clock: Callable[[], float] = time.perf_counter) -> None:
        self.window_s = window_s
        self._clock = clock
        self._made_at = clock()
        self._lock = threading.Lock()
        self._spans: deque[tuple[float, float]] = deque()
        self._busy_s = 0.0  # of the spans
        self._began: float | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            now = self._clock()
            if self._began is not None:
                self._spans.append((self._began, now))
                self._busy_s += now - self._began
                self._began = None
            self._forget_before(now - self.window_s)

    def share(self) -> float | None:
        """0 to 1; None at the very moment the meter was made."""
        with self._lock:
            now = self._clock()
            since = max(self._made_at, now - self.window_s)
            self._forget_before(since)
            busy_s = self._busy_s
            if self._spans:
                busy_s -= max(0.0, since - self._spans[0][0])
            if self._began is not None:
                busy_s += now - max(since, self._began)
        return min(1.0, max(0.0, busy_s / (now - since))) if now > since else None

    def _forget_before(self, since: float) -> None:
        while self._spans and self._spans[0][1] <= since:
            begun, ended = self._spans.popleft()
            self._busy_s -= ended - begun
        if not self._spans:
            self._busy_s = 0.0  # sums and differences of floats drift
