"""Serving the page: what is on, what is off, and a clear word when the port is taken."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from ui.endpoints import OnlyNamed
from ui.host import SessionHost
from ui.news import News
from ui.panels import STATIC, page_css, page_head
from ui.quiet import tracker_routes
from ui.settings import Settings
from ui.theme import playground_theme
from ui.words import translations

MAX_UPLOAD = "1kb"  # the page takes no files; Gradio's upload route stays, so bound it


def _routes(news: News) -> list[BaseRoute]:
    package_data = Path(plotly.__file__).parent / "package_data"
    return [
        *tracker_routes(),
        news.route("/dspark/news"),
        Mount("/dspark/static", StaticFiles(directory=STATIC)),
        Mount("/dspark/plotly", StaticFiles(directory=package_data)),
    ]


def launch_options(address: str, port: int, news: News) -> dict[str, Any]:
    """Arguments of `Blocks.launch`: local unless told otherwise, offline, nothing recorded or sent anywhere.

    ``news`` is what the page was built with.
    """
    return {
        "server_name": address,
        "server_port": port,
        "share": False,
        "ssr_mode": False,
        "run_history": False,
        "enable_monitoring": False,
        "mcp_server": False,
        "pwa": False,
        "show_error": False,
        "max_threads": 96,
        "max_file_size": MAX_UPLOAD,
        "footer_links": [],
        "theme": playground_theme(),
        "i18n": translations(),
        "css": page_css(),
        "head": page_head(),
        "app_kwargs": {
            "routes": _routes(news),
            "middleware": [Middleware(OnlyNamed)],
            "docs_url": None,
            "redoc_url": None,
            "openapi_url": None,
        },
        "quiet": True,
    }


def _port_is_free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def serve(demo: gr.Blocks, host: SessionHost, settings: Settings, news: News) -> None:
    """Serve the page, then open the session in the background, until interrupted.

    In this order: Gradio gives its server five seconds to start, and a model that is being loaded may take them all.
    """
    if not _port_is_free(settings.address, settings.port):
        sys.exit(
            f"Port {settings.port} on {settings.address} cannot be used: another program has it, or the address is "
            f"not this machine's. Choose another with --port or PORT, for example --port {settings.port + 1}."
        )
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        demo.launch(**launch_options(settings.address, settings.port, news), prevent_thread_lock=True)
        host.start()
        sys.stdout.write(f"DSpark Playground: http://{settings.address}:{settings.port} (Ctrl+C ends it)\n")
        sys.stdout.flush()
        demo.block_thread()
    except KeyboardInterrupt:
        pass  # outside of `block_thread`, which takes it for an end as well
    finally:
        signal.signal(signal.SIGINT, end_at_once)  # a second Ctrl+C does not wait for what closes
        ended = host.close()
        signal.signal(signal.SIGINT, before)
    if not ended:
        end_at_once()  # the interpreter's own end waits for threads, and aborts in those that are inside of torch


def end_at_once(*_: object) -> None:
    """End the process as Ctrl+C does, without a traceback, whatever it is doing. A handler of signals."""
    os._exit(128 + signal.SIGINT)
