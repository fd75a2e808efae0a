"""The drafter on a training batch. Symbols as in `batch`; N = valid predictions, C candidate tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dspark_core.errors import ParameterError
from dspark_core.modules.confidence import log_odds_of_best
from dspark_core.modules.drafter import Drafter
from dspark_core.training.batch import Batch
from dspark_core.training.losses import DraftLoss, draft_loss, position_weights


def block_hidden(drafter: Drafter, embedding: Tensor, batch: Batch) -> Tensor:
    """Hidden states [S, A, L, H] of every block: the anchor's embedding, then the mask's, over the visible context."""
    ids = torch.full_like(batch.labels, drafter.config.mask_token_id)
    ids[..., 0] = batch.anchor_ids
    block = functional.embedding(ids, embedding).to(drafter.fc.weight.dtype)
    positions = torch.arange(batch.features.shape[1], device=ids.device).expand(batch.features.shape[:2])
    context = drafter.context_keys_values(batch.features.to(drafter.fc.weight.dtype), positions)
    return drafter.forward_blocks(block, batch.positions, context, batch.visible)


def loss_weights(batch: Batch, block_size: int) -> Tensor:
    """[S, A, L]: the paper's position weights, 0 beyond the end of a sequence."""
    weights = position_weights(batch.labels.shape[-1], block_size).to(batch.valid.device)
    return weights * batch.valid


@dataclass(frozen=True)
class Candidates:
    """Part of the vocabulary that a loss is taken over: `ids` [C] rising, each id's place in it (-1: absent) [V]."""

    ids: Tensor
    place: Tensor

    @classmethod
    def of(cls, common: Tensor, labels: Tensor, vocab_size: int) -> "Candidates":
        """The common tokens plus every label of the batch."""
        ids = torch.unique(torch.cat((common, labels.flatten())))
        return cls(ids, places_among(ids, vocab_size))


def places_among(ids: Tensor, vocab_size: int) -> Tensor:
    """[V]: each token's place among `ids` [C], -1 where it is absent."""
    places = torch.full((vocab_size,), -1, dtype=torch.long, device=ids.device)
    places[ids] = torch.arange(len(ids), device=ids.device)
    return places


def with_copy(logits: Tensor, copied: Tensor, bias: Tensor) -> Tensor:
    """The logits [..., C], at ``copied`` [...] raised by ``bias`` [...], and as they are where that is -1: absent."""
    bias = (bias * (copied >= 0)).to(logits.dtype)
    return logits.scatter_add(-1, copied.clamp_min(0).unsqueeze(-1), bias.unsqueeze(-1))


def batch_draft_loss(drafter: Drafter, embedding: Tensor, lm_head: Tensor, batch: Batch, common: Tensor) -> DraftLoss:
    """The paper's loss on a batch, both laws renormalised on the candidates (97 % or more of all tokens)."""
    head = drafter.markov_head
    if drafter.confidence_head is None:
        raise ParameterError("Stage 2 trains the confidence head; the config leaves it out.")
    kept = batch.valid.flatten().nonzero().squeeze(-1)
    blocks = block_hidden(drafter, embedding, batch)
    hidden, labels = blocks.flatten(0, 2)[kept], batch.labels.flatten()[kept]
    candidates = Candidates.of(common, labels, drafter.config.vocab_size)
    table = lm_head[candidates.ids]
    draft_logits, previous = functional.linear(hidden, table), None
    if head is not None:
        embeddings = head.embed(batch.prev_ids)
        mixed = head.block(embeddings, blocks).flatten(0, 2)[kept]
        draft_logits = draft_logits + head.scores(mixed, candidates.ids)
        previous = embeddings.flatten(0, 2)[kept] if drafter.config.confidence_head_with_markov else None
    copying, matched = drafter.copy_head, batch.matched.flatten()[kept]
    if copying is not None:
        copied = candidates.place[batch.copied.flatten()[kept]]
        draft_logits = with_copy(draft_logits, copied, copying.gate(hidden, matched))
    target_hidden = batch.target_hidden.flatten(0, 2)[kept].to(table.dtype)
    with torch.no_grad():
        target_logits = functional.linear(target_hidden, table)
    confidence = drafter.confidence_head(hidden, previous)
    if copying is not None:
        confidence = confidence + copying.confidence_shift(matched)
    if drafter.law_confidence is not None:  # what it is told of the law is no reason to make the law surer
        confidence = drafter.law_confidence(confidence, log_odds_of_best(draft_logits.detach()))
    weights = loss_weights(batch, drafter.config.block_size).flatten()[kept]
    return draft_loss(draft_logits, target_logits, candidates.place[labels], confidence, weights)
