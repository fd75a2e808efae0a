"""The copy head: part of the draft law and told before it is drawn, as far as a match reaches, and never more."""

from dataclasses import replace

import pytest
import torch

from dspark_core.drafters.dspark import DSparkDrafter
from dspark_core.modules.copy_head import CopyHead
from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice
from tests.drafters.test_dspark import Preset, features_of
from tests.toy import HIDDEN, ToyTarget, toy_copying_model, toy_draft_model

SAMPLED = SamplingParams(temperature=1.0)
REPEATS = (1, 2, 0, 1, 2)  # then 0 as the anchor: what followed 1 2 0 before is 1


def opened(model, tokens=REPEATS, **options):
    target = ToyTarget()
    drafter = DSparkDrafter(model, target, **options)
    state = drafter.open(20)
    state.observe(tuple(tokens), features_of(target, tokens))
    return drafter, state


def probability(block, k, token):
    return float(block.candidate_probs[k][block.candidate_ids[k] == token].sum() / block.candidate_probs[k].sum())


def trusting(bias):
    """The toy's model with a copy head that raises every copied token by ``bias``, and nothing else."""
    model = toy_copying_model()
    head = CopyHead(8, HIDDEN).double()
    with torch.no_grad():
        head.by_length.fill_(bias / 10)
    model.modules.copy_head = head.requires_grad_(False)
    return model


def test_the_token_that_followed_the_same_words_is_raised_by_the_bias_and_no_other():
    _, plain = opened(trusting(0.0))
    _, raised = opened(trusting(2.0))
    before, after = (state.draft(0, 1, SAMPLED, SeededDice(4)) for state in (plain, raised))
    odds = [probability(block, 0, 1) / (1 - probability(block, 0, 1)) for block in (before, after)]
    assert odds[1] / odds[0] == pytest.approx(float(torch.tensor(2.0).exp()), rel=1e-5)
    others = [probability(block, 0, 0) / probability(block, 0, 2) for block in (before, after)]
    assert others[0] == pytest.approx(others[1], rel=1e-5)


def test_a_copy_goes_on_through_the_block():
    _, state = opened(trusting(60.0))
    assert state.draft(0, 2, SamplingParams(), SeededDice(4)).token_ids == (1, 2)


def test_where_nothing_matches_nothing_is_raised():
    texts = {bias: opened(trusting(bias), tokens=(1, 1))[1] for bias in (0.0, 60.0)}
    blocks = [state.draft(2, 1, SAMPLED, SeededDice(4)) for state in texts.values()]
    assert torch.equal(blocks[0].candidate_probs, blocks[1].candidate_probs)


def test_drafts_are_forgotten_whether_they_were_drawn_to_the_end_or_failed():
    _, state = opened(toy_copying_model())
    state.draft(0, 1, SAMPLED, SeededDice(4))
    length = len(state.text)
    assert length == len(REPEATS)
    state.draft(0, 2, SAMPLED, SeededDice(4))
    assert len(state.text) == length
    with pytest.raises(IndexError):
        state.draft(0, 2, SAMPLED, Preset())
    assert len(state.text) == length


def test_the_confidence_is_shifted_by_the_match_before_the_token_is_drawn():
    model = toy_copying_model()
    _, state = opened(model)
    ones = [state.draft(0, 2, SAMPLED, Preset(first, 0)).confidences[0] for first in (0, 1, 2)]
    assert len(set(ones)) == 1  # c_1 does not depend on x_1
    with torch.no_grad():
        model.modules.copy_head.confidence.zero_()
    _, unshifted = opened(model)
    assert unshifted.draft(0, 2, SAMPLED, Preset(0, 0)).confidences[0] != pytest.approx(ones[0])


def test_a_copied_token_outside_the_candidates_takes_the_place_of_the_least_likely_one():
    for bias in (0.0, 60.0):
        _, state = opened(trusting(bias), candidates=2)
        block = state.draft(0, 1, SAMPLED, SeededDice(4))
        assert 1 in block.candidate_ids[0].tolist()
        assert len(set(block.candidate_ids[0].tolist())) == 2


def test_a_token_that_may_not_be_drafted_is_not_copied():
    _, state = opened(trusting(60.0), draft_vocabulary=[0, 2])
    assert 1 not in state.draft(0, 1, SAMPLED, SeededDice(4)).token_ids


def test_dflash_copies_nothing():
    drafter, _ = opened(trusting(60.0))
    state = drafter.without_head().open(20)
    state.observe(REPEATS, features_of(drafter.target, REPEATS))
    plain, _ = opened(toy_draft_model())
    other = plain.without_head().open(20)
    other.observe(REPEATS, features_of(plain.target, REPEATS))
    blocks = [each.draft(0, 2, SAMPLED, SeededDice(4)) for each in (state, other)]
    assert torch.equal(blocks[0].candidate_probs, blocks[1].candidate_probs)


def test_the_config_says_whether_there_is_a_copy_head():
    config = replace(toy_draft_model().config, copy_longest=8)
    assert type(config).from_dict({**config.to_dict(), "architectures": ["Qwen3DSparkModel"]}).copy_longest == 8
    assert "copy_longest" not in toy_draft_model().config.to_dict()
