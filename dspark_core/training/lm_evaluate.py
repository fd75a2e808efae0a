"""How good a small language model is as a drafter, on cached text, teacher-forced, without decoding.

Such a model drafts x_k from the text before it, drafts included. Given that those were accepted they are the text, so
its law at a place of the text is the same whatever position k of a block the place has. Symbols: n answer tokens,
D tokens that may be drafted, V vocabulary, γ drafts a round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dspark_core.training.cache import CachedSequence, FeatureCache
from dspark_core.training.evaluate import GREEDY_TEMPERATURE, GreedyResult, walk
from dspark_core.training.lm_batch import LmBatch, gather
from dspark_core.training.lm_model import DraftLm

NUM_DRAFT_TOKENS = 8
_CHUNK = 128  # predictions at once: their logits over the vocabulary are the memory needed


@dataclass(frozen=True)
class _Measured:
    """One answer [n]: 1 - ½‖p_d - p_t‖₁, is the model's best token the target's, is it the text's."""

    acceptance: Tensor
    agreement: Tensor
    hits: Tensor


class LmEvaluator:
    """Measures models on one cache with the target's `lm_head` [V, H]; only `draft_ids` [D] are ever drafted."""

    def __init__(self, cache: FeatureCache, lm_head: Tensor, draft_ids: Tensor, *, autocast: bool = True) -> None:
        self.cache, self.draft_ids, self.autocast = cache, draft_ids, autocast
        self.lm_head = lm_head.to(torch.bfloat16) if autocast else lm_head.float()

    def figures(self, model: DraftLm, sequences: Sequence[CachedSequence]) -> dict[str, Any]:
        """`law`: at T = 1, over all answers; `greedy`: exact rounds over the greedy answers, when there are any.

        `law.acceptance` is the mean of 1 - ½‖p_d - p_t‖₁ over all places (one number: there is no decay along a block),
        `law.expected_tau` the mean over them of 1 + Σ of the products of the next γ acceptances along the text, and
        `law.greedy_agreement` the share of places where both models have the same best token.
        """
        measured = [self._measure(model, sequence) for sequence in sequences]
        places = torch.cat([m.acceptance for m in measured])
        law = {
            "num_draft_tokens": NUM_DRAFT_TOKENS,
            "expected_tau": round(float(torch.cat([expected_tokens(m.acceptance) for m in measured]).mean()), 4),
            "acceptance": round(float(places.mean()), 4),
            "greedy_agreement": round(float(torch.cat([m.agreement for m in measured]).mean()), 4),
            "places": len(places),
        }
        pairs = zip(sequences, measured, strict=True)
        rounds = [_rounds(m.hits) for s, m in pairs if s.temperature <= GREEDY_TEMPERATURE]
        if not rounds:
            return {"law": law}
        total = rounds[0]
        for other in rounds[1:]:
            total = total + other
        return {"law": law, "greedy": total.to_dict()}

    @torch.inference_mode()
    def _measure(self, model: DraftLm, sequence: CachedSequence) -> _Measured:
        device = model.embedding.device
        batch = gather(self.cache, [sequence]).to(device)
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        with torch.autocast(device.type, torch.bfloat16, enabled=self.autocast):
            hidden = model(batch.ids, model.embedding).flatten(0, 1)[batch.rows]
            table = model.embedding[self.draft_ids]
            for first in range(0, len(hidden), _CHUNK):
                parts.append(self._compare(hidden[first : first + _CHUNK], table, batch, first))
        return _Measured(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))

    def _compare(self, hidden: Tensor, table: Tensor, batch: LmBatch, first: int) -> tuple[Tensor, Tensor, Tensor]:
        rows = slice(first, first + len(hidden))
        draft = functional.softmax(functional.linear(hidden, table).float(), dim=-1)
        target = functional.linear(batch.target_hidden[rows].to(self.lm_head.dtype), self.lm_head).float()
        best, wanted = self.draft_ids[draft.argmax(-1)], target.argmax(-1)
        difference = functional.softmax(target, dim=-1).neg_()
        difference[:, self.draft_ids] += draft
        acceptance = (1 - 0.5 * difference.abs_().sum(-1)).clamp(0, 1)
        return acceptance, (best == wanted).float(), best == batch.labels[rows]


def expected_tokens(acceptance: Tensor, drafts: int = NUM_DRAFT_TOKENS) -> Tensor:
    """[n]: tokens committed by a round that begins before each place of a text whose acceptances are [n]."""
    padded = functional.pad(acceptance, (0, drafts - 1))  # nothing is drafted beyond the end
    return 1 + padded.unfold(0, drafts, 1).cumprod(-1).sum(-1)


def _rounds(hits: Tensor) -> GreedyResult:
    padded = functional.pad(hits, (0, NUM_DRAFT_TOKENS - 1))
    return walk(padded.unfold(0, NUM_DRAFT_TOKENS, 1).tolist())
