"""No drafts: plain decoding through the same loop, the baseline that everything is measured against."""

from __future__ import annotations

import torch

from dspark_core.drafters.base import EMPTY_BLOCK, DraftBlock, GoesOn, OneByOne
from dspark_core.params import SamplingParams
from dspark_core.sampling import Dice


class NoneState:
    """Nothing to remember."""

    def observe(self, token_ids: tuple[int, ...], features: torch.Tensor) -> None:
        """Nothing to learn from."""

    def draft(
        self,
        anchor: int,  # noqa: ARG002
        count: int,  # noqa: ARG002
        sampling: SamplingParams,  # noqa: ARG002
        dice: Dice,  # noqa: ARG002
        goes_on: GoesOn | None = None,  # noqa: ARG002
    ) -> DraftBlock:
        """No drafts."""
        return EMPTY_BLOCK

    def release(self) -> None:
        """Nothing to give back."""


class NoneDrafter(OneByOne):
    """γ = 0: every round is one token of the target."""

    name = "none"
    note = "Plain decoding: one token a pass, nothing is drafted."
    num_draft_tokens = 0
    has_confidence = False
    tapped_layers: tuple[int, ...] = ()

    def open(self, capacity: int) -> NoneState:  # noqa: ARG002 - the protocol's shape
        """A state without content."""
        return NoneState()
