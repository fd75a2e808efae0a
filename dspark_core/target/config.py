"""The part of a Hugging Face ``config.json`` that a Llama forward pass needs; what we do not compute is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_core.errors import ModelUnavailableError
from dspark_core.fields import LARGEST, Fields, read_object, shown
from dspark_core.storage import way_to_repair

_WHERE = "The model's config.json"
_WAY_OUT = "Use a complete Hugging Face folder of a Llama-architecture model."
_MAX_LAYERS = 1024
_MAX_HEADS = 2**16
_MAX_CONTEXT = 2**22  # the rotary tables are made for all of it
_SUPPORTED_ROPE = ("default", "llama3")
_REFUSED_WHEN_TRUE = ("attention_bias", "mlp_bias")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary positions: base ``theta`` and, for ``llama3``, how low frequencies are stretched."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_context: int = 0


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Shapes and constants of a Llama-architecture model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, path: Path) -> LlamaConfig:
        """Read ``config.json``.

        Raises:
            ModelUnavailableError: the file is missing, is no JSON, or describes a model that we do not compute.
        """
        return cls.from_dict(read_object(path, ModelUnavailableError, way_to_repair(path.parent)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LlamaConfig:
        """Read a Hugging Face Llama configuration (new ``rope_parameters`` or old ``rope_theta`` spelling).

        Raises:
            ModelUnavailableError: a key is missing or has a value that we do not compute.
        """
        _refuse_unsupported(values)
        fields = Fields(values, _WHERE, ModelUnavailableError, _WAY_OUT)
        heads, hidden = fields.whole("num_attention_heads", high=_MAX_HEADS), fields.whole("hidden_size")
        kv_heads = fields.whole("num_key_value_heads", high=_MAX_HEADS, default=heads)
        if heads % kv_heads:
            raise fields.refusal("num_key_value_heads", f"must divide num_attention_heads, which is {heads}")
        head_dim = fields.whole("head_dim", high=_MAX_HEADS, default=hidden // heads)
        if head_dim < 1 or head_dim % 2:
            raise ModelUnavailableError(f"{_WHERE}: the size of a head is {head_dim}; it must be even. {_WAY_OUT}")
        vocab_size = fields.whole("vocab_size")
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=fields.whole("intermediate_size"),
            num_layers=fields.whole("num_hidden_layers", high=_MAX_LAYERS),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            max_context=fields.whole("max_position_embeddings", high=_MAX_CONTEXT),
            rms_norm_eps=fields.positive("rms_norm_eps", 1.0),
            rope=_rope(values, fields),
            tie_word_embeddings=fields.flag("tie_word_embeddings"),
            eos_token_ids=end_token_ids(values, vocab_size),
        )


def end_token_ids(values: Mapping[str, Any], vocab_size: int = LARGEST) -> tuple[int, ...]:
    """The ids under ``eos_token_id`` of a ``config.json``: one, several, or none.

    Raises:
        ModelUnavailableError: it is something else, or an id is no token of ``vocab_size``.
    """
    value = values.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item < vocab_size for item in ids):
        raise ModelUnavailableError(
            f"{_WHERE}: eos_token_id is {shown(value)}; it must be a token id from 0 to {vocab_size - 1}, or a list of "
            f"such. {_WAY_OUT}"
        )
    return tuple(ids)


def _refuse_unsupported(values: Mapping[str, Any]) -> None:
    refused = [name for name in _REFUSED_WHEN_TRUE if values.get(name)]
    if values.get("model_type") != "llama":
        refused.append(f"model_type {shown(values.get('model_type'))}")
    if values.get("hidden_act", "silu") != "silu":
        refused.append(f"hidden_act {shown(values['hidden_act'])}")
    if values.get("quantization_config"):
        refused.append("quantization_config")
    if refused:
        raise ModelUnavailableError(
            f"This engine does not compute: {', '.join(refused)} (found in the model's config.json). "
            "Use an unquantised Llama-architecture model without biases, for example smollm2-135m."
        )


def _rope(values: Mapping[str, Any], fields: Fields) -> RopeConfig:
    found = {"rope_theta": values.get("rope_theta"), **fields.section("rope_scaling")}
    found.update(fields.section("rope_parameters"))
    rope = Fields(found, f"{_WHERE}, rotary positions", ModelUnavailableError, _WAY_OUT)
    theta = rope.positive("rope_theta", 1e12, 10000.0)
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in _SUPPORTED_ROPE:
        raise ModelUnavailableError(
            f"The model's rotary scaling is {shown(kind)}; this engine computes {' and '.join(_SUPPORTED_ROPE)} only. "
            "Use another model, for example smollm2-135m."
        )
    if rope.positive("partial_rotary_factor", default=1.0) != 1.0:
        raise ModelUnavailableError(
            "The model rotates only part of a head (partial_rotary_factor), which this engine does not compute. "
            "Use another model, for example smollm2-135m."
        )
    if kind == "default":
        return RopeConfig(theta)
    low, high = rope.positive("low_freq_factor"), rope.positive("high_freq_factor")
    if low >= high:
        raise rope.refusal("high_freq_factor", f"must be above low_freq_factor, which is {low:g}")
    return RopeConfig(
        theta,
        kind,
        factor=rope.positive("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=rope.whole("original_max_position_embeddings"),
    )
