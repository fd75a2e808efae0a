"""Experiments that use the engine for minutes: one for each visitor, few in all, each with a way to stop it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from typing import Any

import gradio as gr

from dspark_core.errors import ResourceError


class Runs:
    """A registry of running experiments of one kind. Safe to use from several threads.

    Args:
        at_most: so many at once; more would leave too little of the engine to those who chat.
    """

    def __init__(self, at_most: int = 1) -> None:
        self._at_most = at_most
        self._lock = threading.Lock()
        self._stops: dict[str, threading.Event] = {}

    def begin(self, visitor: str) -> threading.Event:
        """Enter the visitor's experiment; the event says when to stop. Raises ResourceError when there is no room."""
        with self._lock:
            if visitor in self._stops:
                raise ResourceError("Your last experiment still runs. Press Stop first, or wait for its end.")
            if len(self._stops) >= self._at_most:
                raise ResourceError("Another visitor's experiment is running. Try again in some minutes.")
            return self._stops.setdefault(visitor, threading.Event())

    def end(self, visitor: str) -> None:
        """Strike it out."""
        with self._lock:
            self._stops.pop(visitor, None)

    def running(self, visitor: str) -> bool:
        """Whether the visitor's own experiment runs."""
        with self._lock:
            return visitor in self._stops

    def told(
        self, visitor: str, messages: Generator[str, None, None], feed: Any, start: Any, stop: Any
    ) -> Generator[dict[Any, Any], None, None]:
        """Each message for ``feed``; the button ``stop`` can be pressed while the experiment runs, ``start`` else."""
        shown = False
        with closing(messages):
            for message in messages:
                runs = self.running(visitor)
                yield {feed: message} | (_buttons(start, stop, runs) if runs != shown else {})
                shown = runs
        if shown and not self.running(visitor):
            yield _buttons(start, stop, False)

    def stop(self, visitor: str) -> None:
        """Ask the visitor's experiment to end with what it has; harmless when none runs."""
        with self._lock:
            stop = self._stops.get(visitor)
        if stop is not None:
            stop.set()


def _buttons(start: Any, stop: Any, runs: bool) -> dict[Any, Any]:
    return {start: gr.update(interactive=not runs), stop: gr.update(interactive=runs)}
