"""The parallel backbone: one pass from target features and a block of masks to the hidden states of all its positions.

Symbols: S sequences, A blocks (anchors) per sequence, L tokens per block (γ when drafting), T or n context tokens,
m tapped target layers, H hidden size, g key/value heads, d head size. Tensor names are DeepSpec's.
Source: DSpark (DeepSeek 2026) §3, DFlash (arXiv 2602.06036).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dspark_core.modules.config import DraftConfig
from dspark_core.modules.layers import DraftLayer, KeysValues, RMSNorm, rotary

__all__ = ["Backbone", "DraftConfig", "KeysValues"]


class Backbone(nn.Module):
    """Draft layers whose keys and values also cover the target's features of every token before the anchor."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def context_keys_values(self, features: Tensor, positions: Tensor) -> list[KeysValues]:
        """Per layer, keys (normed and turned) and values [..., g, n, d] of the context.

        `features` [..., n, m·H] are the tapped layers side by side, `positions` [..., n] the tokens' own positions.
        A token's entry depends on that token alone, so it is computed once and kept.
        """
        mixed = self.hidden_norm(self.fc(features))
        cosine, sine = rotary(positions, self.config.head_dim, self.config.rope_theta)
        return [layer.self_attn.keys_values(mixed, cosine, sine) for layer in self._layers()]

    def forward_block(self, block_embeddings: Tensor, positions: Tensor, context: Sequence[KeysValues]) -> Tensor:
        """Hidden states [γ, H] after the final norm, one block that sees all the given context.

        `block_embeddings` [γ, H] = anchor and masks, `positions` [γ], `context` per layer (k, v) each [g, n, d].
        """
        return self.forward_ragged(block_embeddings, positions, [len(positions)], [context])

    def forward_ragged(
        self,
        block_embeddings: Tensor,
        positions: Tensor,
        lengths: Sequence[int],
        contexts: Sequence[Sequence[KeysValues]],
    ) -> Tensor:
        """Hidden states [N, H] after the final norm for blocks of several requests, one after the other, no padding.

        `block_embeddings` [N, H], `positions` [N], `lengths` of the blocks (their sum is N); each block sees all of
        its own context, per layer (k, v) each [g, n, d].
        """
        cosine, sine = rotary(positions, self.config.head_dim, self.config.rope_theta)
        x = block_embeddings
        for layer, keys_values in zip(self._layers(), zip(*contexts, strict=True), strict=True):
            x = layer.forward_ragged(x, cosine, sine, lengths, keys_values)
        out: Tensor = self.norm(x)
        return out

    def forward_blocks(
        self, block_embeddings: Tensor, positions: Tensor, context: Sequence[KeysValues], visible: Tensor | None = None
    ) -> Tensor:
        """Hidden states [S, A, L, H] after the final norm for many blocks that share their sequence's context.

        `block_embeddings` [S, A, L, H], `positions` [S, A, L], `context` per layer (k, v) each [S, g, T, d];
        `visible` [S, A, T] is true where a block may look (strictly before its anchor); None: everywhere.
        """
        cosine, sine = rotary(positions, self.config.head_dim, self.config.rope_theta)
        hidden_context = None
        if visible is not None:
            hidden_context = torch.zeros(visible.shape, dtype=block_embeddings.dtype, device=visible.device)
            hidden_context = hidden_context.masked_fill(~visible, float("-inf"))[:, None, :, None, :]
        x = block_embeddings
        for layer, keys_values in zip(self.layers, context, strict=True):
            x = layer(x, cosine, sine, keys_values, hidden_context)
        out: Tensor = self.norm(x)
        return out

    def _layers(self) -> list[DraftLayer]:
        return [layer for layer in self.layers if isinstance(layer, DraftLayer)]
