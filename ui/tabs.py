"""The tabs beside Chat: what each is, and what its handlers get. A tab is one package or module under ``ui``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gradio as gr

from ui.host import SessionHost
from ui.layout import Parts
from ui.panels import panel
from ui.visitors import Visitors


@dataclass(frozen=True, slots=True)
class Deck:
    """What every tab may use.

    Attributes:
        demo: the page, for its load event.
        host: the one session behind the page.
        visitors: whose answer runs.
        parts: the components of Chat, for what a tab hands over to it.
        quiet: keyword arguments of every private listener.
    """

    demo: gr.Blocks
    host: SessionHost
    visitors: Visitors
    parts: Parts
    quiet: dict[str, Any]


class Tab(Protocol):
    """One tab of the page; made anew for each page, so it may keep its components."""

    @property
    def key(self) -> str:
        """Its name in addresses (``?tab=rounds``)."""

    @property
    def title(self) -> str:
        """Its name on the page."""

    def build(self) -> None:
        """Put its components where it stands; called inside its ``gr.Tab``."""

    def connect(self, deck: Deck) -> None:
        """Attach its listeners, once everything is on the page."""


class Rounds:
    """One round in detail: drawn in the browser from the answer's messages."""

    key, title = "rounds", "Rounds"

    def build(self) -> None:
        """The panel; it is filled by scripts."""
        panel("rounds", elem_id="ds-rounds-panel")

    def connect(self, deck: Deck) -> None:
        """Nothing to attach: the panel reads what Chat is sent."""


def page_tabs() -> Sequence[Tab]:
    """The tabs of one page, in the order in which they stand behind Chat."""
    return (Rounds(),)
