"""The sweeps of all visitors: at most one each, one at a time on the engine, the others in a line.

Two sweeps at once would falsify each other; visitors who chat go first (see `dspark_core.sweep.runner`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from dspark_core.errors import ParameterError, ResourceError
from dspark_core.sweep.report import csv_text, report
from dspark_core.sweep.runner import Progress, Sweep

_LOG = logging.getLogger(__name__)
MAX_WAITING = 8


class Running:
    """One visitor's sweep in its own thread. Its attributes are read while ``changed`` is held.

    Attributes:
        about: the report's head.
        sweep: what runs.
        state: "waiting", "running", "done", "stopped" or "failed".
        progress: the last one; None before.
        rows: as measured so far.
    """

    def __init__(self, sweep: Sweep, about: dict[str, Any]) -> None:
        self.changed = threading.Condition()
        self.about = about
        self.sweep = sweep
        self.state = "waiting"
        self.progress: Progress | None = None
        self.rows: list[dict[str, Any]] = []
        self.version = 0

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return self.state in ("done", "stopped", "failed")

    def result(self) -> dict[str, Any]:
        """The report of what was measured, and the same as CSV; once it is over."""
        made = report(self.about, self.sweep)
        return {"report": made, "csv": csv_text(made)}

    def note(self, **values: Any) -> None:
        """Set attributes and wake who looks on."""
        with self.changed:
            for name, value in values.items():
                setattr(self, name, value)
            self.version += 1
            self.changed.notify_all()

    def work(self, my_turn: Callable[[], bool]) -> None:
        """Wait for the turn, then measure."""
        state = "failed"
        try:
            if my_turn():
                self.note(state="running")
                answers = 0
                for progress in self.sweep.run():
                    if self.sweep.results.answers != answers:  # rows are made between answers: nothing is timed then
                        answers = self.sweep.results.answers
                        self.note(rows=self.sweep.results.rows())
                    self.note(progress=progress)
            else:
                self.sweep.stopped = True
            state = "failed" if self.sweep.failure else "stopped" if self.sweep.stopped else "done"
        except Exception as error:  # the page must say it; the log has the traceback
            _LOG.exception("A sweep failed.")
            self.sweep.failure = f"{type(error).__name__}. The server's log has the details."
        finally:
            self.note(state=state, rows=self.sweep.results.rows())


class Sweeps:
    """A registry and a line. Safe to use from several threads."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._of_visitor: dict[str, Running] = {}
        self._line: list[Running] = []

    def __len__(self) -> int:
        with self._wake:
            return len(self._line)

    def check(self, visitor: str) -> None:
        """Raise ParameterError when the visitor's own sweep runs, ResourceError when the line is full."""
        with self._wake:
            if visitor in self._of_visitor:
                raise ParameterError("Your last sweep still runs. Stop it first, or wait for its end.")
            if len(self._line) > MAX_WAITING:
                raise ResourceError(f"{len(self._line)} sweeps run or wait, the most that are taken. Try again later.")

    def begin(self, visitor: str, running: Running) -> None:
        """Put it in the line and start its thread. Raises as `check`."""
        with self._wake:
            self.check(visitor)
            self._of_visitor[visitor] = running
            self._line.append(running)
        thread = threading.Thread(target=self._work, args=(running,), name="dspark-sweep", daemon=True)
        thread.start()

    def ahead(self, running: Running) -> int:
        """How many go first."""
        with self._wake:
            return self._line.index(running) if running in self._line else 0

    def stop(self, visitor: str) -> None:
        """End the visitor's sweep; what is measured stays."""
        with self._wake:
            running = self._of_visitor.get(visitor)
        if running is not None:
            running.sweep.stop()
            self._notify()

    def end(self, visitor: str, running: Running) -> None:
        """Stop it and strike it out."""
        running.sweep.stop()
        with self._wake:
            if self._of_visitor.get(visitor) is running:
                del self._of_visitor[visitor]
        self._notify()

    def _work(self, running: Running) -> None:
        try:
            running.work(lambda: self._my_turn(running))
        finally:
            with self._wake:
                self._line.remove(running)
                self._wake.notify_all()

    def _my_turn(self, running: Running) -> bool:
        """Wait; whether it is (and not that it was stopped)."""
        with self._wake:
            self._wake.wait_for(lambda: self._line[0] is running or running.sweep.stopping)
        return not running.sweep.stopping

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify_all()
