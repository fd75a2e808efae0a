"""Markov and confidence head: orders, shapes, and that a confidence is known before its token."""

import pytest
import torch

from dspark_core.modules.confidence import ConfidenceHead
from dspark_core.modules.sequential import HEADS, MarkovHead
from tests.modules.tiny import GAMMA, H, V, tiny_config, tiny_drafter


def bias(head, previous, candidates=None):
    """What the last of single-token blocks adds to the logits."""
    embeddings = head.embed(previous)
    return head.scores(head.block(embeddings.unsqueeze(-2), torch.zeros(*previous.shape, 1, H))[..., 0, :], candidates)


def drawn_one_by_one(head, embeddings, hidden):
    """u_1 … u_L by `mix`, as a drafter draws."""
    state, mixed = None, []
    for k in range(len(embeddings)):
        u, state = head.mix(state, embeddings[k], hidden[k])
        mixed.append(u)
    return torch.stack(mixed)


@pytest.mark.parametrize("kind", HEADS)
def test_a_block_at_once_is_what_drawing_one_by_one_gives_and_sees_no_later_token(kind):
    head = tiny_drafter(markov_head_type=kind).markov_head
    embeddings, hidden = torch.randn(GAMMA, 6), torch.randn(GAMMA, H)
    whole = head.block(embeddings, hidden)
    torch.testing.assert_close(whole, drawn_one_by_one(head, embeddings, hidden))
    torch.testing.assert_close(head.block(embeddings[None], hidden[None])[0], whole)
    changed = embeddings.clone()
    changed[2] += 1
    after = head.block(changed, hidden)
    assert torch.equal(after[:2], whole[:2])
    assert not torch.allclose(after[2], whole[2])
    assert torch.allclose(after[3], whole[3]) == (kind in ("vanilla", "gated"))  # only those forget


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_without_tables_mixes_as_the_head_itself(kind):
    head = tiny_drafter(markov_head_type=kind).markov_head
    embeddings, hidden = torch.randn(GAMMA, 6), torch.randn(GAMMA, H)
    light = head.without_tables()
    torch.testing.assert_close(light.block(embeddings, hidden), head.block(embeddings, hidden))
    assert light.markov_w1.weight.numel() == 6


def test_the_gate_reads_hidden_then_embedding():
    head = tiny_drafter(markov_head_type="gated").markov_head
    e, h = torch.randn(3, 6), torch.randn(3, H)
    weight, shift = head.gate_proj.weight, head.gate_proj.bias
    gate = torch.sigmoid(h @ weight[:, :H].T + e @ weight[:, H:].T + shift)
    torch.testing.assert_close(head.mix(None, e, h)[0], gate * e)


def test_the_rnn_reads_state_embedding_hidden_and_gives_gate_candidate_output():
    head = tiny_drafter(markov_head_type="rnn").markov_head
    s, e, h = torch.randn(3, 6), torch.randn(3, 6), torch.randn(3, H)
    weight, shift = head.joint_proj.weight, head.joint_proj.bias
    joint = s @ weight[:, :6].T + e @ weight[:, 6:12].T + h @ weight[:, 12:].T + shift
    u, after = head.mix(s, e, h)
    keep = torch.sigmoid(joint[:, :6])
    torch.testing.assert_close(after, keep * s + (1 - keep) * torch.tanh(joint[:, 6:12]))
    torch.testing.assert_close(u, torch.tanh(joint[:, 12:]))
    torch.testing.assert_close(head.mix(None, e, h)[0], head.mix(torch.zeros(3, 6), e, h)[0])


def test_the_convolution_begins_as_the_bigram_and_sees_four_tokens():
    head = HEADS["conv"](V, 6, H)
    embeddings, hidden = torch.randn(7, 6), torch.zeros(7, H)
    torch.testing.assert_close(head.block(embeddings, hidden), embeddings)
    with torch.no_grad():
        head.conv_weight.copy_(torch.arange(1.0, 5.0).unsqueeze(1).expand(4, 6))
    last = head.block(embeddings, hidden)[6]
    torch.testing.assert_close(last, embeddings[6] + 2 * embeddings[5] + 3 * embeddings[4] + 4 * embeddings[3])


def test_markov_bias_is_w1_of_the_previous_token_times_w2():
    head = tiny_drafter().markov_head
    previous = torch.tensor([7, 0, 39])
    expected = head.markov_w1.weight[previous] @ head.markov_w2.weight.T
    torch.testing.assert_close(bias(head, previous), expected)
    candidates = torch.tensor([1, 5, 30])
    torch.testing.assert_close(bias(head, previous, candidates), expected[:, candidates])


def test_markov_head_starts_without_any_bias():
    assert torch.equal(bias(MarkovHead(V, 6, H), torch.arange(V)), torch.zeros(V, V))


def test_sparse_gradients_equal_dense_ones():
    previous, candidates = torch.tensor([1, 1, 4]), torch.tensor([0, 2, 9])
    gradients = []
    for sparse in (False, True):
        head = tiny_drafter().markov_head.requires_grad_(True)
        head.sparse_gradients = sparse
        bias(head, previous, candidates).square().sum().backward()
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
