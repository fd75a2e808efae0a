"""One lane's answer in a duel, read while it runs: its figures, and its text along the engine's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from dspark_core.bench.run import Run
from dspark_core.errors import DSparkError
from dspark_core.events import DecodeRound, Event, Finished, FinishReason, Prefilled
from dspark_core.params import GenerationRequest
from dspark_core.ports import LoadedEngine
from dspark_core.telemetry import fold

_READ_S = 0.25  # between two looks at whether it was stopped

Phase = Literal["waiting", "warm-up", "running", "comparing"]


@dataclass(frozen=True, slots=True)
class Lap:
    """One lane's answer in one repeat.

    Attributes:
        repeat: 0, 1, …
        run: tokens and figures.
        track: for each round, seconds since the reading of the prompt began, tokens so far, and the text that it added.
            The seconds are the engine's own: prefill, then draft, schedule and verify of each round.
        text: the whole answer.
        finish, detail: how it ended.
        disturbed: whether anyone else's answer ran or waited beside it.
        energy_j: joules that the whole device drew meanwhile, by its own counter; None when not available.
    """

    repeat: int
    run: Run
    track: tuple[tuple[float, int, str], ...]
    text: str
    finish: FinishReason
    detail: str
    disturbed: bool
    energy_j: float | None

    @property
    def whole(self) -> bool:
        """Whether the answer came to its own end."""
        return self.finish in ("stop", "length")

    @property
    def finish_s(self) -> float:
        """Seconds from the beginning of the prompt's reading to the last token, by the engine's clock."""
        return self.track[-1][0] if self.track else self.run.summary.prefill_s


@dataclass(frozen=True, slots=True)
class Now:
    """What happens at the moment, for the screen; ``seconds`` and ``tokens`` are the lap's so far."""

    phase: Phase
    lane: str = ""
    repeat: int = 0
    tokens: int = 0
    seconds: float = 0.0


def read_lap(
    course: LoadedEngine, request: GenerationRequest, now: Now, stopped: Callable[[], bool]
) -> Generator[Now, None, Lap]:
    """Run one answer to its end, or until ``stopped()``; closing the generator frees the engine within one round.

    Raises:
        DSparkError: it was refused, or ended with an error.
    """
    energy_before = course.load().energy_j
    begun = time.perf_counter()
    stream = course.submit(request)
    events: list[Event] = []
    finished: Finished | None = None
    disturbed = False
    try:
        while finished is None:
            disturbed = disturbed or course.num_active > 1
            if stopped():
                stream.cancel()
            event = stream.next_event(_READ_S)
            if event is not None:
                events.append(event)
                now = _moved(now, event)
            finished = event if isinstance(event, Finished) else None
            yield now
    finally:
        stream.cancel()
    wall_s = time.perf_counter() - begun
    if finished.finish_reason == "error":
        raise DSparkError(finished.detail)
    energy_after = course.load().energy_j
    return Lap(
        repeat=now.repeat,
        run=Run(finished.token_ids, fold(events), wall_s),
        track=_track(events, finished),
        text=finished.text,
        finish=finished.finish_reason,
        detail=finished.detail,
        disturbed=disturbed,
        energy_j=None if energy_before is None or energy_after is None else energy_after - energy_before,
    )


def _moved(now: Now, event: Event) -> Now:
    if isinstance(event, Prefilled):
        return replace(now, seconds=event.prefill_s)
    if isinstance(event, DecodeRound):
        return replace(now, tokens=now.tokens + len(event.committed), seconds=now.seconds + event.timings.total_s)
    return now


def _track(events: list[Event], finished: Finished) -> tuple[tuple[float, int, str], ...]:
    prefill_s = sum(event.prefill_s for event in events if isinstance(event, Prefilled))
    rounds = [event for event in events if isinstance(event, DecodeRound)]
    moments = list(accumulate((event.timings.total_s for event in rounds), initial=prefill_s))[1:]
    tokens = accumulate(len(event.committed) for event in rounds)
    texts = ["".join(token.text for token in event.committed) for event in rounds]
    if texts:
        texts[-1] += finished.text_delta  # what was held back stands there at the last round's end
    return tuple(zip(moments, tokens, texts, strict=True))
