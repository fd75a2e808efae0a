"""Shape of a drafter as its `config.json` tells it (keys as in DeepSpec's published checkpoints)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dspark_core.errors import CheckpointError

SUPPORTED_ARCHITECTURES = ("Qwen3DSparkModel",)
_DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class DraftConfig:
    """Every number that fixes a drafter's tensors and conventions.

    `target_layer_ids`: id k is the *output* of target layer k (0-based), -1 the embedding; the last is refused.
    `block_size` γ: the anchor and γ-1 mask tokens go in, γ predictions come out; the anchor's slot predicts x_1.
    `embed_tokens_from_target`, `lm_head_from_target`: that table is not in the file, the target's own is meant.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_hidden_layers: int
    num_target_layers: int
    target_layer_ids: tuple[int, ...]
    vocab_size: int
    block_size: int
    mask_token_id: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    max_position_embeddings: int = 8192
    markov_rank: int = 0
    markov_head_type: str = "vanilla"
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = True
    embed_tokens_from_target: bool = False
    lm_head_from_target: bool = False
    num_anchors: int = 0
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        """Refuse impossible numbers by name, before any tensor is read."""
        for name in (
            "hidden_size",
            "intermediate_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "num_hidden_layers",
            "num_target_layers",
            "vocab_size",
            "block_size",
        ):
            if getattr(self, name) < 1:
                raise CheckpointError(f"Drafter config: {name} is {getattr(self, name)}; it must be at least 1.")
        if self.num_attention_heads % self.num_key_value_heads:
            raise CheckpointError(
                f"Drafter config: {self.num_attention_heads} heads cannot share "
                f"{self.num_key_value_heads} key/value heads."
            )
        if self.head_dim % 2:
            raise CheckpointError(f"Drafter config: head_dim {self.head_dim} is odd; rotary positions need pairs.")
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise CheckpointError(
                f"Drafter config: mask_token_id {self.mask_token_id} is outside the vocabulary of {self.vocab_size}."
            )
        if self.dtype not in _DTYPES:
            raise CheckpointError(f"Drafter config: dtype {self.dtype!r} is unknown; use one of {', '.join(_DTYPES)}.")
        self._check_taps()
        self._check_heads()

    def _check_taps(self) -> None:
        if not self.target_layer_ids:
            raise CheckpointError(
                "Drafter config: target_layer_ids is empty; the drafter would see nothing of the target."
            )
        if list(self.target_layer_ids) != sorted(set(self.target_layer_ids)):
            raise CheckpointError(
                f"Drafter config: target_layer_ids {list(self.target_layer_ids)} must rise without repeats "
                "(their order is the order of the features)."
            )
        last = self.num_target_layers - 1
        for layer in self.target_layer_ids:
            if layer == last:
                raise CheckpointError(
                    f"Drafter config: target layer {layer} is the last one. Its output exists before and after the "
                    "final norm and libraries disagree on which one is meant; tap an earlier layer."
                )
            if not -1 <= layer < last:
                raise CheckpointError(
                    f"Drafter config: target layer {layer} does not exist in a target of "
                    f"{self.num_target_layers} layers."
                )

    def _check_heads(self) -> None:
        if self.markov_rank < 0:
            raise CheckpointError(f"Drafter config: markov_rank is {self.markov_rank}; use 0 for no sequential head.")
        if self.markov_rank and self.markov_head_type not in ("vanilla", "gated", "rnn"):
            raise CheckpointError(
                f"Drafter config: markov_head_type {self.markov_head_type!r} is unknown; known are vanilla, "
                "gated and rnn."
            )
        if self.enable_confidence_head and self.confidence_head_with_markov and not self.markov_rank:
            raise CheckpointError(
                "Drafter config: confidence_head_with_markov needs markov_rank > 0 (it reads the Markov embedding)."
            )

    @property
    def confidence_inputs(self) -> int:
        """Width of the confidence head's input: H, or H + r with the Markov embedding."""
        return self.hidden_size + (self.markov_rank if self.confidence_head_with_markov else 0)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "DraftConfig":
        """Read a `config.json`; CheckpointError for another layout, a missing key or an option not built here."""
        _refuse_other_layouts(data)
        _refuse_unbuilt_options(data)
        try:
            return cls(
                hidden_size=int(data["hidden_size"]),
                intermediate_size=int(data["intermediate_size"]),
                num_attention_heads=int(data["num_attention_heads"]),
                num_key_value_heads=int(data["num_key_value_heads"]),
                head_dim=int(data.get("head_dim") or data["hidden_size"] // data["num_attention_heads"]),
                num_hidden_layers=int(data["num_hidden_layers"]),
                num_target_layers=int(data["num_target_layers"]),
                target_layer_ids=tuple(int(k) for k in data["target_layer_ids"]),
                vocab_size=int(data["vocab_size"]),
                block_size=int(data["block_size"]),
                mask_token_id=int(data["mask_token_id"]),
                rms_norm_eps=float(data["rms_norm_eps"]),
                rope_theta=_rope_theta(data),
                max_position_embeddings=int(data["max_position_embeddings"]),
                markov_rank=int(data["markov_rank"]),
                markov_head_type=str(data.get("markov_head_type") or "vanilla"),
                enable_confidence_head=bool(data.get("enable_confidence_head", False)),
                confidence_head_with_markov=bool(data.get("confidence_head_with_markov", False)),
                embed_tokens_from_target=bool(data.get("embed_tokens_from_target", False)),
                lm_head_from_target=bool(data.get("lm_head_from_target", False)),
                num_anchors=int(data.get("num_anchors", 0)),
                dtype=str(data.get("dtype") or data.get("torch_dtype") or "bfloat16"),
            )
        except KeyError as missing:
            raise CheckpointError(
                f"Drafter config: key {missing.args[0]!r} is missing, so the layout is not DeepSpec's. "
                "Take the config.json that came with the weights."
            ) from missing
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"Drafter config: a value has the wrong type ({error}).") from error

    def to_dict(self) -> dict[str, Any]:
        """The `config.json` of this drafter; `from_dict` reads it back unchanged."""
        data: dict[str, Any] = {
            "architectures": [SUPPORTED_ARCHITECTURES[0]],
            "model_type": "qwen3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "block_size": self.block_size,
            "confidence_head_with_markov": self.confidence_head_with_markov,
            "dtype": self.dtype,
            "embed_tokens_from_target": self.embed_tokens_from_target,
            "enable_confidence_head": self.enable_confidence_head,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "lm_head_from_target": self.lm_head_from_target,
            "markov_rank": self.markov_rank,
            "mask_token_id": self.mask_token_id,
            "max_position_embeddings": self.max_position_embeddings,
            "num_anchors": self.num_anchors,
            "num_attention_heads": self.num_attention_heads,
            "num_hidden_layers": self.num_hidden_layers,
            "num_key_value_heads": self.num_key_value_heads,
            "num_target_layers": self.num_target_layers,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": {"rope_theta": self.rope_theta, "rope_type": "default"},
            "target_layer_ids": list(self.target_layer_ids),
            "tie_word_embeddings": False,
            "vocab_size": self.vocab_size,
        }
        if self.markov_rank:
            data["markov_head_type"] = self.markov_head_type
        return data

    def check_fits(self, *, hidden_size: int, vocab_size: int, num_layers: int) -> None:
        """Raise CheckpointError unless the target has exactly the sizes this drafter was trained for."""
        for name, ours, theirs in (
            ("hidden size", self.hidden_size, hidden_size),
            ("vocabulary size", self.vocab_size, vocab_size),
            ("number of layers", self.num_target_layers, num_layers),
        ):
            if ours != theirs:
                raise CheckpointError(
                    f"The drafter was trained for a target with {name} {ours}, this target has {theirs}: "
                    "its drafts would be noise. Choose the target named beside the checkpoint."
                )


def _refuse_other_layouts(data: Mapping[str, Any]) -> None:
    architectures = tuple(data.get("architectures") or ())
    if "dflash_config" in data:
        raise CheckpointError(
            "This is a z-lab DFlash checkpoint (dflash_config): its masks sit at the predicted positions, one slot "
            "later than here. Read as DeepSpec it would draft noise; convert it first."
        )
    if "speculators_model_type" in data or "speculators_config" in data:
        raise CheckpointError(
            "This is a speculators checkpoint: its layer ids are one higher and its vocabulary may be reduced (d2t). "
            "Read as DeepSpec it would draft noise; convert it first."
        )
    if any("eagle3" in name.lower() for name in architectures) or "draft_vocab_size" in data:
        raise CheckpointError(
            "This is an EAGLE-3 checkpoint, an autoregressive head; the DSpark loader cannot read it."
        )
    if any("gemma" in name.lower() for name in architectures):
        raise CheckpointError(
            f"Architecture {architectures[0]} scales embeddings and norms in its own way, which is not built here yet. "
            f"Built: {', '.join(SUPPORTED_ARCHITECTURES)}."
        )
    if not set(architectures) & set(SUPPORTED_ARCHITECTURES):
        raise CheckpointError(
            f"Drafter config: architectures {list(architectures)} is not known. "
            f"Built: {', '.join(SUPPORTED_ARCHITECTURES)}."
        )


def _refuse_unbuilt_options(data: Mapping[str, Any]) -> None:
    for name, built in (
        ("attention_bias", (False, None)),
        ("hidden_act", ("silu", None)),
        ("use_sliding_window", (False, None)),
        ("rope_scaling", (None,)),
    ):
        if data.get(name) not in built:
            raise CheckpointError(f"Drafter config: {name} = {data[name]!r} is not built here (only {built[0]!r}).")


def _rope_theta(data: Mapping[str, Any]) -> float:
    """transformers 5 nests it in `rope_parameters`, older files have it at the top."""
    nested = data.get("rope_parameters")
    if nested is None:
        return float(data["rope_theta"])
    kind = nested.get("rope_type", "default")
    if kind != "default":
        raise CheckpointError(f"Drafter config: rope_type {kind!r} is not built here (only 'default').")
    return float(nested["rope_theta"])
