"""Markov and confidence head: orders, shapes, and that a confidence is known before its token."""

import torch

from dspark_core.modules.confidence import ConfidenceHead
from dspark_core.modules.sequential import MarkovHead
from tests.modules.tiny import GAMMA, H, V, tiny_config, tiny_drafter


def test_markov_bias_is_w1_of_the_previous_token_times_w2():
    head = tiny_drafter().markov_head
    previous = torch.tensor([7, 0, 39])
    expected = head.markov_w1.weight[previous] @ head.markov_w2.weight.T
    torch.testing.assert_close(head.bias(previous), expected)
    candidates = torch.tensor([1, 5, 30])
    torch.testing.assert_close(head.bias(previous, candidates), expected[:, candidates])


def test_markov_head_starts_without_any_bias():
    assert torch.equal(MarkovHead(V, 6).bias(torch.arange(V)), torch.zeros(V, V))


def test_sparse_gradients_equal_dense_ones():
    previous, candidates = torch.tensor([1, 1, 4]), torch.tensor([0, 2, 9])
    gradients = []
    for sparse in (False, True):
        head = tiny_drafter().markov_head.requires_grad_(True)
        head.sparse_gradients = sparse
        head.bias(previous, candidates).square().sum().backward()
        gradients.append([p.grad.to_dense() if p.grad.is_sparse else p.grad for p in head.parameters()])
        assert head.markov_w2.weight.grad.is_sparse is sparse
    for dense, sparse_one in zip(*gradients, strict=True):
        torch.testing.assert_close(dense, sparse_one)


def test_confidence_is_a_logit_of_hidden_then_markov():
    head = tiny_drafter().confidence_head
    hidden, embedding = torch.randn(4, H) * 10, torch.randn(4, 6) * 10
    weight, bias = head.proj.weight[0], head.proj.bias[0]
    logits = head(hidden, embedding)
    torch.testing.assert_close(logits, hidden @ weight[:H] + embedding @ weight[H:] + bias)
    assert (logits.abs() > 1).any()  # a probability would lie within 0 and 1


def test_confidence_without_markov_reads_the_hidden_state_alone():
    head = ConfidenceHead(tiny_config(confidence_head_with_markov=False).confidence_inputs)
    assert head.proj.weight.shape == (1, H)
    assert head(torch.randn(3, H), None).shape == (3,)


def test_confidence_is_known_before_its_token_is_drawn():
    """Changing x_k and everything after it never changes c_k."""
    drafter = tiny_drafter()
    context = drafter.context_keys_values(torch.randn(6, 2 * H), torch.arange(6))
    hidden = drafter.forward_block(torch.randn(GAMMA, H), torch.arange(6, 6 + GAMMA), context)

    def confidences(drawn):
        previous = torch.tensor([11, *drawn[:-1]])  # x_0 … x_{γ-1}
        return drafter.confidence_head(hidden, drafter.markov_head.embed(previous))

    drawn = list(range(GAMMA))
    before = confidences(drawn)
    for k in range(GAMMA):
        changed = drawn[:k] + [20 + i for i in range(k, GAMMA)]
        after = confidences(changed)
        assert torch.equal(after[: k + 1], before[: k + 1])
        if k + 1 < GAMMA:
            assert (after[k + 1 :] != before[k + 1 :]).all()
