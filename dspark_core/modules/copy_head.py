"""Copy head: how much more likely the token is that followed the same words earlier in this very text.

Ours, not in the paper. The draft layers see the context through a few layers only and copy badly; a look-up copies
exactly, and this head says how far to trust it. It is part of the draft law, so the text's law stays the target's.
Symbols: n length of the match, N the longest that is told apart, H hidden size.
"""

import torch
from torch import Tensor, nn

LONGEST = 8  # N
_UNIT = 10.0  # weights are stored and learnt in these units: a few numbers that must move as far as logits do


class CopyHead(nn.Module):
    """Logit bias λ_n + w·h_k of the copied token, and β_n for the confidence; nothing where nothing matches."""

    def __init__(self, longest: int, hidden_size: int) -> None:
        super().__init__()
        self.by_length = nn.Parameter(torch.linspace(0, 3, longest + 1) / _UNIT)
        self.hidden = nn.Parameter(torch.zeros(hidden_size))
        self.confidence = nn.Parameter(torch.zeros(longest + 1))

    @property
    def longest(self) -> int:
        """N."""
        return len(self.by_length) - 1

    def gate(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """The bias [...] of the copied token's logit, from h_k [..., H] and n [...]; 0 where n is 0."""
        at = lengths.clamp_max(self.longest)
        bias = _UNIT * self.by_length.float()[at] + hidden.float() @ self.hidden.float()
        return bias * (lengths > 0)

    def confidence_shift(self, lengths: Tensor) -> Tensor:
        """β_n [...] for n [...], added to the confidence's logit; known before x_k is drawn, as the match is."""
        return _UNIT * self.confidence.float()[lengths.clamp_max(self.longest)]
