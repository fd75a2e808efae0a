"""What a layer of each architecture has beyond Llama's: flags that the one pass reads, so that there is one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Family:
    """An architecture, told by what differs from Llama.

    Attributes:
        title: its name for a reader.
        activation: of the gated MLP, in Hugging Face's spelling.
        query_key_value_bias: the three projections have biases (the output projection has none).
        query_key_norm: every head of the queries and keys is normalised before it is turned.
        outer_norms: attention's and MLP's results are normalised too, before they join the residual stream.
        norms_add_one: a norm's gain is 1 + its stored weight, multiplied in float32.
        scaled_embedding: the embedding is multiplied by √H on its way in (not as a tied LM head).
        local_rope: layers with a sliding window have a rotary base of their own.
        defaults: what its config.json may leave out.
    """

    title: str
    activation: str = "silu"
    query_key_value_bias: bool = False
    query_key_norm: bool = False
    outer_norms: bool = False
    norms_add_one: bool = False
    scaled_embedding: bool = False
    local_rope: bool = False
    defaults: Mapping[str, object] = field(default_factory=dict)


_GEMMA3_DEFAULTS = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
}

# By the config's model_type.
FAMILIES: Mapping[str, Family] = {
    "llama": Family("Llama"),
    "qwen2": Family("Qwen 2 and 2.5", query_key_value_bias=True),
    "qwen3": Family("Qwen 3", query_key_norm=True, defaults={"head_dim": 128}),
    "gemma3_text": Family(
        "Gemma 3 (its text part)",
        activation="gelu_pytorch_tanh",
        query_key_norm=True,
        outer_norms=True,
        norms_add_one=True,
        scaled_embedding=True,
        local_rope=True,
        defaults=_GEMMA3_DEFAULTS,
    ),
}
KNOWN_FAMILIES = ", ".join(family.title for family in FAMILIES.values())
