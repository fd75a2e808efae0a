"""The tab Race: the same prompt by a few methods, one after the other, replayed on one clock."""

from ui.race.tab import Race

__all__ = ["Race"]
