"""The tabs beside Chat, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from ui.calibration import Calibration
from ui.cost import Cost
from ui.explore import Explore
from ui.lab import Lab
from ui.learn import Learn
from ui.load import Load
from ui.race import Race
from ui.rounds import Rounds
from ui.tab import Tab


def page_tabs() -> Sequence[Tab]:
    """The tabs of one page, in the order in which they stand behind Chat."""
    return (Rounds(), Race(), Explore(), Load(), Cost(), Calibration(), Lab(), Learn())
