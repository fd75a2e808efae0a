"""What a tab beside Chat is, and what its handlers get. A tab is one package or module under ``ui``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import gradio as gr

from ui.address import Address
from ui.host import SessionHost
from ui.layout import Parts
from ui.ports import SessionPort
from ui.visitors import Visitors

Fit = tuple[Sequence[Any], Callable[[SessionPort], dict[Any, Any]]]


@dataclass(frozen=True, slots=True)
class Deck:
    """What every tab may use.

    Attributes:
        demo: the page, for its load event.
        host: the one session behind the page.
        visitors: whose answer runs.
        parts: the components of Chat, for what a tab hands over to it.
        quiet: keyword arguments of every private listener.
        signs: what tabs add to the status that every visitor gets once a second: a name, and who tells it.
        address: the page's address, for controls of the tab that a link may set.
        fits: components, and who tells what of them the session changes once it is open (choices, bounds). What the
            address says of them holds; so a tab must not set them by itself.
    """

    demo: gr.Blocks
    host: SessionHost
    visitors: Visitors
    parts: Parts
    quiet: dict[str, Any]
    signs: dict[str, Callable[[], Any]]
    address: Address
    fits: list[Fit] = field(default_factory=list)


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
