"""Keys and values of one request in the target: one block of memory, a length, nothing else."""

from __future__ import annotations

import psutil
import torch

from dspark_core.errors import ResourceError
from dspark_core.target.base import KVSlot

_SPARE_BYTES = 64 * 2**20  # what a pass itself may need beside the slot


class LlamaSlot:
    """Storage [layers, 2, kv_heads, capacity, head_dim] of which the first ``length`` positions are valid.

    With ``poison`` every unused position holds NaN, so that a stale or unwritten read shows in the logits.
    """

    __slots__ = ("_data", "_poison", "capacity", "length")

    def __init__(self, shape: tuple[int, int, int, int, int], dtype: torch.dtype, device: torch.device, poison: bool):
        """Allocate.

        Raises:
            ResourceError: the memory is not there.
        """
        self.capacity = shape[3]
        self.length = 0
        self._poison = poison
        self._data: torch.Tensor | None = _allocate(shape, dtype, device)
        if poison:
            self._data.fill_(float("nan"))

    @property
    def data(self) -> torch.Tensor:
        """The storage of a slot that is in use."""
        assert self._data is not None, "a released slot was used"  # noqa: S101
        return self._data

    def crop(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens, in O(1) (poisoned memory is overwritten, O(tokens))."""
        assert 0 <= length <= self.length, f"crop to {length} tokens of {self.length}"  # noqa: S101
        if self._poison:
            self.data[:, :, :, length : self.length] = float("nan")
        self.length = length

    def copy_from(self, other: KVSlot, length: int) -> None:
        """Hold the first ``length`` tokens of ``other``, a slot of the same target, instead of one's own."""
        assert isinstance(other, LlamaSlot), "a slot of another target"  # noqa: S101
        assert length <= min(other.length, self.capacity), f"{length} of {other.length} tokens"  # noqa: S101
        self.crop(0)
        self.data[:, :, :, :length] = other.data[:, :, :, :length]
        self.length = length

    def release(self) -> None:
        """Give the memory back; any later use of the slot fails. Releasing twice is harmless."""
        self._data = None
        self.length = self.capacity = 0


def _allocate(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    if device.type == "cpu" and size + _SPARE_BYTES > psutil.virtual_memory().available:
        raise _no_memory(shape[3], size, device)
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except (RuntimeError, MemoryError) as error:  # torch's out-of-memory errors are RuntimeErrors
        raise _no_memory(shape[3], size, device) from error


def _no_memory(tokens: int, size: int, device: torch.device) -> ResourceError:
    return ResourceError(
        f"The keys and values of {tokens} tokens need {size / 2**20:.0f} MB on {device}, which is more than is free. "
        "Ask for fewer new tokens, send a shorter prompt, or wait until other requests have ended."
    )
