"""Beginning with another drafter's weights: what fits is taken, larger Markov tables in their strongest directions."""

import pytest
import torch

from dspark_core.training.start import take_weights
from tests.modules.tiny import H, V, tiny_drafter

DRAFTED = torch.arange(0, V, 2)  # half of the tokens are drafted, 20 in all


def earlier(rank=6, true_rank=6, seed=0):
    """A drafter whose bigram scores have `true_rank` directions, and whose rare tokens are never drafted."""
    drafter = tiny_drafter(seed, markov_rank=rank)
    generator = torch.Generator().manual_seed(seed)
    w1, w2 = drafter.markov_head.markov_w1.weight, drafter.markov_head.markov_w2.weight
    mixing = torch.linalg.qr(torch.randn(rank, rank, generator=generator))[0]
    kept = torch.randn(V, true_rank, generator=generator) @ mixing[:true_rank]
    w2.zero_()
    w2[DRAFTED] = kept[DRAFTED]
    w1.copy_(torch.randn(V, rank, generator=generator))
    return drafter


def scores(drafter):
    return drafter.markov_head.markov_w1.weight @ drafter.markov_head.markov_w2.weight.T


def test_everything_is_taken_from_a_drafter_of_the_same_shape():
    first, second = tiny_drafter(0), tiny_drafter(1)
    assert take_weights(second, first) == []
    assert all(torch.equal(value, first.state_dict()[name]) for name, value in second.state_dict().items())


def test_another_head_begins_anew_and_the_layers_are_kept():
    first, second = tiny_drafter(0), tiny_drafter(1, markov_head_type="gated")
    assert set(take_weights(second, first)) == {"markov_head.gate_proj.weight", "markov_head.gate_proj.bias"}
    assert torch.equal(second.fc.weight, first.fc.weight)


def test_tables_whose_scores_have_fewer_directions_lose_nothing_in_a_lower_rank():
    first, second = earlier(rank=6, true_rank=3), tiny_drafter(1, markov_rank=3)
    assert take_weights(second, first) == []
    torch.testing.assert_close(scores(second)[:, DRAFTED], scores(first)[:, DRAFTED], rtol=1e-4, atol=1e-4)


def test_the_nearest_scores_of_a_lower_rank_are_taken():
    first, second = earlier(), tiny_drafter(1, markov_rank=3)
    take_weights(second, first)
    wanted = scores(first)[DRAFTED][:, DRAFTED]
    left, strengths, right = torch.linalg.svd(wanted)
    nearest = left[:, :3] * strengths[:3] @ right[:3]
    torch.testing.assert_close(scores(second)[DRAFTED][:, DRAFTED], nearest, rtol=1e-3, atol=1e-3)


def test_tokens_that_are_never_drafted_keep_no_say_in_the_bias():
    first, second = earlier(), tiny_drafter(1, markov_rank=3)
    take_weights(second, first)
    others = torch.ones(V, dtype=torch.bool)
    others[DRAFTED] = False
    assert (second.markov_head.markov_w2.weight[others] == 0).all()


def test_the_confidence_heads_view_of_the_token_before_is_kept_as_well_as_may_be():
    first, second = earlier(rank=6, true_rank=6), tiny_drafter(1, markov_rank=5)
    take_weights(second, first)
    before, after = (
        (drafter.markov_head.markov_w1.weight @ drafter.confidence_head.proj.weight[0, H:])[DRAFTED]
        for drafter in (first, second)
    )
    assert torch.equal(first.confidence_head.proj.weight[:, :H], second.confidence_head.proj.weight[:, :H])
    assert (after - before).norm() < (before - 0).norm()
    assert torch.corrcoef(torch.stack((before, after)))[0, 1] > 0.7


def test_w1_keeps_its_size():
    first, second = earlier(), tiny_drafter(1, markov_rank=3)
    take_weights(second, first)
    sizes = [drafter.markov_head.markov_w1.weight.square().mean().sqrt().item() for drafter in (first, second)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-4)


@pytest.mark.parametrize(("rank", "drafted"), [(8, True), (3, False)])
def test_a_higher_rank_and_a_head_that_learnt_nothing_begin_anew(rank, drafted):
    first, second = earlier(), tiny_drafter(1, markov_rank=rank)
    if not drafted:
        first.markov_head.markov_w2.weight.zero_()
    anew = take_weights(second, first)
    assert {"markov_head.markov_w1.weight", "markov_head.markov_w2.weight"} <= set(anew)


@pytest.mark.parametrize("flat", ["markov_w1", "markov_w2"])
def test_tables_that_tell_tokens_apart_in_fewer_directions_than_are_asked_for_give_finite_numbers(flat):
    first, second = earlier(), tiny_drafter(1, markov_rank=3)
    getattr(first.markov_head, flat).weight.copy_(torch.ones_like(getattr(first.markov_head, flat).weight))
    assert take_weights(second, first) == []
    assert all(bool(value.isfinite().all()) for value in second.state_dict().values())
    wanted = scores(first)[:, DRAFTED][DRAFTED]
    torch.testing.assert_close(scores(second)[:, DRAFTED][DRAFTED], wanted, rtol=1e-3, atol=1e-3)


def test_tables_whose_scores_are_all_zero_begin_anew():
    first, second = earlier(), tiny_drafter(1, markov_rank=3)
    first.markov_head.markov_w1.weight.zero_()
    assert "markov_head.markov_w1.weight" in take_weights(second, first)
