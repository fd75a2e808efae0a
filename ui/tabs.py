"""The tabs beside Chat, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from ui.calibration import Calibration
from ui.cost import Cost
from ui.explore import Explore
from ui.lab import Lab
from ui.learn import Learn
from ui.load import Load
from ui.panels import panel
from ui.race import Race
from ui.tab import Deck, Tab


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
    return (Rounds(), Race(), Explore(), Load(), Cost(), Calibration(), Lab(), Learn())
