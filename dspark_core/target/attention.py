"""Attention of one pass over several requests, each over its own slot: ragged, no padding.

Symbols: n tokens of one request, N tokens of all requests in the pass, T tokens in a slot after the pass, D head size,
G query heads per key/value head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from dspark_core.target.kv_cache import LlamaSlot

# (layer, queries [N, heads, D], keys and values [2, kv_heads, N, D]) → [N, heads·D]; rotated already, not stored yet.
Attend = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class _View:
    """What rows may see: the positions from ``begin`` on, masked."""

    begin: int
    mask: torch.Tensor | None  # [G·n, T - begin]; None for a single row and at the beginning of a text


@dataclass(frozen=True, slots=True)
class _Part:
    """One request's rows in a pass: rows ``first`` to ``first + count`` go to positions ``start`` … of ``slot``."""

    slot: LlamaSlot
    first: int
    count: int
    start: int
    views: Mapping[int | None, _View]  # by the layers' windows


class RaggedAttention:
    """An `Attend` that appends each request's keys and values to its slot; the slots' lengths move in `commit`."""

    def __init__(
        self, slots: Sequence[LlamaSlot], counts: Sequence[int], groups: int, windows: Sequence[int | None]
    ) -> None:
        """Rows of slot i come i-th, ``counts[i]`` of them; ``groups`` = G; each layer's window, or None."""
        self._windows = windows
        self._parts: list[_Part] = []
        first = 0
        for slot, count in zip(slots, counts, strict=True):
            views = {window: _view(slot, count, groups, window) for window in set(windows)}
            self._parts.append(_Part(slot, first, count, slot.length, views))
            first += count

    def rows_of(self, table: torch.Tensor) -> torch.Tensor:
        """The rows [N, 1, …] of a table by position [P, …] that belong to the tokens of the pass."""
        rows = [table[part.start : part.start + part.count] for part in self._parts]
        return (rows[0] if len(rows) == 1 else torch.cat(rows)).unsqueeze(1)

    def commit(self) -> None:
        """The pass is over: the tokens belong to the slots."""
        for part in self._parts:
            part.slot.length = part.start + part.count

    def __call__(self, layer: int, queries: torch.Tensor, keys_values: torch.Tensor) -> torch.Tensor:
        """Store and attend: queries [N, heads, D], keys_values [2, kv_heads, N, D] → [N, heads·D]."""
        window = self._windows[layer]
        if len(self._parts) == 1:
            return _attend_one(queries, keys_values, layer, self._parts[0], window)
        attended = queries.new_empty(len(queries), queries.shape[1] * queries.shape[2])
        for part in self._parts:
            rows = slice(part.first, part.first + part.count)
            attended[rows] = _attend_one(queries[rows], keys_values[:, :, rows], layer, part, window)
        return attended


def _view(slot: LlamaSlot, count: int, groups: int, window: int | None) -> _View:
    """The next ``count`` rows of the slot: each sees itself and what is before it, ``window`` positions in all."""
    start = slot.length
    begin = 0 if window is None else max(0, start + 1 - window)
    whole = window is None or start + count <= window
    if count == 1 or (start == 0 and whole):
        return _View(begin, None)
    shape = (count, start - begin + count)
    mask = torch.full(shape, float("-inf"), dtype=slot.data.dtype, device=slot.data.device)
    if window is None or whole:
        return _View(begin, mask.triu_(start - begin + 1).repeat(groups, 1))
    passed = mask.clone().tril_(start - begin - window)
    return _View(begin, mask.triu_(start - begin + 1).add_(passed).repeat(groups, 1))


def _attend_one(
    queries: torch.Tensor, keys_values: torch.Tensor, layer: int, part: _Part, window: int | None
) -> torch.Tensor:
    """One request: queries [n, heads, D] over its slot, keys_values [2, kv_heads, n, D] stored first."""
    count, (_, kv_heads, _, size) = part.count, keys_values.shape
    end, view = part.start + count, part.views[window]
    stored = part.slot.data[layer]
    stored[:, :, part.start : end] = keys_values
    keys, values = stored[0, :, view.begin : end], stored[1, :, view.begin : end]
    if count == 1:  # sees all of the view; the fused kernel takes the heads of a group as rows
        one = queries.view(1, kv_heads, -1, size)
        return functional.scaled_dot_product_attention(one, keys[None], values[None]).view(1, -1)
    if view.mask is None:  # the beginning of a text
        mixed = functional.scaled_dot_product_attention(
            queries.transpose(0, 1)[None], keys[None], values[None], is_causal=True, enable_gqa=True
        )
        return mixed[0].transpose(0, 1).reshape(count, -1)
    grouped = queries.reshape(count, kv_heads, -1, size).permute(1, 2, 0, 3).reshape(kv_heads, -1, size)
    scores = torch.baddbmm(view.mask, grouped, keys.transpose(1, 2), alpha=1.0 / math.sqrt(size))
    mixed = torch.bmm(scores.softmax(-1), values)
    return mixed.view(kv_heads, -1, count, size).permute(2, 0, 1, 3).reshape(count, -1)
