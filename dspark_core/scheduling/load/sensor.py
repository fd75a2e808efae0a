"""The sensor: a background thread asks a probe; whoever asks the sensor never waits or fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from dspark_core.events import LoadSample

INTERVAL_S = 0.2
STALE_AFTER_S = 2.0


class LoadSensor(Protocol):
    """A source of load samples."""

    def sample(self) -> LoadSample:
        """The latest sample, at once. Never raises: what is not available is None, and ``note`` says why."""

    def close(self) -> None:
        """Stop measuring; may be called twice."""


class Probe(Protocol):
    """Measures once, in the sensor's thread; it may wait for a driver, but it never raises."""

    def idle(self) -> LoadSample:
        """What to show before anything was measured: the source, without figures."""

    def read(self) -> LoadSample:
        """Measure now."""

    def close(self) -> None:
        """Let go of the driver."""


class SampledSensor:
    """Reads a probe about five times a second in a daemon thread and hands out the latest sample.

    Args:
        probe: what to read.
        interval_s: seconds between two readings.
        stale_after_s: a sample older than that is no longer shown: the driver hangs.
        clock: seconds that only ever rise.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        interval_s: float = INTERVAL_S,
        stale_after_s: float = STALE_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = probe
        self._interval_s = interval_s
        self._stale_after_s = stale_after_s
        self._clock = clock
        self._latest = (clock(), replace(probe.idle(), note="not measured yet"))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load-sensor", daemon=True)
        self._thread.start()

    def sample(self) -> LoadSample:
        """The latest sample; without figures when it is too old or the sensor is closed."""
        taken_at, sample = self._latest
        age_s = self._clock() - taken_at
        if self._closed.is_set():
            return replace(self._probe.idle(), note="not available: the sensor is closed")
        if age_s > self._stale_after_s:
            return replace(self._probe.idle(), note=f"not available: no answer for {age_s:.0f} s")
        return sample

    def close(self) -> None:
        """Stop the thread; a driver that hangs is left behind after a second."""
        self._closed.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._closed.is_set():
            sample = self._probe.read()
            self._latest = (self._clock(), sample)
            self._closed.wait(self._interval_s)
        self._probe.close()


def reason_of(error: Exception) -> str:
    """What an error of a driver or its binding says, for the screen."""
    if isinstance(error, ModuleNotFoundError):
        return f"the Python module {error.name} is not installed"
    return str(error) or type(error).__name__
