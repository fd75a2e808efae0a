"""A small Llama for training: the classical drafter, which drafts token by token and reads nothing of the target.

Symbols: S texts, T tokens of each, H hidden size, V vocabulary, R rows of the embedding in use, d head size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from dspark_core.checkpoint import CONFIG_NAME, WEIGHTS_NAME
from dspark_core.errors import ParameterError
from dspark_core.modules.layers import RMSNorm, rotary, rotate
from dspark_core.target.config import LlamaConfig
from dspark_core.training.files import make_folder, write_json, write_whole
from dspark_core.training.lm_settings import LmSettings
from dspark_core.training.start import principal_components

_EMBEDDING_SCALE = 0.1  # RMS of a row's elements: first logits spread by about 1, neither flat nor sure of anything


@dataclass(frozen=True)
class LmShape:
    """Sizes and constants of the model; `head_dim` = hidden / heads."""

    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    max_context: int
    rms_norm_eps: float
    rope_theta: float
    eos_token_ids: tuple[int, ...]

    @classmethod
    def of(cls, settings: LmSettings, target: LlamaConfig) -> "LmShape":
        """The sizes that are set, on the target's tokens and positions. ParameterError when they do not fit."""
        if settings.hidden > target.hidden_size:
            raise ParameterError(
                f"hidden is {settings.hidden}, and the embedding starts from the target's, which has "
                f"{target.hidden_size} directions. Give {target.hidden_size} or less."
            )
        return cls(
            target.vocab_size,
            settings.hidden,
            settings.layers,
            settings.heads,
            settings.kv_heads,
            settings.mlp,
            target.max_context,
            target.rms_norm_eps,
            target.rope.theta,
            target.eos_token_ids,
        )

    @property
    def head_dim(self) -> int:
        """Size of one head."""
        return self.hidden // self.heads

    def to_dict(self) -> dict[str, Any]:
        """A Hugging Face `config.json`."""
        ends = list(self.eos_token_ids)
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_context,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rope_theta": self.rope_theta,  # the older spelling of the same
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
            "dtype": "bfloat16",
        }


def _causal_mean(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Softmax attention [S, h, T, d] of each token over those up to itself.

    Written out: on a CPU the gradient of torch's own `scaled_dot_product_attention` takes three times as long.
    """
    texts, heads, length, size = queries.shape
    later = torch.full((length, length), -torch.inf, dtype=queries.dtype, device=queries.device).triu(1)
    queries, keys, values = (part.reshape(-1, length, size) for part in (queries, keys, values))
    scores = torch.baddbmm(later.expand(len(queries), -1, -1), queries, keys.transpose(1, 2), alpha=size**-0.5)
    return (functional.softmax(scores, dim=-1) @ values).view(texts, heads, length, size)


class LmLayer(nn.Module):
    """Pre-norm attention and SwiGLU with residuals; products that share their input are one product."""

    def __init__(self, shape: LmShape) -> None:
        super().__init__()
        self.shape = shape
        hidden, queries = shape.hidden, shape.heads * shape.head_dim
        self.input_layernorm = RMSNorm(hidden, shape.rms_norm_eps)
        self.query_key_value = nn.Linear(hidden, queries + 2 * shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(queries, hidden, bias=False)
        self.post_attention_layernorm = RMSNorm(hidden, shape.rms_norm_eps)
        self.gate_up = nn.Linear(hidden, 2 * shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, hidden, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """[S, T, H] → [S, T, H], each token seeing those up to itself; cosine and sine [T, d]."""
        x = x + self.o_proj(self._attend(self.query_key_value(self.input_layernorm(x)), cosine, sine))
        gate, up = self.gate_up(self.post_attention_layernorm(x)).chunk(2, dim=-1)
        out: Tensor = x + self.down_proj(functional.silu(gate) * up)
        return out

    def _attend(self, projected: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        heads, kv_heads, size = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        by_head = projected.view(*projected.shape[:-1], heads + 2 * kv_heads, size).transpose(1, 2)
        turned = rotate(by_head[:, : heads + kv_heads], cosine, sine)
        keys, values = (
            part.repeat_interleave(heads // kv_heads, 1) for part in (turned[:, heads:], by_head[:, heads + kv_heads :])
        )
        return _causal_mean(turned[:, :heads], keys, values).transpose(1, 2).flatten(2)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The layer's weights under Hugging Face's names."""
        size = self.shape.head_dim
        parts = [self.shape.heads * size, self.shape.kv_heads * size, self.shape.kv_heads * size]
        for name, part in zip("qkv", torch.split(self.query_key_value.weight, parts), strict=True):
            yield f"self_attn.{name}_proj.weight", part
        yield "self_attn.o_proj.weight", self.o_proj.weight
        for name, part in zip(("gate", "up"), self.gate_up.weight.chunk(2), strict=True):
            yield f"mlp.{name}_proj.weight", part
        yield "mlp.down_proj.weight", self.down_proj.weight
        yield "input_layernorm.weight", self.input_layernorm.weight
        yield "post_attention_layernorm.weight", self.post_attention_layernorm.weight


class DraftLm(nn.Module):
    """The model: `embedding` [V, H] is both its input table and its LM head."""

    def __init__(self, shape: LmShape) -> None:
        """Layers start as noise that hardly changes the residual stream, drawn from torch's generator."""
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.empty(shape.vocab_size, shape.hidden).normal_(std=_EMBEDDING_SCALE))
        self.layers = nn.ModuleList(LmLayer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.rms_norm_eps)
        for layer in self._layers():
            for into in (layer.query_key_value, layer.gate_up):
                nn.init.normal_(into.weight, std=shape.hidden**-0.5)
            for out in (layer.o_proj, layer.down_proj):
                nn.init.normal_(out.weight, std=_EMBEDDING_SCALE * (out.in_features * 2 * shape.layers) ** -0.5)

    @torch.no_grad()
    def start_from(self, target_embedding: Tensor) -> None:
        """Take the target's embedding [V, ≥ H] in its strongest directions: likes begin beside each other."""
        self.embedding.copy_(principal_components(target_embedding, self.shape.hidden) * _EMBEDDING_SCALE)

    def forward(self, places: Tensor, table: Tensor) -> Tensor:
        """Final hidden states [S, T, H] of texts `places` [S, T], which are rows of `table` [R, H].

        Logits are these times the same table (or any rows of the embedding). Padding goes to the end of a row.
        """
        x = functional.embedding(places, table)
        positions = torch.arange(places.shape[1], device=places.device)
        cosine, sine = rotary(positions, self.shape.head_dim, self.shape.rope_theta)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        out: Tensor = self.norm(x)
        return out

    def tensors(self) -> dict[str, Tensor]:
        """All weights under Hugging Face's names."""
        named = {"model.embed_tokens.weight": self.embedding.detach(), "model.norm.weight": self.norm.weight.detach()}
        for index, layer in enumerate(self._layers()):
            named |= {f"model.layers.{index}.{name}": value.detach() for name, value in layer.tensors()}
        return named

    def save(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Write a Hugging Face folder, weights first; each file appears whole or not at all. ResourceError."""
        make_folder(folder)
        stored = {name: value.to("cpu", dtype).contiguous() for name, value in self.tensors().items()}

        def write(path: Path) -> None:
            save_file(stored, path, metadata={"format": "pt"})
            path.chmod(0o644)  # it would be its writer's alone

        write_whole(folder / WEIGHTS_NAME, write)
        name = str(dtype).removeprefix("torch.")
        write_json(folder / CONFIG_NAME, self.shape.to_dict() | {"dtype": name}, indent=2)

    def _layers(self) -> list[LmLayer]:
        return [layer for layer in self.layers if isinstance(layer, LmLayer)]
