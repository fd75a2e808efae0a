"""Confidence head: how likely x_k is accepted, told before x_k is drawn."""

import math

import torch
from torch import Tensor, nn

MOST_ODDS = 12.0  # beyond, p is 0 or 1 but for rounding
_UNIT = 10.0  # as the copy head's: a few numbers that must move as far as logits do


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


class LawConfidence(nn.Module):
    """What the draft law itself tells of x_k, added to the head's logit: σ(a·logit + b·s_k + d).

    Ours, not in the paper. s_k is the log odds of the law's likeliest token: a law that is sure of its token is mostly
    right. The law of x_k is made from x_<k alone, so c_k is still known before x_k is drawn; only the law has to be
    computed first. Beside the head, whose weights stay as the paper has them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([1.0, 0.0, 0.0]) / _UNIT)  # a, b, d

    def forward(self, logit: Tensor, odds: Tensor) -> Tensor:
        """The confidence's logit [...] from the head's [...] and s_k [...]."""
        a, b, d = (_UNIT * self.weights.float()).unbind()
        return a * logit.float() + b * odds.float() + d

    def numbers(self) -> tuple[float, float, float]:
        """a, b, d."""
        a, b, d = (_UNIT * self.weights.detach().float()).tolist()
        return a, b, d


def log_odds_of_best(logits: Tensor) -> Tensor:
    """s [...] = log p/(1-p) of the likeliest token under softmax(logits [..., C]), within ±`MOST_ODDS`."""
    wide = logits.float()
    best, at = wide.max(-1, keepdim=True)
    # Against all others: 1 - p of a sure law would be rounding alone, another in every batch.
    others = wide.scatter(-1, at, -math.inf).logsumexp(-1)
    return (best[..., 0] - others).clamp(-MOST_ODDS, MOST_ODDS)
