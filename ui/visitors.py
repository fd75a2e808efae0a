"""Whose answer is whose: each visitor's running generation, by the session hash that only that browser tab knows."""

from __future__ import annotations

import threading

from dspark_core.errors import ParameterError
from dspark_core.params import ScheduleParams
from ui.kept import KeptAnswers
from ui.ports import GenerationPort


class Visitors:
    """A registry of running answers, at most one a visitor. Safe to use from several threads.

    Attributes:
        kept: every visitor's latest answer, to save it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, GenerationPort] = {}
        self._asking: dict[str, object] = {}  # messages on their way to the engine
        self.kept = KeptAnswers()

    def __len__(self) -> int:
        with self._lock:
            return len(self._running)

    def running(self, visitor: str) -> bool:
        """Whether the visitor's own answer runs."""
        with self._lock:
            return visitor in self._running

    def of(self, visitor: str) -> GenerationPort | None:
        """The visitor's own running answer."""
        with self._lock:
            return self._running.get(visitor)

    def ask(self, visitor: str) -> object:
        """A ticket for a message that comes; `begin` takes it, unless the conversation is forgotten meanwhile."""
        ticket = object()
        with self._lock:
            self._asking[visitor] = ticket
        return ticket

    def give_up(self, visitor: str, ticket: object) -> None:
        """The message is not answered; harmless when the ticket is no longer good."""
        with self._lock:
            if self._asking.get(visitor) is ticket:
                del self._asking[visitor]

    def begin(self, visitor: str, generation: GenerationPort, ticket: object | None = None) -> None:
        """Enter ``generation``; an answer of the same visitor that still runs is cancelled.

        Raises:
            ParameterError: the ticket is no longer good, and ``generation`` is cancelled.
        """
        with self._lock:
            good = ticket is None or self._asking.get(visitor) is ticket
            if good:
                self._asking.pop(visitor, None)
                previous, self._running[visitor] = self._running.get(visitor), generation
        if not good:
            generation.cancel()
            raise ParameterError("A new chat was opened before the answer began. The message stays; send it again.")
        if previous is not None:
            previous.cancel()

    def end(self, visitor: str, generation: GenerationPort) -> None:
        """Cancel ``generation`` (harmless when it is over) and strike it out, if it is still the visitor's."""
        generation.cancel()
        with self._lock:
            if self._running.get(visitor) is generation:
                del self._running[visitor]

    def update_schedule(self, visitor: str, schedule: ScheduleParams) -> bool:
        """Steer the visitor's own answer; False when none runs."""
        with self._lock:
            generation = self._running.get(visitor)
        if generation is None:
            return False
        generation.update_schedule(schedule)
        return True

    def holds(self, visitor: str, generation: GenerationPort) -> bool:
        """Whether ``generation`` is still the visitor's answer (not forgotten, not replaced)."""
        with self._lock:
            return self._running.get(visitor) is generation

    def forget(self, visitor: str) -> bool:
        """Cancel the visitor's answer and strike it out at once: nothing of it may be shown any more.

        Returns:
            Whether there was one; who reads it finds that it is no longer held.
        """
        with self._lock:
            self._asking.pop(visitor, None)
            generation = self._running.pop(visitor, None)
        self.kept.drop(visitor)
        if generation is None:
            return False
        generation.cancel()
        return True

    def stop(self, visitor: str) -> bool:
        """Cancel the visitor's own answer; False when none runs."""
        with self._lock:
            generation = self._running.get(visitor)
        if generation is None:
            return False
        generation.cancel()
        return True
