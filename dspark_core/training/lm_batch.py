"""Whole conversations for a language model, side by side.

Symbols: S texts, T tokens of each, N predictions, H the target's hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dspark_core.training.batch import COOL_TEMPERATURE
from dspark_core.training.cache import CachedSequence, FeatureCache

_ALIKE = 16  # tokens: texts that differ by less are of one length, and change their neighbours from epoch to epoch


@dataclass(frozen=True)
class LmBatch:
    """Texts and what is to be predicted in them: every token of the answers.

    `ids` [S, T], padded at the end; `rows` [N] = places in [S·T] that predict; `labels` [N] = the tokens after them;
    `target_hidden` [N, H] bfloat16 = the states that the target draws these from; `weights` [N].
    """

    ids: Tensor
    rows: Tensor
    labels: Tensor
    target_hidden: Tensor
    weights: Tensor

    def to(self, device: torch.device | str) -> "LmBatch":
        """The same batch on another device."""
        return LmBatch(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


class LmSampler:
    """Deals out the conversations, each once an epoch; a batch depends on the seed and its number only.

    A batch holds as many texts of like length as fit into `batch_tokens`, padding included (at least one).
    """

    def __init__(self, sequences: Sequence[CachedSequence], *, batch_tokens: int, seed: int = 0) -> None:
        self._sequences = list(sequences)
        self._batch_tokens, self._seed = batch_tokens, seed
        self._first, self._epoch = 0, 0
        self._batches = self._deal(0)

    def batch(self, number: int) -> list[CachedSequence]:
        """The texts of batch `number`, counted from 0 through all epochs. Not thread-safe."""
        if number < self._first:
            self._first, self._epoch, self._batches = 0, 0, self._deal(0)
        while number >= self._first + len(self._batches):
            self._first += len(self._batches)
            self._epoch += 1
            self._batches = self._deal(self._epoch)
        return self._batches[number - self._first]

    def _deal(self, epoch: int) -> list[list[CachedSequence]]:
        rng = np.random.default_rng((self._seed, epoch))
        mixed = [self._sequences[i] for i in rng.permutation(len(self._sequences))]
        mixed.sort(key=lambda s: s.length // _ALIKE)
        batches: list[list[CachedSequence]] = []
        longest = 0
        for sequence in mixed:
            longest = max(longest, sequence.length)
            if not batches or longest * (len(batches[-1]) + 1) > self._batch_tokens:
                batches.append([])
                longest = sequence.length
            batches[-1].append(sequence)
        return [batches[i] for i in rng.permutation(len(batches))]


def gather(cache: FeatureCache, sequences: Sequence[CachedSequence], *, cool_weight: float = 1.0) -> LmBatch:
    """The batch of these conversations; predictions of (nearly) greedy answers weigh `cool_weight`."""
    texts = [cache.tokens(sequence) for sequence in sequences]
    ids = pad_sequence(texts, batch_first=True)
    parts: list[tuple[Tensor, ...]] = []
    for row, (sequence, text) in enumerate(zip(sequences, texts, strict=True)):
        first, stop = sequence.prompt_length - 1, sequence.length - 1
        _, final = cache.rows(sequence, first, stop)
        weight = cool_weight if sequence.temperature <= COOL_TEMPERATURE else 1.0
        at = torch.arange(first, stop)
        parts.append((at + row * ids.shape[1], text[at + 1], final, torch.full((stop - first,), weight)))
    return LmBatch(ids, *(torch.cat(column) for column in zip(*parts, strict=True)))
