"""Shape of a drafter as its `config.json` tells it (keys as in DeepSpec's published checkpoints)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dspark_core.errors import CheckpointError
from dspark_core.fields import LARGEST, Fields, shown

HEAD_TYPES = ("vanilla", "gated", "rnn", "conv")  # conv is ours: other engines do not read it
SUPPORTED_ARCHITECTURES = ("Qwen3DSparkModel",)
MAX_BLOCK_SIZE = 64  # as many as a request may ask to verify (`ScheduleParams.l_max`); memory grows with its square
_DTYPES = ("bfloat16", "float16", "float32")
_WHERE = "Drafter config"
_WAY_OUT = "Take the config.json that came with the weights."
_RANGES = {
    "hidden_size": (1, LARGEST),
    "intermediate_size": (1, LARGEST),
    "num_attention_heads": (1, 2**16),
    "num_key_value_heads": (1, 2**16),
    "head_dim": (1, 2**16),
    "num_hidden_layers": (1, 1024),
    "num_target_layers": (1, 1024),
    "vocab_size": (1, LARGEST),
    "block_size": (1, MAX_BLOCK_SIZE),
    "max_position_embeddings": (1, LARGEST),
    "markov_rank": (0, LARGEST),  # 0: no sequential head
    "num_anchors": (0, LARGEST),
    "copy_longest": (0, 64),  # 0: no copy head
    "rms_norm_eps": (1e-30, 1.0),
    "rope_theta": (1e-6, 1e12),
}


@dataclass(frozen=True)
class DraftConfig:
    """Every number that fixes a drafter's tensors and conventions.

    `target_layer_ids`: id k is the *output* of target layer k (0-based). The last is refused, and so is -1, DeepSpec's
    id of the embedding's output: no target here gives that yet.
    `block_size` γ: the anchor and γ-1 mask tokens go in, γ predictions come out; the anchor's slot predicts x_1.
    `copy_longest`: longest match that the copy head tells apart; 0 without one (the head is ours alone).
    `confidence_reads_law`: whether c_k also heeds how sure the law of x_k is (ours alone, see `LawConfidence`).
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
    confidence_reads_law: bool = False
    embed_tokens_from_target: bool = False
    lm_head_from_target: bool = False
    num_anchors: int = 0
    copy_longest: int = 0
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        """Refuse impossible numbers by name, before any tensor is read."""
        for name, (low, high) in _RANGES.items():
            if not low <= getattr(self, name) <= high:  # NaN is in no range
                raise CheckpointError(
                    f"{_WHERE}: {name} is {shown(getattr(self, name))}; it must be from {low:g} to {high:g}. {_WAY_OUT}"
                )
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
            raise CheckpointError(
                f"Drafter config: dtype {shown(self.dtype)} is unknown; use one of {', '.join(_DTYPES)}."
            )
        self._check_taps()
        self._check_heads()

    def _check_taps(self) -> None:
        if not self.target_layer_ids:
            raise CheckpointError(
                "Drafter config: target_layer_ids is empty; the drafter would see nothing of the target."
            )
        if list(self.target_layer_ids) != sorted(set(self.target_layer_ids)):
            raise CheckpointError(
                f"Drafter config: target_layer_ids {shown(list(self.target_layer_ids))} must rise without repeats "
                "(their order is the order of the features)."
            )
        last = self.num_target_layers - 1
        for layer in self.target_layer_ids:
            if layer == -1:
                raise CheckpointError(
                    "Drafter config: target layer -1 is the embedding's output, which no target here gives yet. "
                    "Use a drafter whose target_layer_ids begin at 0 or later."
                )
            if layer == last:
                raise CheckpointError(
                    f"Drafter config: target layer {layer} is the last one. Its output exists before and after the "
                    "final norm and libraries disagree on which one is meant; tap an earlier layer."
                )
            if not 0 <= layer < last:
                raise CheckpointError(
                    f"Drafter config: target layer {layer} does not exist in a target of "
                    f"{self.num_target_layers} layers."
                )

    def _check_heads(self) -> None:
        if self.markov_rank and self.markov_head_type not in HEAD_TYPES:
            raise CheckpointError(
                f"Drafter config: markov_head_type {shown(self.markov_head_type)} is unknown; known are "
                f"{', '.join(HEAD_TYPES)}."
            )
        if self.enable_confidence_head and self.confidence_head_with_markov and not self.markov_rank:
            raise CheckpointError(
                "Drafter config: confidence_head_with_markov needs markov_rank > 0 (it reads the Markov embedding)."
            )
        if self.confidence_reads_law and not self.enable_confidence_head:
            raise CheckpointError("Drafter config: confidence_reads_law needs enable_confidence_head.")

    @property
    def confidence_inputs(self) -> int:
        """Width of the confidence head's input: H, or H + r with the Markov embedding."""
        return self.hidden_size + (self.markov_rank if self.confidence_head_with_markov else 0)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "DraftConfig":
        """Read a `config.json`; CheckpointError for another layout, a missing key or an option not built here."""
        fields = Fields(data, _WHERE, CheckpointError, _WAY_OUT)
        _refuse_other_layouts(data, fields.texts("architectures", ()))
        _refuse_unbuilt_options(data)
        heads, hidden = fields.whole("num_attention_heads"), fields.whole("hidden_size")
        return cls(
            hidden_size=hidden,
            intermediate_size=fields.whole("intermediate_size"),
            num_attention_heads=heads,
            num_key_value_heads=fields.whole("num_key_value_heads"),
            head_dim=fields.whole("head_dim", default=hidden // heads),
            num_hidden_layers=fields.whole("num_hidden_layers"),
            num_target_layers=fields.whole("num_target_layers"),
            target_layer_ids=fields.wholes("target_layer_ids"),
            vocab_size=fields.whole("vocab_size"),
            block_size=fields.whole("block_size", 1, MAX_BLOCK_SIZE),
            mask_token_id=fields.whole("mask_token_id", 0),
            rms_norm_eps=fields.positive("rms_norm_eps"),
            rope_theta=_rope_theta(fields),
            max_position_embeddings=fields.whole("max_position_embeddings"),
            markov_rank=fields.whole("markov_rank", 0),
            markov_head_type=fields.text("markov_head_type", "vanilla"),
            enable_confidence_head=fields.flag("enable_confidence_head"),
            confidence_head_with_markov=fields.flag("confidence_head_with_markov"),
            confidence_reads_law=fields.flag("confidence_reads_law", default=False),
            embed_tokens_from_target=fields.flag("embed_tokens_from_target"),
            lm_head_from_target=fields.flag("lm_head_from_target"),
            num_anchors=fields.whole("num_anchors", 0, default=0),
            copy_longest=fields.whole("copy_longest", 0, default=0),
            dtype=fields.text("dtype", fields.text("torch_dtype", "bfloat16")),
        )

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
        if self.copy_longest:
            data["copy_longest"] = self.copy_longest
        if self.confidence_reads_law:
            data["confidence_reads_law"] = True
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


def _refuse_other_layouts(data: Mapping[str, Any], architectures: tuple[str, ...]) -> None:
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
            f"Architecture {shown(architectures[0])} scales embeddings and norms in its own way, which is not "
            f"built here yet. Built: {', '.join(SUPPORTED_ARCHITECTURES)}."
        )
    if not set(architectures) & set(SUPPORTED_ARCHITECTURES):
        raise CheckpointError(
            f"Drafter config: architectures {shown(list(architectures))} is not known. "
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
            raise CheckpointError(
                f"Drafter config: {name} = {shown(data[name])} is not built here (only {built[0]!r})."
            )


def _rope_theta(fields: Fields) -> float:
    """transformers 5 nests it in `rope_parameters`, older files have it at the top."""
    rope = fields.section("rope_parameters")
    if not rope:
        return fields.positive("rope_theta")
    nested = Fields(rope, f"{_WHERE}, rope_parameters", CheckpointError, _WAY_OUT)
    kind = nested.text("rope_type", "default")
    if kind != "default":
        raise CheckpointError(f"Drafter config: rope_type {shown(kind)} is not built here (only 'default').")
    return nested.positive("rope_theta")
