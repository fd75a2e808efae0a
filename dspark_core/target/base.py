"""What the engine needs of a target model. Symbols: n tokens, V vocabulary, H hidden size, m tapped layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from dspark_core.target.linear import Linear


class KVSlot(Protocol):
    """One request's keys and values in the target."""

    @property
    def length(self) -> int:
        """Number of tokens held."""

    @property
    def capacity(self) -> int:
        """Number of tokens that fit."""

    def crop(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens, in O(1)."""

    def copy_from(self, other: KVSlot, length: int) -> None:
        """Hold the first ``length`` tokens of ``other``, a slot of the same target, instead of one's own."""

    def release(self) -> None:
        """Give the memory back; the slot must not be used afterwards."""


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """One request's part of a pass.

    Attributes:
        logits: [n, V], one row for each input token, or [0, V] when none were asked for.
        features: [n, m·H], outputs of the tapped layers, concatenated in the order of the taps.
        hidden: [n, H], what the LM head reads: the last layer's output after the last norm.
    """

    logits: torch.Tensor
    features: torch.Tensor
    hidden: torch.Tensor


class Target(Protocol):
    """The frozen model whose law the output has. One `forward` verifies several requests at once."""

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    max_context: int
    stop_token_ids: frozenset[int]
    device: torch.device
    dtype: torch.dtype

    def open_slot(self, capacity: int) -> KVSlot:
        """A slot for ``capacity`` tokens. Raises ResourceError when memory is short."""

    def forward(
        self,
        slots: Sequence[KVSlot],
        token_ids: Sequence[Sequence[int]],
        *,
        tapped_layers: tuple[int, ...],
        want_logits: bool = True,
    ) -> list[TargetOutput]:
        """Append each request's tokens to its slot and return their logits and features, ragged, no padding."""

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Input embeddings [n, H] (already scaled where the family scales them)."""

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [n, V] of final hidden states [n, H] (already capped where the family caps them)."""

    def narrow_head(self, token_ids: torch.Tensor) -> Linear:
        """`lm_head` for the tokens [C] alone: a function from [n, H] to [n, C]."""
