"""One training batch: some sequences, many anchors in each, drawn by a seeded generator.

Symbols: S sequences, A anchors per sequence, L predictions per anchor, T context tokens, H hidden size, m taps.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark_core.training.cache import CachedSequence, FeatureCache

COOL_TEMPERATURE = 0.31  # answers at and below are nearly greedy, as most of what a visitor sees
_WINDOW = 64  # sequences, sorted by length, that share a batch


@dataclass(frozen=True)
class Batch:
    """Anchors and what they are to predict.

    `features` [S, T, m·H] bfloat16; `anchors` [S, A] = index of x_0 in its sequence; `anchor_ids` [S, A];
    `labels` [S, A, L] = x_1..x_L; `prev_ids` [S, A, L] = x_0..x_{L-1}; `target_hidden` [S, A, L, H] bfloat16, the state
    that the target draws x_k from; `valid` [S, A, L] is false beyond the sequence's end. `copied` [S, A, L]: what
    followed the same words before, `matched` [S, A, L]: how many words those were (0: none, see `suffix_index`).
    """

    features: Tensor
    anchors: Tensor
    anchor_ids: Tensor
    labels: Tensor
    prev_ids: Tensor
    target_hidden: Tensor
    valid: Tensor
    copied: Tensor
    matched: Tensor

    @property
    def visible(self) -> Tensor:
        """[S, A, T], true strictly before the anchor: the target has no features of the anchor itself yet."""
        return torch.arange(self.features.shape[1], device=self.anchors.device) < self.anchors.unsqueeze(-1)

    @property
    def positions(self) -> Tensor:
        """Rotary positions [S, A, L] of the block: the anchor's own and the masks' after it."""
        steps = torch.arange(self.labels.shape[-1], device=self.anchors.device)
        return self.anchors.unsqueeze(-1) + steps

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


class Sampler:
    """Draws batches; what batch a step gets depends on the seed, the step and the finished sequences only."""

    def __init__(
        self,
        cache: FeatureCache,
        sequences: list[CachedSequence],
        *,
        prompt_share: float = 0.0,
        cool_weight: float = 1.0,
    ) -> None:
        usable = [s for s in sequences if s.length - s.prompt_length >= 1 and s.prompt_length >= 1]
        self.cache = cache
        self.sequences = sorted(usable, key=lambda s: (s.length, s.start))  # neighbours pad little
        self.prompt_share = prompt_share
        cool = [cool_weight if s.temperature <= COOL_TEMPERATURE else 1.0 for s in self.sequences]
        self._weights = np.array([s.length * w for s, w in zip(self.sequences, cool, strict=True)])
        self._ends = np.cumsum(self._weights)

    def draw(self, seed: int, *, sequences: int, anchors: int, length: int) -> Batch:
        """A batch of `sequences` conversations with `anchors` each (fewer sequences when the data has no more)."""
        rng = np.random.default_rng(seed)
        chosen = self.choose(rng, sequences)
        return collate(self.cache, chosen, [self._anchors(rng, s, anchors) for s in chosen], length)

    def choose(self, rng: np.random.Generator, count: int) -> list[CachedSequence]:
        """Different sequences of similar length, each drawn in proportion to its tokens (cool ones more often)."""
        pivot = int(np.searchsorted(self._ends, rng.random() * self._ends[-1], side="right"))
        first = max(0, min(pivot - _WINDOW // 2, len(self.sequences) - _WINDOW))
        weights = self._weights[first : first + _WINDOW].copy()
        weights[pivot - first] = 0
        others = min(count - 1, int((weights > 0).sum()))
        rest = rng.choice(len(weights), others, replace=False, p=weights / weights.sum()) if others else np.array([])
        return [self.sequences[pivot], *(self.sequences[first + int(i)] for i in rest)]

    def _anchors(self, rng: np.random.Generator, sequence: CachedSequence, count: int) -> list[int]:
        """From the last prompt token (it predicts the first of the answer) to the last but one; few in the prompt."""
        in_prompt = int(rng.binomial(count, self.prompt_share)) if sequence.prompt_length > 2 else 0
        answer = np.arange(sequence.prompt_length - 1, sequence.length - 1)
        prompt = np.arange(1, max(2, sequence.prompt_length - 1))
        return [
            *rng.choice(answer, count - in_prompt, replace=count - in_prompt > len(answer)).tolist(),
            *rng.choice(prompt, in_prompt, replace=in_prompt > len(prompt)).tolist(),
        ]


def collate(cache: FeatureCache, sequences: list[CachedSequence], anchors: list[list[int]], length: int) -> Batch:
    """Gather the batch of given anchors (the same number in each sequence)."""
    context = max(1, max(max(row) for row in anchors))
    width = len(cache.taps) * cache.hidden_size
    features = torch.zeros(len(sequences), context, width, dtype=torch.bfloat16)
    parts: list[tuple[Tensor, ...]] = []
    for row, (sequence, chosen) in enumerate(zip(sequences, anchors, strict=True)):
        taps, final = cache.rows(sequence)
        features[row, : min(context, sequence.length)] = taps[:context]
        tokens = cache.tokens(sequence)
        at = torch.tensor(chosen).unsqueeze(-1) + torch.arange(length)  # index of x_{k-1}
        valid = at + 1 < sequence.length
        inside = at.clamp_max(sequence.length - 2)
        matched, copied = cache.matches(sequence)[:, inside + 1]
        parts.append(
            (at[:, 0], tokens[at[:, 0]], tokens[inside + 1], tokens[inside], final[inside], valid, copied, matched)
        )
    return Batch(features, *(torch.stack(column) for column in zip(*parts, strict=True)))
