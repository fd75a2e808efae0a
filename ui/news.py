"""News for open pages, beside Gradio: the status, and what a running answer adds to what its page has.

For every message of an event, Gradio makes anew each component that the event may change, and its frontend visits all
that any event has ever changed. On a machine that also runs the model this takes time from every round, so a page asks
for its news itself: one small request at a time, which waits a little until there is something.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

LONGEST_WAIT_S = 0.5  # of a request for which there is nothing
FOLLOWED_S = 1.5  # how long a page counts as there after its last request; then Gradio finds out whether it is
KEPT = 64  # messages that wait for a page; what is lost beyond that, the answer's last message brings


class Line:
    """One answer's messages, for the page that knows its name. Written by one thread, read by the server's loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: deque[tuple[int, str]] = deque(maxlen=KEPT)  # numbered from 1
        self._last = 0
        self._asked_s = float("-inf")
        self._wake: Callable[[], object] | None = None

    @property
    def followed(self) -> bool:
        """Whether a page asks for what is put here."""
        return time.monotonic() - self._asked_s < FOLLOWED_S

    def put(self, message: str) -> None:
        """Leave a message for the page."""
        with self._lock:
            self._last += 1
            self._messages.append((self._last, message))
            wake, self._wake = self._wake, None
        if wake is not None:
            with suppress(RuntimeError):  # the server's loop has ended meanwhile
                wake()

    async def take(self, after: int = 0, wait_s: float = LONGEST_WAIT_S) -> tuple[list[str], int]:
        """What was put after message number ``after``, which the page has, and the last one's number.

        Waits for the first of it, but not longer than ``wait_s``. It is kept until a later request tells that the page
        has it: an answer may be lost on its way.
        """
        come, loop = asyncio.Event(), asyncio.get_running_loop()
        self._asked_s = time.monotonic()
        with self._lock:
            while self._messages and self._messages[0][0] <= after:
                self._messages.popleft()
            wait = not self._messages
            if wait:
                self._wake = lambda: loop.call_soon_threadsafe(come.set)
        if wait:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(come.wait(), wait_s)
        self._asked_s = time.monotonic()
        with self._lock:
            return [message for _, message in self._messages], self._last


class News:
    """What pages may ask for.

    Attributes:
        status: what the session does, as JSON; set by the page's wiring.
    """

    def __init__(self) -> None:
        self.status: Callable[[], str] = lambda: ""
        self._lines: dict[str, Line] = {}

    @contextmanager
    def line(self, name: str) -> Iterator[Line]:
        """A line under a name that nobody can guess, until the answer ends."""
        self._lines[name] = line = Line()
        try:
            yield line
        finally:
            del self._lines[name]

    def route(self, path: str) -> Route:
        """Where pages ask, a message a line: ``?status`` for the status, ``?answer=NAME&after=N`` for an answer's news
        after the N-th. The header ``Last-Message`` has the last one's number.
        """
        return Route(path, self._tell, methods=["GET"])

    async def _tell(self, request: Request) -> Response:
        asked = request.query_params
        messages = [self.status()] if "status" in asked else []
        headers = {"Cache-Control": "no-store"}
        line = self._lines.get(asked.get("answer", ""))
        if line is not None:
            after = asked.get("after", "0")
            has = int(after) if after.isascii() and after.isdecimal() and len(after) < 10 else 0
            news, last = await line.take(has, 0.0 if messages else LONGEST_WAIT_S)
            messages += news
            headers["Last-Message"] = str(last)
        return Response("\n".join(messages), media_type="application/x-ndjson", headers=headers)
