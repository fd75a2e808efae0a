"""The choice of the card: which one NVML has to be asked about, whatever CUDA calls it in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

_UUID_KINDS = ("GPU-", "MIG-")


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """Which card to measure.

    Attributes:
        index: number of the card as CUDA counts it in this process.
        uuid: the card's UUID if known ("GPU-…", "MIG-…", or bare), which NVML and CUDA agree on whatever their order.
    """

    index: int = 0
    uuid: str | None = None

    def nvml_keys(self, environment: Mapping[str, str]) -> tuple[str | int, ...]:
        """What NVML may know the card by, best first: UUIDs, or else its number as CUDA_VISIBLE_DEVICES maps it.

        A bare UUID may be a card's or that of a MIG slice of one. Numbers agree only when CUDA counts in bus order (one
        card, or CUDA_DEVICE_ORDER=PCI_BUS_ID); so a known UUID goes first. Raises LookupError when
        CUDA_VISIBLE_DEVICES has no such card.
        """
        if self.uuid:
            bare = not self.uuid.startswith(_UUID_KINDS)
            return tuple(kind + self.uuid for kind in _UUID_KINDS) if bare else (self.uuid,)
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return (self.index,)
        # CUDA hides every card from the first entry on that names none.
        cards = list(takewhile(lambda card: card and not card.startswith("-"), map(str.strip, visible.split(","))))
        if self.index >= len(cards):
            raise LookupError(f"CUDA_VISIBLE_DEVICES={visible!r} has no card {self.index}")
        card = cards[self.index]
        return (int(card) if card.isdecimal() else card,)

    def handle(self, nvml: Any, environment: Mapping[str, str]) -> Any:
        """NVML's handle of the card. Raises LookupError, or whatever NVML raises about the last key that it refused."""
        *others, last = self.nvml_keys(environment)
        for key in others:
            try:
                return _handle_by(nvml, key)
            except Exception:  # NVML's own error: no such card; the next key may name it
                continue
        return _handle_by(nvml, last)


def _handle_by(nvml: Any, key: str | int) -> Any:
    if isinstance(key, int):
        return nvml.nvmlDeviceGetHandleByIndex(key)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(key)
    except Exception:
        handle = _by_beginning(nvml, key)
        if handle is None:
            raise
        return handle


def _by_beginning(nvml: Any, start: str) -> Any | None:
    """The one card whose UUID begins so: CUDA_VISIBLE_DEVICES may shorten it, NVML wants the whole."""
    if not start.startswith("GPU-") or len(start) == len("GPU-"):
        return None
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    found = [handle for handle in handles if _text(nvml.nvmlDeviceGetUUID(handle)).startswith(start)]
    return found[0] if len(found) == 1 else None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
