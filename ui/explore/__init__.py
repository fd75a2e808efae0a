"""The tab Explore: a grid of settings measured beside plain decoding, on the page's own engine."""

from __future__ import annotations

from typing import Any

from ui.explore.calls import SweepCalls
from ui.explore.desk import Desk
from ui.panels import feed, panel, port
from ui.tab import Deck

_PORTS = ("start", "stop", "open", "apply")
MAX_STREAMS = 16  # visitors whose sweeps run or wait, as far as Gradio is concerned; `Sweeps` refuses earlier


class Explore:
    """The panel and four ports: start a sweep, stop it, open a recorded one, hand a row over to Chat."""

    key, title = "explore", "Explore"

    def build(self) -> None:
        """The panel; scripts fill it."""
        self._feed = feed("explore")
        self._ports = {name: port(f"explore-{name}") for name in _PORTS}
        panel("explore", elem_id="ds-explore-panel")

    def connect(self, deck: Deck) -> None:
        """Attach the ports; a visitor who leaves stops the sweep."""
        desk = Desk(deck.host)
        start, stop, recorded, apply = (self._ports[name] for name in _PORTS)
        streams: dict[str, Any] = {"concurrency_limit": MAX_STREAMS, "concurrency_id": "sweeps"}
        start.submit(desk.start, start, self._feed, **streams, **deck.quiet)
        stop.submit(desk.stop, None, None, queue=False, **deck.quiet)
        recorded.submit(desk.open, recorded, self._feed, **deck.quiet)
        parts = deck.parts
        controls = [
            parts.drafter, parts.policy, parts.l_min, parts.l_max, parts.threshold, parts.temperature, parts.beyond_cut,
        ]  # fmt: skip
        apply.submit(desk.apply, apply, [self._feed, *controls], **deck.quiet)
        deck.demo.unload(desk.leave)
        SweepCalls(desk).publish()
