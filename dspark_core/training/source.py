"""The frozen target as training sees it: whole sequences in, tapped layers and final hidden state out. No KV cache.

Symbols: B sequences, T tokens, m taps, H hidden size, V vocabulary.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from dspark_core.errors import ModelUnavailableError
from dspark_core.modules.layers import rotary, rotate

Weights = Mapping[str, Tensor]


class LlamaSource:
    """A Llama-shaped target (no biases, default RoPE) read from a folder of Hugging Face files."""

    def __init__(self, config: Mapping[str, Any], weights: Weights, taps: tuple[int, ...]) -> None:
        if config.get("model_type") != "llama":
            raise ModelUnavailableError(
                f"The trainer reads Llama-shaped targets; this folder holds a {config.get('model_type')!r}."
            )
        self.taps = taps
        self.weights = weights
        self.hidden_size = int(config["hidden_size"])
        self.vocab_size = int(config["vocab_size"])
        self.num_layers = int(config["num_hidden_layers"])
        self.heads = int(config["num_attention_heads"])
        self.kv_heads = int(config["num_key_value_heads"])
        self.head_dim = int(config.get("head_dim") or self.hidden_size // self.heads)
        self.intermediate_size = int(config["intermediate_size"])
        self.eps = float(config["rms_norm_eps"])
        nested = config.get("rope_parameters") or {}
        self.rope_theta = float(nested.get("rope_theta") or config.get("rope_theta") or 10_000.0)
        self.max_position_embeddings = int(config["max_position_embeddings"])

    @property
    def embedding(self) -> Tensor:
        """Token embeddings [V, H]."""
        return self.weights["model.embed_tokens.weight"]

    @property
    def lm_head(self) -> Tensor:
        """Output table [V, H]: the embedding again when the target ties them."""
        return self.weights.get("lm_head.weight", self.embedding)

    def layer(self, index: int, name: str) -> Tensor:
        """Weight `name` (such as `self_attn.q_proj`) of one layer."""
        return self.weights[f"model.layers.{index}.{name}.weight"]

    def norm(self, x: Tensor, gain: Tensor) -> Tensor:
        """RMS norm over the last axis, mean square in float32."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * gain

    @torch.inference_mode()
    def __call__(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Taps [B, T, m·H] and final hidden state after the last norm [B, T, H] of right-padded ids [B, T].

        Attention is causal, so padding on the right cannot reach a real token.
        """
        table = self.embedding
        x = functional.embedding(ids.to(table.device), table)
        positions = torch.arange(ids.shape[1], device=table.device)
        turn = rotary(positions, self.head_dim, self.rope_theta)
        tapped = [x] if -1 in self.taps else []
        for index in range(self.num_layers):
            x = self._layer(index, x, turn)
            if index in self.taps:
                tapped.append(x)
        return torch.cat(tapped, dim=-1), self.norm(x, self.weights["model.norm.weight"])

    def _layer(self, index: int, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        b, t, _ = x.shape
        normed = self.norm(x, self.layer(index, "input_layernorm"))
        q, k, v = (
            functional.linear(normed, self.layer(index, f"self_attn.{name}_proj"))
            .view(b, t, heads, self.head_dim)
            .transpose(1, 2)
            for name, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads))
        )
        q, k = rotate(q, *turn), rotate(k, *turn)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + functional.linear(mixed.transpose(1, 2).reshape(b, t, -1), self.layer(index, "self_attn.o_proj"))
        normed = self.norm(x, self.layer(index, "post_attention_layernorm"))
        gate, up = (functional.linear(normed, self.layer(index, f"mlp.{name}_proj")) for name in ("gate", "up"))
        return x + functional.linear(functional.silu(gate) * up, self.layer(index, "mlp.down_proj"))


def load_source(folder: Path, taps: tuple[int, ...], device: str = "cpu") -> LlamaSource:
    """Read `config.json` and every `*.safetensors` of a folder (weights in the dtype they are stored in)."""
    files = sorted(folder.glob("*.safetensors"))
    if not files or not (folder / "config.json").exists():
        raise ModelUnavailableError(
            f"{folder} holds no target: it needs config.json and at least one .safetensors file (Hugging Face layout)."
        )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= load_file(file, device=device)
    return LlamaSource(config, weights, taps)
