"""The tab Load: virtual users on the engine that everybody shares, and what their number does to everybody."""

from ui.load.tab import Load as Load
