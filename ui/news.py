"""News for open pages, beside Gradio: the status, and what a running answer adds to what its page has.

For every message of an event, Gradio makes anew each component that the event may change, and its frontend visits all
that any event has ever changed. On a machine that also runs the model this takes time from every round, so a page asks
for its news itself. A request costs more than what it brings, in the browser above all, so its reply stays open for a
while and tells each message as it comes.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

LONGEST_WAIT_S = 0.5  # for the next message, until the reply looks whether the page is still there
REPLY_S = 2.0  # how long a reply stays open: a browser has six connections for all its tabs, and another may wait
STATUS_S = 1.0  # from one status to the next in an open reply
TOGETHER_S = 0.2  # how long it waits to come with an answer's news: a drawing for the status alone costs as much
FOLLOWED_S = 1.5  # how long a page counts as there after its last request; then Gradio finds out whether it is
KEPT = 64  # messages that wait for a page; what is lost beyond that, the answer's last message brings


class Line:
    """One answer's messages, for the page that knows its name. Written by one thread, read by the server's loop.

    Attributes:
        laws: whether the page shows the laws behind the rounds.
        ended: whether nothing more comes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: deque[tuple[int, str]] = deque(maxlen=KEPT)  # numbered from 1
        self._last = 0
        self._asked_s = float("-inf")
        self._wake: Callable[[], object] | None = None
        self.laws = False
        self.ended = False

    @property
    def followed(self) -> bool:
        """Whether a page asks for what is put here."""
        return time.monotonic() - self._asked_s < FOLLOWED_S

    def put(self, message: str) -> None:
        """Leave a message for the page."""
        with self._lock:
            self._last += 1
            self._messages.append((self._last, message))
        self._awake()

    def end(self) -> None:
        """Nothing more comes: nobody need wait."""
        self.ended = True
        self._awake()

    def _awake(self) -> None:
        with self._lock:
            wake, self._wake = self._wake, None
        if wake is not None:
            with suppress(RuntimeError):  # the server's loop has ended meanwhile
                wake()

    def forget(self, number: int) -> None:
        """The page has the messages up to that number. Until it says so they are kept: a reply may be lost."""
        with self._lock:
            while self._messages and self._messages[0][0] <= number:
                self._messages.popleft()

    async def take(self, after: int = 0, wait_s: float = LONGEST_WAIT_S) -> list[tuple[int, str]]:
        """What was put after message number ``after``, with its numbers; waits for it, but not beyond ``wait_s``."""
        come, loop = asyncio.Event(), asyncio.get_running_loop()
        self._asked_s = time.monotonic()
        with self._lock:
            wait = self._last <= after and not self.ended
            if wait:
                self._wake = lambda: loop.call_soon_threadsafe(come.set)
        if wait:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(come.wait(), wait_s)
        self._asked_s = time.monotonic()
        with self._lock:
            return [(number, message) for number, message in self._messages if number > after]


class Reply(Response):
    """A body of parts that are sent as they come, until they end or the page has gone."""

    def __init__(self, parts: AsyncIterator[str]) -> None:
        # A proxy that collects or compresses what it passes on would hold the parts back until the reply ends.
        headers = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
        super().__init__(media_type="application/x-ndjson", headers=headers)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (as Starlette calls it)
        """Send it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        gone = asyncio.ensure_future(_gone(receive))
        try:
            async for part in self._parts:
                if gone.done():
                    return
                if part:
                    await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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
            line.end()

    def route(self, path: str) -> Route:
        """Where pages ask: ``?status`` for the status, ``?answer=NAME&after=N`` for an answer's news after the N-th.

        The reply has a message a line, each after its number (0 for the status) and a space. That to a question for an
        answer's news stays open for `REPLY_S`. With ``&laws`` there are the laws behind the rounds as well.
        """
        return Route(path, self._tell, methods=["GET"])

    async def _tell(self, request: Request) -> Response:
        asked = request.query_params
        line = self._lines.get(asked.get("answer", ""))
        after = asked.get("after", "0")
        has = int(after) if after.isascii() and after.isdecimal() and len(after) < 10 else 0
        if line is not None:
            line.laws = "laws" in asked
        return Reply(self._told(line, has, "status" in asked))

    async def _told(self, line: Line | None, has: int, status: bool) -> AsyncIterator[str]:
        if line is not None:
            line.forget(has)
        begun = time.monotonic()
        due = begun if status else math.inf  # of the status
        while line is not None and not line.ended and (now := time.monotonic()) < begun + REPLY_S:
            late = max(0.05, due + TOGETHER_S - now)
            news = await line.take(has, min(LONGEST_WAIT_S, late, begun + REPLY_S - now))
            has = news[-1][0] if news else has
            part = "".join(f"{number} {message}\n" for number, message in news)
            now = time.monotonic()
            if now >= due + (0.0 if news else TOGETHER_S):
                due = max(due, now - STATUS_S) + STATUS_S
                part = f"0 {self.status()}\n{part}"
            yield part
        if due == begun:
            yield f"0 {self.status()}\n"
