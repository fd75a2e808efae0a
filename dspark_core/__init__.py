"""DSpark: speculative decoding with a semi-autoregressive drafter and a confidence scheduler."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dspark_core.api import DSpark

__all__ = ["DSpark", "__version__"]

__version__ = "0.1.0"

# How often a thread of torch's looks for its next piece of work before it sleeps (libgomp reads this when torch is
# imported). Its own 300,000 are milliseconds: two engines on two cores then take turns in waiting for each other, and
# need 1.6 times as long as with this, which costs an engine by itself a tenth. A value that is set is left alone.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def __getattr__(name: str) -> Any:
    """`DSpark`, imported only when it is asked for: the events and parameters alone need no torch."""
    if name == "DSpark":
        from dspark_core.api import DSpark

        return DSpark
    raise AttributeError(f"module 'dspark_core' has no attribute {name!r}")
