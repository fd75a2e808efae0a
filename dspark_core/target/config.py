"""The part of a Hugging Face ``config.json`` that a Llama forward pass needs; what we do not compute is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_core.errors import ModelUnavailableError

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
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelUnavailableError(
                f"{path} cannot be read ({error}), so the model's shape is unknown. "
                "Delete the folder and fetch the model again."
            ) from error
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LlamaConfig:
        """Read a Hugging Face Llama configuration (new ``rope_parameters`` or old ``rope_theta`` spelling).

        Raises:
            ModelUnavailableError: a key is missing or has a value that we do not compute.
        """
        _refuse_unsupported(values)
        try:
            heads = int(values["num_attention_heads"])
            return cls(
                vocab_size=int(values["vocab_size"]),
                hidden_size=int(values["hidden_size"]),
                intermediate_size=int(values["intermediate_size"]),
                num_layers=int(values["num_hidden_layers"]),
                num_heads=heads,
                num_kv_heads=int(values.get("num_key_value_heads") or heads),
                head_dim=int(values.get("head_dim") or int(values["hidden_size"]) // heads),
                max_context=int(values["max_position_embeddings"]),
                rms_norm_eps=float(values["rms_norm_eps"]),
                rope=_rope(values),
                tie_word_embeddings=bool(values.get("tie_word_embeddings", False)),
                eos_token_ids=_id_tuple(values.get("eos_token_id")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelUnavailableError(
                f"The model's config.json lacks a usable value ({error!r}), so its shape is unknown. "
                "Use a complete Hugging Face folder of a Llama-architecture model."
            ) from error


def _refuse_unsupported(values: Mapping[str, Any]) -> None:
    refused = [name for name in _REFUSED_WHEN_TRUE if values.get(name)]
    if values.get("model_type") != "llama":
        refused.append(f"model_type {values.get('model_type')!r}")
    if values.get("hidden_act", "silu") != "silu":
        refused.append(f"hidden_act {values['hidden_act']!r}")
    if values.get("quantization_config"):
        refused.append("quantization_config")
    if refused:
        raise ModelUnavailableError(
            f"This engine does not compute: {', '.join(refused)} (found in the model's config.json). "
            "Use an unquantised Llama-architecture model without biases, for example smollm2-135m."
        )


def _rope(values: Mapping[str, Any]) -> RopeConfig:
    rope = dict(values.get("rope_scaling") or {})
    rope.update(values.get("rope_parameters") or {})
    theta = float(rope.get("rope_theta", values.get("rope_theta", 10000.0)))
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    if kind not in _SUPPORTED_ROPE:
        raise ModelUnavailableError(
            f"The model's rotary scaling is {kind!r}; this engine computes {' and '.join(_SUPPORTED_ROPE)} only. "
            "Use another model, for example smollm2-135m."
        )
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelUnavailableError(
            "The model rotates only part of a head (partial_rotary_factor), which this engine does not compute. "
            "Use another model, for example smollm2-135m."
        )
    if kind == "default":
        return RopeConfig(theta)
    return RopeConfig(
        theta,
        kind,
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_context=int(rope["original_max_position_embeddings"]),
    )


def _id_tuple(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(item) for item in value) if isinstance(value, (list, tuple)) else (int(value),)
