"""Rollouts: prompts answered by the engine with every draft verified, as rounds to fit on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from dspark_core.bench.lanes import whole_answer
from dspark_core.calibration.rounds import Rounds, joined
from dspark_core.calibration.survival import logits_of
from dspark_core.engine import Engine
from dspark_core.events import DecodeRound, Event
from dspark_core.params import GenerationRequest
from dspark_core.storage import Progress


def rounds_of(events: Iterable[Event], num_positions: int, *, calibrated: bool = False) -> Rounds:
    """The rounds of an answer, with the head's own confidences, or the ``calibrated`` ones where there are any.

    Observed are the positions that were verified. A draft that was discarded because the text ended is no rejection:
    such a position is not observed, as in telemetry.
    """
    logits, accepted, observed = [], [], []
    for event in events:
        if isinstance(event, DecodeRound):
            own = [
                token.confidence if calibrated or token.raw_confidence is None else token.raw_confidence
                for token in event.draft
            ]
            logits.append([*logits_of([c for c in own if c is not None]), *[0.0] * (num_positions - len(own))])
            accepted.append(event.num_accepted)
            observed.append(event.num_accepted if event.next is None else event.verify_len)
    return Rounds.of(logits, accepted, observed) if logits else joined([], num_positions)


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
