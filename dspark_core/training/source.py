"""The frozen target as training sees it: its tables and layers as plain tensors, and its hidden states of whole texts.

Symbols: T tokens of a text, m taps, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dspark_core.errors import ModelUnavailableError
from dspark_core.target.config import LlamaConfig
from dspark_core.target.layer import scaled_embedding
from dspark_core.target.llama import LlamaTarget
from dspark_core.target.weights import load_tensors


@dataclass(frozen=True)
class TargetWeights:
    """What a drafter starts from and is trained against: the target's shapes and tensors, in the type they came in."""

    config: LlamaConfig
    tensors: Mapping[str, Tensor]

    @classmethod
    def load(cls, folder: Path) -> TargetWeights:
        """Read a Hugging Face folder.

        ModelUnavailableError when it is none, is broken, or is of a model that no drafter can be trained for.
        """
        config = LlamaConfig.from_json(folder / "config.json")
        if config.final_softcap is not None:
            raise ModelUnavailableError(
                f"The model in {folder} caps its logits (final_logit_softcapping {config.final_softcap:g}), which "
                "training does not compute, so a drafter would learn another law. The model runs without one "
                "(drafters none and ngram); train for a model whose config.json sets no such cap."
            )
        return cls(config, load_tensors(folder))

    @property
    def embedding(self) -> Tensor:
        """Token embeddings [V, H] as the first layer reads them, scaled where the family scales them."""
        return scaled_embedding(self.config, self.tensors["model.embed_tokens.weight"])

    @property
    def lm_head(self) -> Tensor:
        """Output table [V, H]: the embedding again, unscaled, when the target ties them."""
        return self.tensors["model.embed_tokens.weight" if self.config.tie_word_embeddings else "lm_head.weight"]

    @property
    def final_norm(self) -> Tensor:
        """Gain [H] of the norm before the LM head, whole where the file holds what is added to 1."""
        stored = self.tensors["model.norm.weight"]
        return 1.0 + stored.float() if self.config.family.norms_add_one else stored

    def layer(self, index: int, name: str) -> Tensor:
        """Weight `name` (such as `self_attn.q_proj`) of one layer."""
        return self.tensors[f"model.layers.{index}.{name}.weight"]


class TargetFeatures:
    """A `FeatureSource`: the target's own pass over whole texts, so that training sees what decoding will see."""

    def __init__(self, target: LlamaTarget, taps: tuple[int, ...]) -> None:
        self.target, self.taps = target, taps

    def __call__(self, texts: Sequence[Sequence[int]]) -> list[tuple[Tensor, Tensor]]:
        """For each text: tapped layers [T, m·H] and the final hidden state after the last norm [T, H].

        ParameterError when a text is longer than the target's context.
        """
        slots = [self.target.open_slot(len(ids)) for ids in texts]
        try:
            with torch.inference_mode():
                outputs = self.target.forward(slots, texts, tapped_layers=self.taps, want_logits=False)
        finally:
            for slot in slots:
                slot.release()
        return [(output.features, output.hidden) for output in outputs]
