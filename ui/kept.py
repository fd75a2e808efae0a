"""The latest answer of every visitor, kept so that it can be saved: its header and its events, in memory only."""

from __future__ import annotations

import threading
from collections import OrderedDict

from dspark_core.errors import ParameterError
from dspark_core.events import Event
from dspark_core.recording import Header, Recording

MAX_EVENTS = 6000  # of all visitors together: some 100 MB with their laws; who began to answer longest ago goes first


class KeptAnswers:
    """At most one answer a visitor. Safe to use from several threads."""

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._lock = threading.Lock()
        self._max_events = max_events
        self._kept: OrderedDict[str, tuple[Header, list[Event]]] = OrderedDict()

    def __len__(self) -> int:
        with self._lock:
            return len(self._kept)

    def put(self, visitor: str, header: Header, events: list[Event]) -> None:
        """Keep an answer in place of the visitor's last one; ``events`` may grow while the answer runs."""
        with self._lock:
            self._kept.pop(visitor, None)
            while self._kept and sum(len(events) for _, events in self._kept.values()) > self._max_events:
                self._kept.popitem(last=False)
            self._kept[visitor] = (header, events)

    def drop(self, visitor: str) -> None:
        """Forget the visitor's answer."""
        with self._lock:
            self._kept.pop(visitor, None)

    def of(self, visitor: str) -> Recording:
        """The visitor's answer so far. Raises ParameterError where there is none."""
        with self._lock:
            kept = self._kept.get(visitor)
        if kept is None:
            raise ParameterError(
                "There is no answer to save: none was asked for in this tab, or it was given up to make room for "
                "others' answers. Ask again, then save it."
            )
        header, events = kept
        return Recording(header, tuple(events))
