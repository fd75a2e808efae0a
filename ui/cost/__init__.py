"""The tab Cost: what a request costs before and after, in money and energy, and when the total rises all the same."""

from ui.cost.tab import Cost as Cost
