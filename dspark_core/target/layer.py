"""One layer's tensors, taken out of a checkpoint: checked, converted, and fused where they share their input.

Symbols: H hidden size, V vocabulary, D head size, h query heads, g key/value heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dspark_core.errors import ModelUnavailableError
from dspark_core.target.config import LlamaConfig
from dspark_core.target.linear import Linear, make_linear


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer computes with. What a family lacks is None.

    Attributes:
        rope: which of the target's rotary tables turns its heads.
        query_key_gain: [h + g, D], gains of the norms of query and key heads, the attention's scale in the queries'.
        attention_out_norm, mlp_out_norm: gains [H] of norms on the way back to the residual stream.
    """

    rope: int
    attention_norm: torch.Tensor
    query_key_value: Linear
    query_key_gain: torch.Tensor | None
    attention_out: Linear
    attention_out_norm: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear
    mlp_out_norm: torch.Tensor | None


def scaled_embedding(config: LlamaConfig, rows: torch.Tensor) -> torch.Tensor:
    """Embedding rows [n, H] as the first layer reads them: times √H, rounded to their type, where that is done."""
    if not config.family.scaled_embedding:
        return rows
    return rows * torch.tensor(config.hidden_size**0.5, dtype=rows.dtype)


class Weights:
    """A model's tensors under their Hugging Face names, in the type and on the device to compute with.

    Every method raises ModelUnavailableError when a tensor is missing or has another shape than the config says.
    """

    def __init__(
        self, config: LlamaConfig, state: Mapping[str, torch.Tensor], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._config = config
        self._state = state
        self._dtype = dtype
        self._device = device

    def embedding(self) -> torch.Tensor:
        """The embedding's table [V, H], unscaled."""
        return self._take("model.embed_tokens.weight", self._config.vocab_size, self._config.hidden_size)

    def head(self) -> torch.Tensor:
        """The LM head's table [V, H] of a model that does not tie it to the embedding."""
        return self._take("lm_head.weight", self._config.vocab_size, self._config.hidden_size)

    def norm(self, name: str = "model.norm", size: int | None = None) -> torch.Tensor:
        """A norm's gain [H], or [size]; in float32 where the family multiplies in that."""
        size = size or self._config.hidden_size
        if self._config.family.norms_add_one:
            return 1.0 + self._take(name + ".weight", size, dtype=torch.float32)
        return self._take(name + ".weight", size)

    def layer(self, index: int) -> Layer:
        """The layer ``index``."""
        config, family, prefix = self._config, self._config.family, f"model.layers.{index}."
        hidden, inner = config.hidden_size, config.intermediate_size
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        outer = family.outer_norms
        return Layer(
            rope=int(config.local_rope is not None and config.windows[index] is not None),
            attention_norm=self.norm(prefix + "input_layernorm"),
            query_key_value=self._query_key_value(prefix + "self_attn.", queries, keys),
            query_key_gain=self._query_key_gain(prefix + "self_attn.") if family.query_key_norm else None,
            attention_out=make_linear(self._take(prefix + "self_attn.o_proj.weight", hidden, queries)),
            attention_out_norm=self.norm(prefix + "post_attention_layernorm") if outer else None,
            mlp_norm=self.norm(prefix + ("pre_feedforward" if outer else "post_attention") + "_layernorm"),
            gate_up=make_linear(
                torch.cat([self._take(f"{prefix}mlp.{x}_proj.weight", inner, hidden) for x in ("gate", "up")])
            ),
            down=make_linear(self._take(prefix + "mlp.down_proj.weight", hidden, inner)),
            mlp_out_norm=self.norm(prefix + "post_feedforward_layernorm") if outer else None,
        )

    def _query_key_value(self, prefix: str, queries: int, keys: int) -> Linear:
        parts = {"q": queries, "k": keys, "v": keys}
        weights = [self._take(f"{prefix}{x}_proj.weight", rows, self._config.hidden_size) for x, rows in parts.items()]
        if not self._config.family.query_key_value_bias:
            return make_linear(torch.cat(weights))
        biases = [self._take(f"{prefix}{x}_proj.bias", rows) for x, rows in parts.items()]
        return make_linear(torch.cat(weights), torch.cat(biases))

    def _query_key_gain(self, prefix: str) -> torch.Tensor:
        config = self._config
        queries, keys = (self.norm(f"{prefix}{x}_norm", config.head_dim) for x in ("q", "k"))
        scale = math.sqrt(config.head_dim / config.query_scalar)  # attention itself divides by the root of D
        return torch.cat(((queries * scale).expand(config.num_heads, -1), keys.expand(config.num_kv_heads, -1)))

    def _take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        tensor = self._state.get(name)
        if tensor is None or tuple(tensor.shape) != shape:
            found = "is missing" if tensor is None else f"has shape {tuple(tensor.shape)}"
            raise ModelUnavailableError(
                f"The model's tensor {name} {found}, but config.json asks for {shape}; the files do not belong "
                "together. Take config.json and *.safetensors of one and the same model."
            )
        return tensor.detach().to(self._device, dtype or self._dtype)
