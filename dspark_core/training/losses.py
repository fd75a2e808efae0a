"""The two training losses. Symbols: N predictions, C candidate tokens, H hidden size; everything is a weighted mean."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

CE_WEIGHT, TV_WEIGHT, CONFIDENCE_WEIGHT = 0.1, 0.9, 1.0


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

    Logits [N, C], `labels` [N] indices into C, confidence logits and weights [N]. The target and c* carry no gradient.
    """
    log_draft = functional.log_softmax(draft_logits.float(), dim=-1)
    target_probs = functional.softmax(target_logits.detach().float(), dim=-1)
    distance = (log_draft.exp() - target_probs).abs().sum(-1)
    acceptance = (1 - 0.5 * distance).detach().clamp(0, 1)
    ce = weighted_mean(-log_draft.gather(-1, labels.unsqueeze(-1)).squeeze(-1), weights)
    tv = weighted_mean(distance, weights)
    entropy = functional.binary_cross_entropy_with_logits(confidence_logits.float(), acceptance, reduction="none")
    confidence = weighted_mean(entropy, weights)
    total = CE_WEIGHT * ce + TV_WEIGHT * tv + CONFIDENCE_WEIGHT * confidence
    return DraftLoss(total, ce, tv, confidence, acceptance)
