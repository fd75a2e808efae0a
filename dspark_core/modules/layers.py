"""One draft layer: attention over context and block, gated MLP, RMS norms, rotary positions.

Symbols: S sequences, A blocks (anchors) per sequence, L tokens per block, T context tokens, H hidden size,
N tokens of several requests' blocks, n context tokens of one request, h query heads, g key/value heads, d head size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from dspark_core.modules.config import DraftConfig

KeysValues = tuple[Tensor, Tensor]


class RMSNorm(nn.Module):
    """x / rms(x) · gain over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape and dtype as `x`; the mean square is taken in float32 or wider."""
        if self.weight.dtype == x.dtype:  # one fused kernel; mixed types would fall off it
            return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)
        wide = x if x.dtype == torch.float64 else x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight.to(x.dtype)


def rotary(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine [..., d] of positions [...] (float32; the two halves of d repeat the same angles)."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions.float().unsqueeze(-1) / theta**exponent
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn x [..., d] by its position's angles (half-split pairing, as Llama and Qwen)."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cosine.to(x.dtype) + turned * sine.to(x.dtype)


class DraftAttention(nn.Module):
    """Keys and values of [context; block]; queries of the block only, bidirectional inside it (arXiv 2602.06036)."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        hidden = config.hidden_size
        self.q_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def keys_values(self, x: Tensor, cosine: Tensor, sine: Tensor) -> KeysValues:
        """Keys (normed, turned) and values [..., g, n, d] of x [..., n, H]; used for context and block alike."""
        split = (*x.shape[:-1], self.kv_heads, self.head_dim)
        keys = self.k_norm(self.k_proj(x).view(split)).transpose(-2, -3)
        values = self.v_proj(x).view(split).transpose(-2, -3)
        return rotate(keys, cosine.unsqueeze(-3), sine.unsqueeze(-3)), values

    def forward(
        self, x: Tensor, cosine: Tensor, sine: Tensor, context: KeysValues, hidden_context: Tensor | None
    ) -> Tensor:
        """[S, A, L, H] from x of that shape, context K/V [S, g, T, d] and an additive mask [S, 1, A, 1, T] or None."""
        s, a, length, _ = x.shape
        g, group, d = self.kv_heads, self.heads // self.kv_heads, self.head_dim
        queries = self.q_norm(self.q_proj(x).view(s, a, length, g * group, d))
        queries = rotate(queries, cosine.unsqueeze(-2), sine.unsqueeze(-2)) * d**-0.5
        queries = queries.view(s, a, length, g, group, d).permute(0, 3, 1, 4, 2, 5).reshape(s, g, a, group * length, d)
        keys, values = (part.transpose(1, 2) for part in self.keys_values(x, cosine, sine))  # [S, g, A, L, d]
        context_keys, context_values = context
        t = context_keys.shape[-2]

        flat = queries.reshape(s, g, a * group * length, d)
        scores = (flat @ context_keys.transpose(-1, -2)).view(s, g, a, group * length, t)
        if hidden_context is not None:
            scores = scores + hidden_context.to(scores.dtype)
        scores = torch.cat((scores, queries @ keys.transpose(-1, -2)), dim=-1)
        wide = scores.dtype if scores.dtype == torch.float64 else torch.float32
        weights = functional.softmax(scores, dim=-1, dtype=wide).to(values.dtype)
        seen, own = weights[..., :t], weights[..., t:]
        mixed = (seen.reshape(s, g, a * group * length, t) @ context_values).view(s, g, a, group * length, d)
        mixed = mixed + own @ values
        mixed = mixed.view(s, g, a, group, length, d).permute(0, 2, 4, 1, 3, 5).reshape(s, a, length, g * group * d)
        out: Tensor = self.o_proj(mixed)
        return out

    def forward_ragged(
        self, x: Tensor, cosine: Tensor, sine: Tensor, lengths: Sequence[int], contexts: Sequence[KeysValues]
    ) -> Tensor:
        """[N, H] from x [N, H], several requests' blocks of the given lengths, each with its context K/V [g, n, d]."""
        g, group, d = self.kv_heads, self.heads // self.kv_heads, self.head_dim
        queries = self.q_norm(self.q_proj(x).view(-1, g * group, d))
        queries = rotate(queries, cosine.unsqueeze(-2), sine.unsqueeze(-2))
        queries = queries.view(-1, g, group, d).permute(1, 2, 0, 3)  # [g, group, N, d]
        keys, values = self.keys_values(x, cosine, sine)
        mixed = x.new_empty(len(x), g * group * d)
        first = 0
        for length, (context_keys, context_values) in zip(lengths, contexts, strict=True):
            rows = slice(first, first + length)
            own = queries[:, :, rows].reshape(1, g, group * length, d)  # a group's heads are rows: no repeated keys
            seen_keys = torch.cat((context_keys, keys[:, rows]), dim=1)
            seen_values = torch.cat((context_values, values[:, rows]), dim=1)
            heads = functional.scaled_dot_product_attention(own, seen_keys[None], seen_values[None])
            mixed[rows] = heads.view(g, group, length, d).permute(2, 0, 1, 3).reshape(length, -1)
            first += length
        out: Tensor = self.o_proj(mixed)
        return out


class DraftMLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x))."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x [..., H]."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DraftLayer(nn.Module):
    """Pre-norm attention and MLP with residuals. The context arrives normed already (`hidden_norm`), the block not."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DraftAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = DraftMLP(config)

    def forward(
        self, x: Tensor, cosine: Tensor, sine: Tensor, context: KeysValues, hidden_context: Tensor | None
    ) -> Tensor:
        """[S, A, L, H] → [S, A, L, H]; arguments as `DraftAttention.forward`."""
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine, context, hidden_context)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out

    def forward_ragged(
        self, x: Tensor, cosine: Tensor, sine: Tensor, lengths: Sequence[int], contexts: Sequence[KeysValues]
    ) -> Tensor:
        """[N, H] → [N, H]; arguments as `DraftAttention.forward_ragged`."""
        x = x + self.self_attn.forward_ragged(self.input_layernorm(x), cosine, sine, lengths, contexts)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
