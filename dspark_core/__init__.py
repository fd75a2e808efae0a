"""DSpark: speculative decoding with a semi-autoregressive drafter and a confidence scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dspark_core.api import DSpark

__all__ = ["DSpark", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`DSpark`, imported only when it is asked for: the events and parameters alone need no torch."""
    if name == "DSpark":
        from dspark_core.api import DSpark

        return DSpark
    raise AttributeError(f"module 'dspark_core' has no attribute {name!r}")
