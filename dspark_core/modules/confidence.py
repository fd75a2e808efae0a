"""Confidence head: how likely x_k is accepted, told before x_k is drawn."""

import torch
from torch import Tensor, nn


class ConfidenceHead(nn.Module):
    """A linear map of [h_k; W1[x_{k-1}]] to one logit (DSpark §3); σ(logit) is P(x_k accepted | x_<k accepted)."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.proj = nn.Linear(inputs, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, hidden: Tensor, prev_embedding: Tensor | None) -> Tensor:
        """Logit [...] from h_k [..., H] and W1[x_{k-1}] [..., r] (None when the head was trained without it)."""
        inputs = hidden if prev_embedding is None else torch.cat((hidden, prev_embedding.to(hidden.dtype)), dim=-1)
        out: Tensor = self.proj(inputs).squeeze(-1)
        return out
