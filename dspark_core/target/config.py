"""The part of a Hugging Face ``config.json`` that a target's pass needs; what we do not compute is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_core.errors import ModelUnavailableError
from dspark_core.fields import LARGEST, Fields, read_object, shown
from dspark_core.storage import way_to_repair
from dspark_core.target.family import FAMILIES, KNOWN_FAMILIES, Family

_WHERE = "The model's config.json"
_WAY_OUT = f"Use a complete Hugging Face folder of one of these: {KNOWN_FAMILIES}."
_MAX_LAYERS = 1024
_MAX_HEADS = 2**16
_MAX_CONTEXT = 2**22
_SUPPORTED_ROPE = ("default", "linear", "llama3")
_FULL, _SLIDING = "full_attention", "sliding_attention"
_TEXT_PARTS = {"gemma3": "gemma3_text"}  # models of text and images, whose text part is run
_REFUSED_WHEN_SET = (
    "attention_bias",
    "mlp_bias",
    "attn_logit_softcapping",
    "use_bidirectional_attention",
    "quantization_config",
)


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary positions: base ``theta``; ``linear`` slows all by ``factor``, ``llama3`` the low frequencies."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_context: int = 0


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Shapes and constants of a Llama or one of its relatives.

    Attributes:
        family: what its layers have beyond Llama's.
        rope: rotary positions; where the family has local ones, of the layers without a window.
        windows: for each layer, how many tokens it sees (the last ones, its own included), or None for all of them.
        query_scalar: attention scores are divided by its root; the size of a head unless the family has another.
        local_rope: rotary positions of the layers with a window, or None when they are the same.
        final_softcap: c when the LM head's logits x leave as c·tanh(x/c), None when they leave as they are.
    """

    family: Family
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
    windows: tuple[int | None, ...]
    query_scalar: float
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...] = ()
    local_rope: RopeConfig | None = None
    final_softcap: float | None = None

    @classmethod
    def from_json(cls, path: Path) -> LlamaConfig:
        """Read ``config.json``.

        Raises:
            ModelUnavailableError: the file is missing, is no JSON, or describes a model that we do not compute.
        """
        return cls.from_dict(read_object(path, ModelUnavailableError, way_to_repair(path.parent)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LlamaConfig:
        """Read a Hugging Face configuration (new ``rope_parameters`` or old ``rope_theta`` spelling).

        Raises:
            ModelUnavailableError: a key is missing or has a value that we do not compute.
        """
        values = _text_part(values)
        family = _known_family(values)
        values = {**family.defaults, **{name: value for name, value in values.items() if value is not None}}
        fields = Fields(values, _WHERE, ModelUnavailableError, _WAY_OUT)
        heads, hidden = fields.whole("num_attention_heads", high=_MAX_HEADS), fields.whole("hidden_size")
        kv_heads = fields.whole("num_key_value_heads", high=_MAX_HEADS, default=heads)
        if heads % kv_heads:
            raise fields.refusal("num_key_value_heads", f"must divide num_attention_heads, which is {heads}")
        head_dim = fields.whole("head_dim", high=_MAX_HEADS, default=hidden // heads)
        if head_dim < 1 or head_dim % 2:
            raise ModelUnavailableError(f"{_WHERE}: the size of a head is {head_dim}; it must be even. {_WAY_OUT}")
        vocab_size, layers = fields.whole("vocab_size"), fields.whole("num_hidden_layers", high=_MAX_LAYERS)
        rope, local_rope = _ropes(values, fields, family)
        return cls(
            family=family,
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=fields.whole("intermediate_size"),
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            max_context=fields.whole("max_position_embeddings", high=_MAX_CONTEXT),
            rms_norm_eps=fields.positive("rms_norm_eps", 1.0),
            rope=rope,
            windows=_windows(values, fields, layers),
            query_scalar=fields.positive("query_pre_attn_scalar", default=float(head_dim)),
            tie_word_embeddings=fields.flag("tie_word_embeddings"),
            eos_token_ids=end_token_ids(values, vocab_size),
            local_rope=local_rope,
            final_softcap=fields.positive("final_logit_softcapping") if "final_logit_softcapping" in values else None,
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


def _text_part(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration of the text part where the model has others, else all of it."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        return values
    inner = Fields(values, _WHERE, ModelUnavailableError, _WAY_OUT).section("text_config")
    shared = {name: values.get(name) for name in ("eos_token_id", "quantization_config")}
    return {
        **shared,
        **{name: value for name, value in inner.items() if value is not None},
        "model_type": _TEXT_PARTS[kind],
    }


def _known_family(values: Mapping[str, Any]) -> Family:
    """The family of ``model_type``; refuses others, and what is set that we do not compute, by name."""
    kind = values.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    refused = [name for name in _REFUSED_WHEN_SET if values.get(name)]
    if family is None:
        refused.append(f"model_type {shown(kind)}")
    else:
        names = [
            name for name in ("hidden_act", "hidden_activation") if values.get(name) not in (None, family.activation)
        ]
        refused += [f"{name} {shown(values[name])}" for name in names]
    if refused or family is None:
        raise ModelUnavailableError(
            f"This engine does not compute: {', '.join(refused)} (found in the model's config.json). It computes "
            f"unquantised models of these architectures: {KNOWN_FAMILIES}; for example smollm2-135m."
        )
    return family


def _windows(values: Mapping[str, Any], fields: Fields, layers: int) -> tuple[int | None, ...]:
    """Which layers slide: as ``layer_types`` says, else from ``max_window_layers`` on (Qwen), else all but every
    ``sliding_window_pattern``-th (Gemma), else none.
    """
    sliding = [False] * layers
    if values.get("layer_types") is not None:
        kinds = fields.texts("layer_types")
        if len(kinds) != layers or set(kinds) - {_FULL, _SLIDING}:
            raise fields.refusal("layer_types", f"must name {_FULL} or {_SLIDING} for each of the {layers} layers")
        sliding = [kind == _SLIDING for kind in kinds]
    elif fields.flag("use_sliding_window"):
        first = fields.whole("max_window_layers", 0)
        sliding = [index >= first for index in range(layers)]
    elif "sliding_window_pattern" in values:
        pattern = fields.whole("sliding_window_pattern")
        sliding = [(index + 1) % pattern != 0 for index in range(layers)]
    if not any(sliding):
        return (None,) * layers
    window = fields.whole("sliding_window")
    return tuple(window if slides else None for slides in sliding)


def _ropes(values: Mapping[str, Any], fields: Fields, family: Family) -> tuple[RopeConfig, RopeConfig | None]:
    """Rotary positions of the layers without and with a window; None for the latter when there is but one kind."""
    new = fields.section("rope_parameters")
    both = family.local_rope and _FULL in new  # the new spelling: a section for each kind of layer
    parts = Fields(new, f"{_WHERE}, rope_parameters", ModelUnavailableError, _WAY_OUT)
    own = parts.section(_FULL) if both else new
    rope = _rope({"rope_theta": values.get("rope_theta"), **fields.section("rope_scaling"), **own})
    if not family.local_rope:
        return rope, None
    local = parts.section(_SLIDING) if both else {}
    return rope, _rope({"rope_theta": values["rope_local_base_freq"], **local})


def _rope(found: Mapping[str, Any]) -> RopeConfig:
    rope = Fields(found, f"{_WHERE}, rotary positions", ModelUnavailableError, _WAY_OUT)
    theta = rope.positive("rope_theta", 1e12, 10000.0)
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in _SUPPORTED_ROPE:
        raise ModelUnavailableError(
            f"The model's rotary scaling is {shown(kind)}; this engine computes {', '.join(_SUPPORTED_ROPE)} only. "
            "Use another model, for example smollm2-135m."
        )
    if rope.positive("partial_rotary_factor", default=1.0) != 1.0:
        raise ModelUnavailableError(
            "The model rotates only part of a head (partial_rotary_factor), which this engine does not compute. "
            "Use another model, for example smollm2-135m."
        )
    if kind == "default":
        return RopeConfig(theta)
    if kind == "linear":
        return RopeConfig(theta, kind, factor=rope.positive("factor"))
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
