"""What Gradio does all the time on an idle page, turned down: beside the model it costs rounds."""

from __future__ import annotations

import os
import re
from pathlib import Path

import gradio as gr
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# The queue summarises up to 10,000 past events with pandas after every event, for a monitoring page that is off here.
# It reads these when it is made.
_ENVIRONMENT = {"GRADIO_ANALYTICS_CACHE_FREQUENCY": "1000000000", "GRADIO_ANALYTICS_MAX_EVENTS": "1"}
# It looks a thousand times a second for events that wait, and a hundred times for progress bars, of which there are
# none here; each look takes the interpreter from the engine's thread.
QUEUE_LOOKS_S = 0.05
_PROGRESS_LOOKS_S = 1.0
# A status tracker counts seconds in every frame while something is pending, and the page's own loader, which is taken
# away while it counts, never ends: sixty frames a second as long as the page is open. No tracker is ever shown here.
_COUNTING = re.compile(r"(\(performance\.now\(\)-\w+\(\w+\)\)/1e3\)),\w+&&\w+\(\)\}")
_ASSETS = Path(gr.__file__).parent / "templates" / "frontend" / "assets"


def before_queue() -> None:
    """Set what Gradio reads when it makes its queue."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def slow_looks(demo: gr.Blocks) -> None:
    """Let the queue of ``demo`` look less often."""
    demo._queue.sleep_when_free = QUEUE_LOOKS_S
    demo._queue.progress_update_sleep_when_free = _PROGRESS_LOOKS_S


def tracker_routes() -> list[Route]:
    """The status tracker's script without its endless counting; none where this Gradio's is another."""
    routes = []
    for path in _ASSETS.glob("statustracker-*.js"):
        text, found = _COUNTING.subn(r"\1}", path.read_text(encoding="utf-8"))
        if found == 1:
            routes.append(_script(f"/assets/{path.name}", text))
    return routes


def _script(path: str, text: str) -> Route:
    async def give(_: Request) -> Response:
        return Response(text, media_type="text/javascript")

    return Route(path, give, methods=["GET", "HEAD"])
