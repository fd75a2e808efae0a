"""Rollouts: prompts answered by the engine with every draft verified, as rounds to fit on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dspark_core.bench.lanes import whole_answer
from dspark_core.calibration.rounds import Rounds
from dspark_core.calibration.told import rounds_of
from dspark_core.engine import Engine
from dspark_core.params import GenerationRequest
from dspark_core.storage import Progress


def roll_out(
    engine: Engine, requests: Sequence[GenerationRequest], num_positions: int, answered: Callable[[], None]
) -> list[Rounds]:
    """The rounds of each request, answered one after the other; ``answered`` is called after each.

    Raises:
        DSparkError: an answer ended with an error.
    """
    parts = []
    for request in requests:
        events, _ = whole_answer(engine, request, "An answer of the rollout")
        parts.append(rounds_of(events, num_positions))
        answered()
    return parts


class Countdown:
    """Tells a progress bar how far a number of equal steps is, and how long the rest takes at the present speed."""

    def __init__(self, bar: Progress, steps: int) -> None:
        self._bar = bar
        self._steps = steps
        self._done = 0
        self._started = time.monotonic()
        self.stage = ""

    def step(self) -> None:
        """Count one step of ``stage``."""
        self._done += 1
        left = (time.monotonic() - self._started) * (self._steps - self._done) / self._done
        minutes, seconds = divmod(round(left), 60)
        self._bar(f"{self.stage}: {minutes}:{seconds:02d} left in all", self._done / self._steps)
