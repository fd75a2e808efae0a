"""Many short answers from the running engine, a few at a time, so that other visitors chat beside them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from dspark_core.errors import DSparkError, ResourceError
from dspark_core.events import Event, Finished
from dspark_core.params import GenerationRequest
from dspark_core.ports import Engine, Generation

TICK_S = 0.1


class _Running:
    def __init__(self, number: int, asked: Generation) -> None:
        self.number = number
        self.asked = asked
        self.events: list[Event] = []


def answers(
    engine: Engine,
    requests: Iterable[GenerationRequest],
    stop: threading.Event,
    *,
    at_once: int = 8,
    enough: Callable[[list[Event]], bool] = lambda _: False,
) -> Iterator[tuple[int, list[Event]] | None]:
    """Each request's number and events as soon as its answer is there; None now and then when none is.

    However this ends, nothing of it runs on: leaving the iterator cancels what runs.

    Args:
        engine: the engine.
        requests: taken only when there is room for the next.
        stop: once it is set, what runs is cancelled and given up.
        at_once: answers side by side.
        enough: whether an answer with these events may end here; it then counts as it is.

    Raises:
        DSparkError: an answer failed, or the engine takes no request at all.
    """
    waiting = enumerate(requests)
    held: tuple[int, GenerationRequest] | None = None
    running: list[_Running] = []
    try:
        while not stop.is_set():
            while len(running) < at_once and (held := held or next(waiting, None)) is not None:
                try:
                    running.append(_Running(held[0], engine.submit(held[1])))
                except ResourceError:
                    if not running:
                        raise
                    break  # the house is full: go on with those that are in
                held = None
            if not running:
                return
            over = [one for one in running if _ended(one, enough)]
            for one in over:
                running.remove(one)
                yield one.number, one.events
            if not over:
                yield None
                _wait(running[0])
    finally:
        for one in running:
            one.asked.cancel()


def _ended(one: _Running, enough: Callable[[list[Event]], bool]) -> bool:
    """Take what it has told; whether it is over."""
    while not (one.events and isinstance(one.events[-1], Finished)):
        event = one.asked.next_event(0)
        if event is None:
            break
        one.events.append(event)
    if not one.events:
        return False
    last = one.events[-1]
    if isinstance(last, Finished):
        if last.finish_reason == "error":
            raise DSparkError(f"An answer failed: {last.detail}")
        return True
    if enough(one.events):
        one.asked.cancel()
        return True
    return False


def _wait(one: _Running) -> None:
    event = one.asked.next_event(TICK_S)
    if event is not None:
        one.events.append(event)


def seconds_left(started_s: float, done: int, total: int) -> float | None:
    """Seconds that the rest takes at the speed so far; None before anything is done. ``started_s`` is monotonic."""
    return (time.monotonic() - started_s) * (total - done) / done if done else None
