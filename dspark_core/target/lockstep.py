"""Many texts that each grow by one token per pass, in one block of memory: how a target writes training data fast.

A pass over R slots costs R small attentions per layer. Here the R texts' keys lie side by side, so that a layer's
attention is two batched products, and single rows may start a new text while the others go on.

Symbols: R rows (texts), N tokens of one pass, C capacity of a row, H hidden size, D head size, m tapped layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dspark_core.errors import ParameterError
from dspark_core.target.llama import LlamaTarget

_STEP = 16  # attention looks at a whole number of these positions


class Lockstep:
    """R texts over one target; `lengths` [R] says how many tokens each holds."""

    def __init__(self, target: LlamaTarget, rows: int, capacity: int) -> None:
        """Allocate the block.

        Raises:
            ParameterError: no row, or rows longer than the target's context.
        """
        if rows < 1 or not 1 <= capacity <= target.max_context:
            raise ParameterError(
                f"{rows} rows of {capacity} tokens were asked for; give at least one row of 1 to {target.max_context} "
                f"tokens, which is the context of {target.name}."
            )
        self.target, self.capacity = target, -(-capacity // _STEP) * _STEP
        config = target.config
        layers, heads, size = config.num_layers, config.num_kv_heads, config.head_dim
        # Keys transposed and both in the target's own type: the batched bf16 products are then the fastest ones.
        self._keys = torch.zeros(layers, rows, heads, size, self.capacity, dtype=target.dtype, device=target.device)
        self._values = torch.zeros(layers, rows, heads, self.capacity, size, dtype=target.dtype, device=target.device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=target.device)
        self._rows = torch.arange(rows, device=target.device)
        self._masks: dict[int | None, torch.Tensor] = {}  # [R, 1, 1, seen], by the layers' windows

    @torch.inference_mode()
    def step(
        self, token_ids: Sequence[int], *, tapped_layers: tuple[int, ...] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append one token to every row; returns (final hidden state [R, H], tapped outputs [R, m·H]).

        The caller sees to it that no row is full and that there is one token for every row.
        """
        assert len(token_ids) == len(self.lengths), "one token a row"  # noqa: S101
        longest = int(self.lengths.max()) + 1
        assert longest <= self.capacity, "a row is full"  # noqa: S101
        seen = torch.arange(-(-longest // _STEP) * _STEP, device=self.lengths.device)
        self._masks = {window: self._mask(seen, window) for window in set(self.target.config.windows)}
        tables = self.target.rotary_tables(self.capacity)
        rotations = [(cos[self.lengths].unsqueeze(1), sin[self.lengths].unsqueeze(1)) for cos, sin in tables]
        ids = torch.tensor(token_ids, device=self.lengths.device)
        hidden, features = self.target.run_layers(ids, rotations, self._attend, tapped_layers)
        self.lengths += 1
        return hidden, features

    def prefix(self, row: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A copy of a row's first `length` keys and values, for `restart`."""
        return self._keys[:, row, :, :, :length].clone(), self._values[:, row, :, :length].clone()

    def restart(self, row: int, prefix: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Forget a row's text; it holds `prefix` from now on."""
        keys, values = prefix
        length = values.shape[-2]
        self._keys[:, row, :, :, :length] = keys
        self._values[:, row, :, :length] = values
        self.lengths[row] = length

    def _mask(self, seen: torch.Tensor, window: int | None) -> torch.Tensor:
        """[R, 1, 1, seen]: 0 where a row's next token may look, -∞ elsewhere."""
        last = self.lengths.unsqueeze(1)
        visible = seen <= last if window is None else (seen <= last) & (seen > last - window)
        return torch.where(visible, 0.0, -math.inf)[:, None, None]

    def _attend(self, layer: int, queries: torch.Tensor, keys_values: torch.Tensor) -> torch.Tensor:
        """An `Attend`: row i of the pass is text i. Unwritten positions hold zeros or an older text, always masked."""
        rows, heads, size = queries.shape
        mask = self._masks[self.target.config.windows[layer]]
        kv_heads, seen = keys_values.shape[1], mask.shape[-1]
        stored = keys_values.to(self._keys.dtype)
        self._keys[layer, self._rows, :, :, self.lengths] = stored[0].transpose(0, 1)
        self._values[layer, self._rows, :, self.lengths] = stored[1].transpose(0, 1)
        keys = self._keys[layer, :, :, :, :seen].flatten(0, 1)
        values = self._values[layer, :, :, :seen].flatten(0, 1)
        grouped = queries.to(keys.dtype).reshape(rows * kv_heads, -1, size)
        scores = torch.bmm(grouped, keys).view(rows, kv_heads, -1, seen).float()
        weights = (scores / math.sqrt(size) + mask).softmax(-1).to(keys.dtype)
        return torch.bmm(weights.view(rows * kv_heads, -1, seen), values).view(rows, heads * size)
