"""The tab Rounds: one round in detail, and the answers that it can load, save and replay."""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr

from dspark_core.errors import DSparkError, ParameterError
from ui.answering import visitor_of
from ui.panels import panel
from ui.recorded import SHIPPED, failure, loaded_json, message, saved_json, shipped_json
from ui.tab import Deck

_LOG = logging.getLogger(__name__)


class Rounds:
    """One round in detail: drawn in the browser from the answer's messages, or from a recorded answer."""

    key, title = "rounds", "Rounds"

    def build(self) -> None:
        """The panel; it is filled by scripts."""
        panel("rounds", elem_id="ds-rounds-panel")

    def connect(self, deck: Deck) -> None:
        """Tell which recorded answers there are, show one while there is no model, and do what the page asks for.

        Both components stand outside the tabs: what is in a tab may be mounted late.
        """
        self._deck = deck
        told = deck.parts.recordings
        deck.demo.load(self.offer, None, told, queue=False, **deck.quiet)
        deck.parts.recorded.click(self.act, None, told, concurrency_limit=2, **deck.quiet)

    def offer(self) -> str:
        """The shipped answers by name; the first of them whole where the session is not open."""
        first = None
        if self._deck.host.session is None:
            try:
                first = {**shipped_json(next(iter(SHIPPED))), "name": next(iter(SHIPPED))}
            except (DSparkError, OSError) as error:
                _LOG.error("A recorded answer of the page cannot be shown.", exc_info=error)
        return message("recordings", list=list(SHIPPED.items()), first=first)

    def act(self, request: gr.Request, event: gr.EventData) -> str:
        """Show a shipped answer, check and show a loaded one, or give the visitor's own one as a file."""
        asked: Any = event._data
        try:
            return self._answer(asked if isinstance(asked, dict) else {}, visitor_of(request))
        except DSparkError as error:
            return failure(error)
        except OSError as error:
            _LOG.error("A recorded answer cannot be read.", exc_info=error)
            return failure(ParameterError("The recorded answer cannot be read; the server's log says why."))

    def _answer(self, asked: dict[str, Any], visitor: str) -> str:
        if asked.get("do") == "show":
            name = str(asked.get("name"))
            return message("recorded", name=name, **shipped_json(name))
        if asked.get("do") == "load":
            return message("recorded", name="", **loaded_json(asked.get("text"), asked.get("name")))
        if asked.get("do") == "save":
            return message("file", **saved_json(self._deck.visitors.kept.of(visitor)))
        raise ParameterError("Nothing that this panel does was asked for. Load the page again.")
