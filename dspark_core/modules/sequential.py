"""Sequential heads: what the token drawn just before adds to the next position's base logits.

Symbols: V vocabulary, r Markov rank, C candidate tokens.
"""

from torch import Tensor, nn
from torch.nn import functional


class MarkovHead(nn.Module):
    """B_k(v) = W1[x_{k-1}] · W2[v], a bigram table of rank r (DSpark §3, "vanilla"). W2 starts at zero: no bias."""

    def __init__(self, vocab_size: int, rank: int) -> None:
        super().__init__()
        self.sparse_gradients = False  # training on a part of the vocabulary touches few rows of these large tables
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, vocab_size, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=rank**-0.5)
        nn.init.zeros_(self.markov_w2.weight)

    def embed(self, prev_ids: Tensor) -> Tensor:
        """W1[x_{k-1}] [..., r] of ids [...]; the confidence head reads it too."""
        return functional.embedding(prev_ids, self.markov_w1.weight, sparse=self.sparse_gradients)

    def bias(self, prev_ids: Tensor, candidate_ids: Tensor | None = None) -> Tensor:
        """Logit bias [..., V] after tokens `prev_ids` [...], or [..., C] at `candidate_ids` [C] only."""
        table: Tensor = self.markov_w2.weight
        if candidate_ids is not None:
            table = functional.embedding(candidate_ids, table, sparse=self.sparse_gradients)
        return functional.linear(self.embed(prev_ids), table)
