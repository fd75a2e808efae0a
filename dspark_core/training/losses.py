"""The two training losses. Symbols: N predictions, C candidate tokens, H hidden size; everything is a weighted mean."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

CE_WEIGHT, TV_WEIGHT, CONFIDENCE_WEIGHT = 0.1, 0.9, 1.0
_ROWS = 32  # of logits at once: some hundred kB, which a core's own cache holds


def position_weights(length: int, block_size: int) -> Tensor:
    """w_k = exp(-(k-1)/γ) for k = 1..length: early positions decide whether late ones count at all."""
    return torch.exp(-torch.arange(length, dtype=torch.float32) / block_size)


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Σ w·x / Σ w (0 when all weights are 0)."""
    return (values * weights).sum() / weights.sum().clamp_min(1e-9)


@dataclass(frozen=True)
class RegressionLoss:
    """Stage 1: distance of the drafter's normalised output to the target's final hidden state."""

    total: Tensor
    smooth_l1: Tensor
    cosine: Tensor


def regression_loss(hidden: Tensor, target_hidden: Tensor, weights: Tensor) -> RegressionLoss:
    """Smooth L1 (per H, in units of the target's RMS) plus 1 - cosine; both [N, H], weights [N]."""
    wanted = target_hidden.float()
    scale = wanted.square().mean().sqrt().clamp_min(1e-6)
    distance = functional.smooth_l1_loss(hidden.float() / scale, wanted / scale, reduction="none").mean(-1)
    smooth_l1 = weighted_mean(distance, weights)
    cosine = weighted_mean(functional.cosine_similarity(hidden.float(), wanted, dim=-1), weights)
    return RegressionLoss(smooth_l1 + (1 - cosine), smooth_l1, cosine)


@dataclass(frozen=True)
class DraftLoss:
    """Stage 2, the paper's loss and its three terms (`tv` is the L1 distance, twice the total variation).

    `acceptance` [N] = 1 - ½·L1, the chance that a drafted token is accepted at this position.
    """

    total: Tensor
    ce: Tensor
    tv: Tensor
    confidence: Tensor
    acceptance: Tensor


def draft_loss(
    draft_logits: Tensor, target_logits: Tensor, labels: Tensor, confidence_logits: Tensor, weights: Tensor
) -> DraftLoss:
    """0.1·CE + 0.9·‖p_d - p_t‖₁ + 1.0·BCE(c, c*), c* = 1 - ½·‖p_d - p_t‖₁ (DSpark §3).

    Logits [N, C], `labels` [N] indices into C, confidence logits and weights [N]. The target and c* carry no gradient;
    neither do the terms `ce` and `tv` by themselves, only `total` and `confidence`.
    """
    terms = _LawLoss.apply(draft_logits, target_logits.detach(), labels, _shares(weights))  # type: ignore[no-untyped-call]
    law, ce, tv, acceptance = terms
    entropy = functional.binary_cross_entropy_with_logits(confidence_logits.float(), acceptance, reduction="none")
    confidence = weighted_mean(entropy, weights)
    return DraftLoss(law + CONFIDENCE_WEIGHT * confidence, ce, tv, confidence, acceptance)


def _shares(weights: Tensor) -> Tensor:
    """w / Σ w: what `weighted_mean` weighs each value with."""
    return weights / weights.sum().clamp_min(1e-9)


class _LawLoss(torch.autograd.Function):
    """0.1·CE + 0.9·‖p_d - p_t‖₁ with its gradient written out, a few rows at a time.

    Left to autograd, a dozen [N, C] tensors of float32 go to memory and back; here they stay in the core's own cache.
    d CE / d logits = p_d - onehot(label); d ‖p_d - p_t‖₁ / d logits = p_d ⊙ (s - s·p_d), s = sign(p_d - p_t).
    """

    @staticmethod
    def forward(
        ctx: Any, draft_logits: Tensor, target_logits: Tensor, labels: Tensor, shares: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(law loss, CE, L1: scalars; acceptance [N]) of logits [N, C], labels [N], shares [N] that add up to 1."""
        gradient = torch.empty_like(draft_logits)
        entropies = torch.empty(len(labels), dtype=torch.float32, device=labels.device)
        distances = torch.empty_like(entropies)
        for first in range(0, len(labels), _ROWS):
            rows = slice(first, first + _ROWS)
            draft, wanted = draft_logits[rows].float(), labels[rows].unsqueeze(-1)
            at_label = draft.gather(-1, wanted).squeeze(-1)
            entropies[rows] = draft.logsumexp(-1) - at_label
            draft = draft.softmax(-1)
            sign = draft - target_logits[rows].float().softmax(-1)
            distances[rows] = sign.abs().sum(-1)
            sign = sign.sign_()
            inner = (sign * draft).sum(-1, keepdim=True)
            slope = sign.sub_(inner).mul_(TV_WEIGHT).add_(CE_WEIGHT).mul_(draft)
            slope.scatter_add_(-1, wanted, torch.full_like(wanted, -CE_WEIGHT, dtype=slope.dtype))
            gradient[rows] = slope.mul_(shares[rows].unsqueeze(-1))
        ctx.save_for_backward(gradient)
        ce, tv = (entropies * shares).sum(), (distances * shares).sum()
        acceptance = (1 - 0.5 * distances).clamp(0, 1)
        ctx.mark_non_differentiable(ce, tv, acceptance)
        return CE_WEIGHT * ce + TV_WEIGHT * tv, ce, tv, acceptance

    @staticmethod
    def backward(ctx: Any, outer: Tensor, *_: Tensor) -> tuple[Tensor, None, None, None]:
        """The stored gradient, times the loss's own."""
        (gradient,) = ctx.saved_tensors
        return gradient * outer, None, None, None
