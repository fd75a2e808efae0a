"""How good a drafter is on cached text: exact greedy rounds on greedy answers, and the acceptance law by position.

Symbols: A anchors, L = γ predictions, V vocabulary, D tokens that may be drafted (V without a draft vocabulary).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dspark_core.errors import ParameterError
from dspark_core.modules.confidence import log_odds_of_best
from dspark_core.modules.drafter import Drafter
from dspark_core.training.batch import Batch, collate
from dspark_core.training.cache import CachedSequence, FeatureCache
from dspark_core.training.forward import block_hidden, places_among, with_copy

GREEDY_TEMPERATURE = 0.02  # at and below this an answer counts as greedy
_CHUNK = 32  # anchors at once: their logits over the vocabulary are the memory needed


@dataclass(frozen=True)
class GreedyResult:
    """Rounds of greedy speculative decoding.

    `tokens` committed in `rounds`; `reached[k]` rounds had position k+1 verified with everything before it accepted,
    `accepted[k]` of them accepted it too.
    """

    tokens: int
    rounds: int
    reached: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def tau(self) -> float:
        """Committed tokens per round, the target's own token included."""
        return self.tokens / max(1, self.rounds)

    def __add__(self, other: "GreedyResult") -> "GreedyResult":
        """Pool the rounds of two texts."""
        return GreedyResult(
            self.tokens + other.tokens,
            self.rounds + other.rounds,
            tuple(a + b for a, b in zip(self.reached, other.reached, strict=True)),
            tuple(a + b for a, b in zip(self.accepted, other.accepted, strict=True)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values: τ, counts, and the conditional acceptance by position (None where never reached)."""
        shares = [round(a / n, 3) if n else None for a, n in zip(self.accepted, self.reached, strict=True)]
        return {"tau": round(self.tau, 4), "tokens": self.tokens, "rounds": self.rounds, "by_position": shares}


def walk(hits: Sequence[Sequence[bool]]) -> GreedyResult:
    """Rounds from `hits[i][k]`: is the (k+1)-th draft at answer position i right, given the text before?

    Row i belongs to the anchor just before answer token i. In greedy decoding an accepted draft equals the text, so the
    rounds are exactly those of a real decoder: each commits its accepted tokens and one of the target's.
    """
    length = len(hits[0])
    reached, accepted = [0] * length, [0] * length
    at = rounds = 0
    while at < len(hits):
        taken = 0
        for k in range(min(length, len(hits) - at)):
            reached[k] += 1
            if not hits[at][k]:
                break
            accepted[k] += 1
            taken += 1
        at += taken + 1
        rounds += 1
    return GreedyResult(len(hits), rounds, tuple(reached), tuple(accepted))


class Evaluator:
    """Measures drafters on one cache with the target's tables `embedding`, `lm_head` [V, H].

    `draft_ids` [D] are the only tokens ever drafted (a draft vocabulary); None: all.
    """

    def __init__(
        self,
        cache: FeatureCache,
        tables: tuple[Tensor, Tensor],
        *,
        draft_ids: Tensor | None = None,
        autocast: bool = True,
    ) -> None:
        self.cache, self.autocast, self.draft_ids = cache, autocast, draft_ids
        self.embedding, self.lm_head = tables
        self._draft_head = self.lm_head if draft_ids is None else self.lm_head[draft_ids]
        self._places = None if draft_ids is None else places_among(draft_ids, len(self.lm_head))

    def greedy(self, drafter: Drafter, sequences: Iterable[CachedSequence]) -> GreedyResult:
        """Pooled greedy rounds over greedy answers (an end token inside a block ends the text there)."""
        results = [self._greedy_one(drafter, sequence) for sequence in sequences]
        if not results:
            raise ParameterError("There is no greedy answer to measure on; add some with a temperature of 0.")
        total = results[0]
        for result in results[1:]:
            total = total + result
        return total

    @torch.inference_mode()
    def _greedy_one(self, drafter: Drafter, sequence: CachedSequence) -> GreedyResult:
        anchors = list(range(sequence.prompt_length - 1, sequence.length - 1))
        hits: list[list[bool]] = []
        for first in range(0, len(anchors), _CHUNK):
            batch = self._batch(sequence, anchors[first : first + _CHUNK], drafter)
            logits, _ = self._logits(drafter, batch)
            drafted = logits.argmax(-1) if self.draft_ids is None else self.draft_ids[logits.argmax(-1)]
            hits += (drafted == batch.labels[0]).logical_and(batch.valid[0]).tolist()
        return walk(hits)

    @torch.inference_mode()
    def law(self, drafter: Drafter, sequences: Sequence[CachedSequence], stride: int = 16) -> dict[str, Any]:
        """Acceptance at temperature 1, summed over the laws, at every `stride`-th anchor.

        `acceptance` by position = mean of 1 - ½‖p_d - p_t‖₁ given the text so far; `expected_tau` = 1 + Σ of the prefix
        products per anchor; `confidence_error` = mean |σ(logit) - that acceptance|.
        """
        sums, counts = torch.zeros(drafter.config.block_size), torch.zeros(drafter.config.block_size)
        taus: list[Tensor] = []
        errors: list[Tensor] = []
        for sequence in sequences:
            anchors = list(range(sequence.prompt_length - 1, sequence.length - 1, stride))
            for first in range(0, len(anchors), _CHUNK):
                batch = self._batch(sequence, anchors[first : first + _CHUNK], drafter)
                accept, confidence = self._acceptance(drafter, batch)
                valid = batch.valid[0].float().cpu()
                sums += (accept * valid).sum(0)
                counts += valid.sum(0)
                taus.append(1 + (accept * valid).cumprod(-1).sum(-1))
                errors.append((confidence - accept).abs()[batch.valid[0].cpu()])
        return {
            "expected_tau": round(float(torch.cat(taus).mean()), 4),
            "acceptance": [round(float(x), 3) for x in sums / counts.clamp_min(1)],
            "confidence_error": round(float(torch.cat(errors).mean()), 4),
        }

    def _batch(self, sequence: CachedSequence, anchors: list[int], drafter: Drafter) -> Batch:
        return collate(self.cache, [sequence], [anchors], drafter.config.block_size).to(self.embedding.device)

    def _logits(self, drafter: Drafter, batch: Batch) -> tuple[Tensor, Tensor]:
        """Draft logits [A, L, D] with the true tokens before each position, and hidden states [A, L, H]."""
        with torch.autocast(self.embedding.device.type, torch.bfloat16, enabled=self.autocast):
            hidden = block_hidden(drafter, self.embedding, batch)[0]
            logits = functional.linear(hidden, self._draft_head)
            if drafter.markov_head is not None:
                mixed = drafter.markov_head.block(drafter.markov_head.embed(batch.prev_ids[0]), hidden)
                logits = logits + drafter.markov_head.scores(mixed, self.draft_ids)
            if drafter.copy_head is not None:
                copied = batch.copied[0] if self._places is None else self._places[batch.copied[0]]
                logits = with_copy(logits, copied, drafter.copy_head.gate(hidden, batch.matched[0]))
        return logits, hidden

    def _acceptance(self, drafter: Drafter, batch: Batch) -> tuple[Tensor, Tensor]:
        """1 - ½‖p_d - p_t‖₁ and the confidence, both [A, L]."""
        logits, hidden = self._logits(drafter, batch)
        with torch.autocast(self.embedding.device.type, torch.bfloat16, enabled=self.autocast):
            target = functional.linear(batch.target_hidden[0].to(hidden.dtype), self.lm_head)
        difference = -functional.softmax(target.float(), -1)
        where = torch.arange(len(self.lm_head), device=difference.device) if self.draft_ids is None else self.draft_ids
        difference[..., where] += functional.softmax(logits.float(), -1)
        accept = (1 - 0.5 * difference.abs().sum(-1)).clamp(0, 1)
        confidence = torch.ones_like(accept)
        if drafter.confidence_head is not None:
            reads_markov = drafter.config.confidence_head_with_markov and drafter.markov_head is not None
            previous = drafter.markov_head.embed(batch.prev_ids[0]) if reads_markov and drafter.markov_head else None
            told = drafter.confidence_head(hidden.float(), previous)
            if drafter.copy_head is not None:
                told = told + drafter.copy_head.confidence_shift(batch.matched[0])
            if drafter.law_confidence is not None:
                told = drafter.law_confidence(told, log_odds_of_best(logits))
            confidence = torch.sigmoid(told)
        return accept.cpu(), confidence.cpu()
