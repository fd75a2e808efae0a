"""The handlers of Explore. Every message is JSON for the panel's script (``ui/static/explore.js``)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from dspark_core.sweep.read import MAX_CHARACTERS as MAX_FILE
from dspark_core.sweep.read import read_report
from dspark_core.sweep.report import csv_text, head, left_out_json
from dspark_core.sweep.runner import Sweep
from ui.answering import told, visitor_of
from ui.explore.asked import Asked, read_object, read_point, read_sweep
from ui.explore.sweeps import Running, Sweeps
from ui.host import SessionHost
from ui.ports import SessionPort
from ui.trace import to_json

PACE_S = 0.25  # between two messages at least


class Desk:
    """Start, stop, open a file, apply a row.

    Args:
        host: the session's host.
    """

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self.sweeps = Sweeps()

    def start(self, text: str, request: gr.Request) -> Iterator[str]:
        """Measure what was asked; a message whenever something is new. Closing the generator stops the sweep."""
        visitor = visitor_of(request)
        name = secrets.token_hex(4)
        try:
            running = self.begin(visitor, lambda session: read_sweep(session, text))
        except Exception as error:
            yield _message(state="refused", error=told(error))
            return
        try:
            yield from self._tell(name, running)
        finally:
            self.sweeps.end(visitor, running)

    def begin(self, owner: str, wanted: Callable[[SessionPort], Asked]) -> Running:
        """Put a sweep in the line; ``owner`` has to end it. Raises DSparkError for what ``wanted`` refuses as well."""
        self.sweeps.check(owner)
        session = self._host.opened("Start again when it is.")
        asked = wanted(session)
        running = Running(Sweep(session, asked.grid, asked.settings), head(session.info))
        self.sweeps.begin(owner, running)
        return running

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own sweep; what is there stays."""
        self.sweeps.stop(visitor_of(request))

    def leave(self, request: gr.Request) -> None:
        """The browser tab is gone."""
        self.sweeps.stop(visitor_of(request))

    def open(self, text: str) -> str:
        """A recorded sweep, read from a file's text."""
        try:
            # as JSON in JSON, a file takes up to twice its room: each quote has a backslash
            report = read_report(read_object(text, 2 * MAX_FILE).text("file"))
        except Exception as error:
            return _message(state="refused", error=told(error))
        return _message(sweep=secrets.token_hex(4), seq=1, state="recorded", report=report, csv=csv_text(report))

    def apply(self, text: str) -> list[Any]:
        """A row's setting into the controls of Chat, in the order that `Explore.connect` names them."""
        try:
            point = read_point(self._host.opened("Start again when it is.").info, text)
        except Exception as error:
            return [_message(state="refused", error=told(error)), *[gr.skip()] * 7]
        return [
            _message(applied=str(point), id=secrets.token_hex(4)),
            point.drafter, point.policy, point.l_min, point.l_max, point.threshold, point.temperature, False,
        ]  # fmt: skip

    def _tell(self, name: str, running: Running) -> Iterator[str]:
        sent: dict[int, dict[str, Any]] = {}
        seen, seq = -1, 0
        while True:
            with running.changed:
                running.changed.wait_for(lambda: running.version != seen or running.over, timeout=1.0)  # noqa: B023
                fresh = running.version != seen
                seen = running.version
                rows, progress, state, over = running.rows, running.progress, running.state, running.over
            seq += 1
            if over:
                yield _message(sweep=name, seq=seq, state=state, error=running.sweep.failure, **running.result())
                return
            changed = [row for row in rows if sent.get(row["id"]) != row]
            sent.update((row["id"], row) for row in changed)
            body: dict[str, Any] = {"ahead": self.sweeps.ahead(running), "rows": changed}
            if progress is not None:
                names = ("done", "total", "left_s", "now", "waits")
                body |= {name: getattr(progress, name) for name in names}
            if seq == 1:
                body["head"] = running.about
                body["left_out"] = [left_out_json(it) for it in running.sweep.grid.left_out]
                body["points"] = len(running.sweep.grid.points)
            if fresh or seq == 1 or state == "waiting":
                yield _message(sweep=name, seq=seq, state=state, **body)
            running.sweep.pause(PACE_S)


def _message(**body: Any) -> str:
    return to_json({"kind": "explore", **body})
