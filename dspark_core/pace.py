"""How fast a running request goes on: at full speed, at so many rounds a second, or held until it is told to step."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from dspark_core.errors import ParameterError, ResourceError, shown

MAX_RATE = 1000.0  # rounds a second


@dataclass(frozen=True, slots=True)
class Held:
    """What holds a request back.

    Attributes:
        rate: rounds a second; 0 is paused, None is full speed.
        note: why the engine itself let it go on, for the screen; '' where it did not.
    """

    rate: float | None = None
    note: str = ""


class Pace:
    """The pace of one request; safe to use from several threads.

    A request that is held keeps its place and its memory, so it may be held for so long only, all in all, and not
    while others wait for a place or for memory. Then it goes on at full speed.

    Args:
        clock: seconds that only ever rise.
        max_held_s: seconds for which it may be held.
        wake: called when the engine should look again.
    """

    def __init__(self, clock: Callable[[], float], max_held_s: float, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._max_held_s = max_held_s
        self._wake = wake
        self._lock = threading.Lock()
        self._held = Held()
        self._since = 0.0  # when it began to be held
        self._held_s = 0.0  # before that
        self._steps = 0  # rounds that it may go although it is held
        self._due = 0.0  # when its next round may begin, at a rate

    @property
    def held(self) -> Held:
        """What holds it back now."""
        with self._lock:
            return self._held

    def set(self, rate: float | None) -> None:
        """Go at ``rate`` rounds a second from the next round on; 0 pauses, None is full speed.

        Raises:
            ParameterError: ``rate`` is none of these.
            ResourceError: it has been held for as long as it may.
        """
        good = rate is None or (isinstance(rate, (int, float)) and not isinstance(rate, bool) and 0 <= rate <= MAX_RATE)
        if not good:
            raise ParameterError(
                f"The pace is {shown(rate)}; it must be a number of rounds a second from 0 (paused) to "
                f"{MAX_RATE:g}, or None for full speed."
            )
        with self._lock:
            self._hold(None if rate is None else float(rate))
        self._wake()

    def step(self) -> None:
        """Pause, but for one more round (and those that were asked for so and have not begun).

        Raises:
            ResourceError: as `set`.
        """
        with self._lock:
            asked = self._steps if self._held.rate == 0 else 0
            self._hold(0.0)
            self._steps = asked + 1
        self._wake()

    def _hold(self, rate: float | None) -> None:
        now = self._clock()
        if rate is not None and self._spent(now) >= self._max_held_s:
            raise ResourceError(self._too_long())
        self._change(Held(rate), now)
        self._due = now

    def look(self) -> None:
        """Let the engine look again although nothing about the pace has changed."""
        self._wake()

    def may_go(self, *, crowded: bool) -> bool:
        """Whether the next round may begin now; ``crowded`` when others wait for what it holds."""
        with self._lock:
            now = self._clock()
            if self._held.rate is None:
                return True
            if crowded:
                self._change(Held(None, "Others wait for their turn, so this answer goes on at full speed."), now)
            elif self._spent(now) >= self._max_held_s:
                self._change(Held(None, self._too_long()), now)
            return self._held.rate is None or self._steps > 0 or (self._held.rate > 0 and now >= self._due)

    def went(self) -> None:
        """A round has begun."""
        with self._lock:
            if self._held.rate is None:
                return
            if self._steps:
                self._steps -= 1
            elif self._held.rate > 0:
                self._due = max(self._due, self._clock()) + 1.0 / self._held.rate

    def due_in(self) -> float:
        """Seconds until `may_go` may answer otherwise by itself."""
        with self._lock:
            if self._held.rate is None:
                return 0.0
            now = self._clock()
            next_round = self._due - now if self._held.rate > 0 else math.inf
            return max(0.0, min(next_round, self._max_held_s - self._spent(now)))

    def _spent(self, now: float) -> float:
        return self._held_s + (0.0 if self._held.rate is None else now - self._since)

    def _change(self, held: Held, now: float) -> None:
        self._held_s = self._spent(now)
        self._since, self._held, self._steps = now, held, 0

    def _too_long(self) -> str:
        return f"This answer has been held for {self._max_held_s:g} s, the most, and goes on at full speed."
