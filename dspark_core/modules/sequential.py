"""Sequential heads: what the tokens drawn before add to the next position's base logits.

Every head is B_k(v) = u_k · W2[v] (DSpark §3, "vanilla", "gated" and "rnn"; "conv" is ours). They differ in `mix`,
which makes u_k of the tokens drawn so far, the anchor included, and of the hidden state h_k.

Symbols: V vocabulary, H hidden size, r Markov rank, L positions of a block, C candidate tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_CONV_WIDTH = 4  # tokens that the convolution sees


class MarkovHead(nn.Module):
    """u_k = W1[x_{k-1}]: a bigram table of rank r ("vanilla"). W2 starts at zero: no bias."""

    def __init__(self, vocab_size: int, rank: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.sparse_gradients = False  # training on a part of the vocabulary touches few rows of these large tables
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, vocab_size, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=rank**-0.5)
        nn.init.zeros_(self.markov_w2.weight)

    def embed(self, prev_ids: Tensor) -> Tensor:
        """W1[x_{k-1}] [..., r] of ids [...]; the confidence head reads it too."""
        return functional.embedding(prev_ids, self.markov_w1.weight, sparse=self.sparse_gradients)

    def mix(self, state: Tensor | None, embedding: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002
        """One position: W1[x_{k-1}] [..., r] and h_k [..., H] → (u_k [..., r], state for the next position).

        `state` is None at the start of a block.
        """
        return embedding, None

    def block(self, embeddings: Tensor, hidden: Tensor) -> Tensor:
        """u_1 … u_L [..., L, r] of a block whose tokens are known: W1[x_0] … W1[x_{L-1}] [..., L, r], h [..., L, H]."""
        return self.mix(None, embeddings, hidden)[0]  # without a state, all positions at once

    def scores(self, mixed: Tensor, candidate_ids: Tensor | None = None) -> Tensor:
        """Logit bias [..., V] of u [..., r], or [..., C] at `candidate_ids` [C] only."""
        table: Tensor = self.markov_w2.weight
        if candidate_ids is not None:
            table = functional.embedding(candidate_ids, table, sparse=self.sparse_gradients)
        return functional.linear(mixed, table)

    def without_tables(self) -> MarkovHead:
        """A float32 copy on the CPU whose `mix` is this head's; its tables hold nothing."""
        copy = type(self)(1, self.markov_w1.embedding_dim, self.hidden_size)
        own = {
            name: value.float().cpu() for name, value in self.state_dict().items() if not name.startswith("markov_w")
        }
        copy.load_state_dict(own, strict=False)
        return copy.requires_grad_(False)


class GatedHead(MarkovHead):
    """u_k = σ(G [h_k; W1[x_{k-1}]]) ⊙ W1[x_{k-1}]: the position decides which parts of the bigram count."""

    def __init__(self, vocab_size: int, rank: int, hidden_size: int) -> None:
        super().__init__(vocab_size, rank, hidden_size)
        self.gate_proj = nn.Linear(hidden_size + rank, rank)

    def mix(self, state: Tensor | None, embedding: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002
        """See `MarkovHead.mix`."""
        gate = torch.sigmoid(self.gate_proj(torch.cat((hidden.to(embedding.dtype), embedding), dim=-1)))
        return gate * embedding, None


class RecurrentHead(MarkovHead):
    """A head whose state runs through the block."""

    def block(self, embeddings: Tensor, hidden: Tensor) -> Tensor:
        """See `MarkovHead.block`: one position after the other."""
        state, mixed = None, []
        for k in range(embeddings.shape[-2]):
            u, state = self.mix(state, embeddings[..., k, :], hidden[..., k, :])
            mixed.append(u)
        return torch.stack(mixed, dim=-2)


class RnnHead(RecurrentHead):
    """u_k = tanh(o), s_k = σ(g) ⊙ s_{k-1} + (1 - σ(g)) ⊙ tanh(c), s_0 = 0.

    [g; c; o] = J [s_{k-1}; W1[x_{k-1}]; h_k].
    """

    def __init__(self, vocab_size: int, rank: int, hidden_size: int) -> None:
        super().__init__(vocab_size, rank, hidden_size)
        self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def mix(self, state: Tensor | None, embedding: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `MarkovHead.mix`."""
        before = torch.zeros_like(embedding) if state is None else state
        joint = self.joint_proj(torch.cat((before, embedding, hidden.to(embedding.dtype)), dim=-1))
        gate, candidate, output = joint.chunk(3, dim=-1)
        keep = torch.sigmoid(gate)
        return torch.tanh(output), keep * before + (1 - keep) * torch.tanh(candidate)


class ConvHead(RecurrentHead):
    """u_k = Σ_j w_j ⊙ W1[x_{k-1-j}], j = 0 … 3: a causal convolution, channel by channel, from the anchor on.

    It begins as the bigram: w_0 = 1, the others 0.
    """

    def __init__(self, vocab_size: int, rank: int, hidden_size: int) -> None:
        super().__init__(vocab_size, rank, hidden_size)
        self.conv_weight = nn.Parameter(torch.zeros(_CONV_WIDTH, rank))
        nn.init.ones_(self.conv_weight[0])

    def mix(self, state: Tensor | None, embedding: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002
        """See `MarkovHead.mix`; the state is [..., 3, r], the embeddings before this one."""
        if state is None:
            state = torch.zeros_like(embedding).unsqueeze(-2).repeat_interleave(_CONV_WIDTH - 1, dim=-2)
        window = torch.cat((embedding.unsqueeze(-2), state), dim=-2)
        return (window * self.conv_weight).sum(-2), window[..., :-1, :]


HEADS: dict[str, type[MarkovHead]] = {"vanilla": MarkovHead, "gated": GatedHead, "rnn": RnnHead, "conv": ConvHead}
