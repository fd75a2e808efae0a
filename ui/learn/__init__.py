"""The tab Learn: lessons whose pictures are drawn from what the engine recorded, and a glossary."""

from __future__ import annotations

from ui.panels import panel
from ui.tab import Deck


class Learn:
    """Eight lessons and a glossary. Their figures stand in ``ui/static/lessons.json``, made by `ui.learn.record`."""

    key, title = "learn", "Learn"

    def build(self) -> None:
        """The panel; scripts fill it."""
        panel("learn", elem_id="ds-learn-panel")

    def connect(self, deck: Deck) -> None:
        """Nothing to attach: the lessons work without the engine."""
