"""Work in a thread of its own, which ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")
_NAME = "dspark-apart"


def apart(work: Callable[[], Result]) -> Result:
    """What ``work()`` returns or raises, called in a thread that has ended by then.

    For torch's work on a CPU outside of the engine's thread. Each thread that computes keeps a team of OpenMP threads
    for as long as it lives. Where there are more of all these than cores, libgomp lets none of them wait for its next
    piece of work awake, and waking up takes so long that a pass over one token took 1.4 times as long (two cores,
    SmolLM2-135M in bfloat16). So a model is loaded apart, and from then on only the engine's thread has a team.
    """
    outcome: Future[Result] = Future()
    # A daemon, so that an interrupted program need not wait for it.
    thread = threading.Thread(target=settle, args=(outcome, work), name=_NAME, daemon=True)
    thread.start()
    try:
        return outcome.result()
    finally:
        if outcome.done():  # it is not where the wait itself was interrupted
            thread.join()


def is_working() -> bool:
    """Whether some work goes on apart, which nobody waits for any more."""
    return any(thread.name == _NAME for thread in threading.enumerate())


def settle(outcome: Future[Result], work: Callable[[], Result]) -> None:
    """Give what ``work()`` returns or raises to whoever waits for ``outcome``; nothing is done if nobody does."""
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        outcome.set_result(work())
    except BaseException as error:  # raised again where it is waited for
        outcome.set_exception(error)
