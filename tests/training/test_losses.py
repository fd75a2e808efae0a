"""Losses against values worked out by hand."""

import math

import pytest
import torch

from dspark_core.training.losses import draft_loss, position_weights, regression_loss, weighted_mean


def logits(*rows):
    return torch.tensor(rows).log()


def test_position_weights_are_the_papers():
    assert position_weights(3, 8).tolist() == pytest.approx([1.0, math.exp(-1 / 8), math.exp(-2 / 8)])


def test_weighted_mean_of_nothing_is_zero():
    assert weighted_mean(torch.tensor([1.0, 5.0]), torch.tensor([1.0, 3.0])) == pytest.approx(4.0)
    assert weighted_mean(torch.tensor([1.0]), torch.tensor([0.0])) == 0


def test_three_terms_of_the_papers_loss():
    loss = draft_loss(
        logits([0.5, 0.3, 0.2], [0.1, 0.1, 0.8]),
        logits([0.7, 0.2, 0.1], [0.1, 0.1, 0.8]),
        torch.tensor([0, 2]),
        torch.tensor([0.0, 2.0]),
        torch.tensor([1.0, 0.5]),
    )
    assert loss.acceptance.tolist() == pytest.approx([0.8, 1.0])  # 1 - ½(0.2 + 0.1 + 0.1)
    assert float(loss.ce) == pytest.approx((-math.log(0.5) - 0.5 * math.log(0.8)) / 1.5, rel=1e-5)
    assert float(loss.tv) == pytest.approx(0.4 / 1.5, rel=1e-5)
    sure = 1 / (1 + math.exp(-2))
    entropy = -0.8 * math.log(0.5) - 0.2 * math.log(0.5) - 0.5 * math.log(sure)
    assert float(loss.confidence) == pytest.approx(entropy / 1.5, rel=1e-5)
    assert float(loss.total) == pytest.approx(float(0.1 * loss.ce + 0.9 * loss.tv + loss.confidence), rel=1e-5)


def test_the_confidences_goal_carries_no_gradient_to_the_draft():
    draft = torch.randn(4, 6, requires_grad=True)
    target = torch.randn(4, 6, requires_grad=True)
    confidence = torch.randn(4, requires_grad=True)
    loss = draft_loss(draft, target, torch.zeros(4, dtype=torch.long), confidence, torch.ones(4))
    assert torch.autograd.grad(loss.confidence, [draft, target], retain_graph=True, allow_unused=True) == (None, None)
    loss.total.backward()
    assert target.grad is None
    assert draft.grad.abs().sum() > 0


def test_zero_weight_means_no_influence():
    draft = torch.randn(3, 5, requires_grad=True)
    weights = torch.tensor([1.0, 0.0, 1.0])
    draft_loss(draft, torch.randn(3, 5), torch.tensor([0, 1, 2]), torch.zeros(3), weights).total.backward()
    assert draft.grad[1].abs().max() == 0
    assert draft.grad[0].abs().max() > 0


def test_regression_is_zero_at_the_target_and_known_elsewhere():
    target = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    same = regression_loss(target, target, torch.ones(2))
    assert float(same.total) == pytest.approx(0, abs=1e-6)
    opposite = regression_loss(-target, target, torch.ones(2))
    scale = math.sqrt(25 / 4)
    assert float(opposite.cosine) == pytest.approx(-1)
    assert float(opposite.smooth_l1) == pytest.approx(((6 / scale - 0.5) + (8 / scale - 0.5)) / 4, rel=1e-5)
    assert float(opposite.total) == pytest.approx(float(opposite.smooth_l1) + 2, rel=1e-5)


@pytest.mark.parametrize("rows", [1, 31, 70])
def test_the_written_out_gradient_is_autograds(rows):
    torch.manual_seed(rows)
    draft, target = torch.randn(rows, 50, requires_grad=True), 2 * torch.randn(rows, 50)
    labels, weights = torch.randint(0, 50, (rows,)), torch.rand(rows)
    loss = draft_loss(draft, target, labels, torch.zeros(rows), weights)
    log_draft = draft.log_softmax(-1)
    distance = (log_draft.exp() - target.softmax(-1)).abs().sum(-1)
    entropy = -log_draft.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    wanted = 3 * (0.1 * weighted_mean(entropy, weights) + 0.9 * weighted_mean(distance, weights))
    torch.testing.assert_close(3 * (loss.total - loss.confidence), wanted)
    ours, autograds = torch.autograd.grad(3 * loss.total, draft)[0], torch.autograd.grad(wanted, draft)[0]
    torch.testing.assert_close(ours, autograds, rtol=1e-4, atol=1e-7)
