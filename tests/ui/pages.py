"""Pages for tests: built and served without the event loops that Gradio otherwise leaves open."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ui.host import SessionHost
from ui.news import News
from ui.page import build_page
from ui.server import launch_options


def in_a_loop(function):
    """The result of ``function()``, called while an event loop runs.

    Where none runs, Gradio 6.31 makes one for each lock of a page and never closes it, which a test run that takes
    warnings for errors notices.
    """

    async def call():
        return function()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call()).result()


def free_port():
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def served(opener, name="fake-target", profile_s=0.0):
    """The page over what ``opener`` opens, on a free port; yields its address."""
    host = SessionHost(opener, name, profile_s)
    news = News()
    demo = in_a_loop(lambda: build_page(host, news))
    options = launch_options("127.0.0.1", free_port(), news)
    _, address, _ = in_a_loop(lambda: demo.launch(**options, prevent_thread_lock=True))
    host.start()  # after the server, as `ui.server.serve` does
    try:
        yield address
    finally:
        demo.close(verbose=False)
        host.close()
