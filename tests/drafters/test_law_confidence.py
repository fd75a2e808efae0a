"""Confidences that heed how sure the law of their draft is: known before the token is drawn, exact about the law."""

import math

import pytest
import torch

from dspark_core.drafters.base import DraftAsk
from dspark_core.drafters.dspark import DSparkDrafter
from dspark_core.errors import NumericsError
from dspark_core.modules.confidence import MOST_ODDS, log_odds_of_best
from dspark_core.modules.config import DraftConfig
from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice
from tests.drafters.test_dspark import Preset, features_of
from tests.toy import ToyTarget, toy_calibration, toy_draft_model, toy_law_model

SAMPLED = SamplingParams(temperature=1.0)
TEXT = (1, 2, 0, 1, 2)


def opened(model, **options):
    target = ToyTarget()
    drafter = DSparkDrafter(model, target, **options)
    state = drafter.open(20)
    state.observe(TEXT, features_of(target, TEXT))
    return drafter, state


def logit(p):
    return math.log(p / (1 - p))


def test_the_confidence_is_made_of_the_heads_and_of_the_likeliest_tokens_odds():
    _, plain = opened(toy_draft_model())
    _, heeding = opened(toy_law_model(0.8, 0.6, -0.2))
    own, told = (state.draft(0, 2, SAMPLED, Preset(1, 0)) for state in (plain, heeding))
    assert torch.equal(own.candidate_probs, told.candidate_probs), "the law is as it was"
    for k in range(2):
        odds = logit(float(told.candidate_probs[k].max()))
        assert logit(told.confidences[k]) == pytest.approx(0.8 * logit(own.confidences[k]) + 0.6 * odds - 0.2, rel=1e-4)


def test_the_law_of_temperature_1_counts_whatever_the_request_asks_for():
    _, state = opened(toy_law_model())
    sampled, greedy, cut = (
        state.draft(0, 1, sampling, Preset(0)).confidences
        for sampling in (SAMPLED, SamplingParams(), SamplingParams(temperature=0.5, top_k=1))
    )
    assert sampled == greedy == cut


def test_no_confidence_depends_on_the_token_it_is_about():
    _, state = opened(toy_law_model())
    blocks = [state.draft(0, 2, SAMPLED, Preset(first, second)) for first in (0, 1, 2) for second in (0, 1, 2)]
    assert len({block.confidences[0] for block in blocks}) == 1
    assert len({(block.token_ids[0], block.confidences[1]) for block in blocks}) == 3, "c_2 knows x_1, and not x_2"


def test_drafting_stops_before_the_first_token_that_is_not_wanted():
    _, state = opened(toy_law_model())
    whole = state.draft(0, 2, SAMPLED, SeededDice(4))
    nothing = state.draft(0, 2, SAMPLED, Preset(), lambda known: False)  # noqa: ARG005
    assert nothing.token_ids == ()
    assert nothing.stopped_at == whole.confidences[0]
    one = state.draft(0, 2, SAMPLED, SeededDice(4), lambda known: len(known) < 2)
    assert (one.token_ids, one.stopped_at) == (whole.token_ids[:1], whole.confidences[1])
    assert torch.equal(one.candidate_probs, whole.candidate_probs[:1])
    assert state.draft(0, 2, SAMPLED, SeededDice(4)).token_ids == whole.token_ids


@pytest.mark.parametrize("head", ["vanilla", "rnn"])
def test_requests_side_by_side_draft_what_they_draft_alone_wherever_others_stop(head):
    model = toy_draft_model(head_type=head, num_draft_tokens=4, confidence_reads_law=True)
    target = ToyTarget()
    drafter = DSparkDrafter(model, target)
    texts = (TEXT, (2, 1, 0), (0, 0, 1, 2), (1,))
    wants = [lambda known, most=most: len(known) <= most for most in (4, 0, 2, 3)]
    states = []
    for text in texts:
        states.append(drafter.open(20))
        states[-1].observe(text, features_of(target, text))
    alone = [state.draft(0, 4, SAMPLED, SeededDice(n), wants[n]) for n, state in enumerate(states)]
    asks = [DraftAsk(state, 0, 4, SAMPLED, SeededDice(n), wants[n]) for n, state in enumerate(states)]
    together = drafter.draft_all(asks)
    assert [len(block.token_ids) for block in alone] == [4, 0, 2, 3]
    for one, other in zip(alone, together, strict=True):
        assert one.token_ids == other.token_ids
        assert one.confidences == pytest.approx(other.confidences)


def test_a_calibration_divides_the_whole_logit_and_the_raw_confidence_stays_beside_it():
    _, raw = opened(toy_law_model())
    _, calibrated = opened(toy_law_model(), calibration=toy_calibration())
    own, told = (state.draft(0, 2, SAMPLED, Preset(0, 0)) for state in (raw, calibrated))
    assert told.raw_confidences == own.confidences
    assert told.confidences != own.confidences


def test_damaged_logits_are_refused_by_name():
    model = toy_law_model()
    drafter, state = opened(model)
    drafter._sequential._lm_head = lambda hidden: torch.full((len(hidden), 3), math.nan)
    with pytest.raises(NumericsError, match="not finite"):
        state.draft(0, 2, SAMPLED, SeededDice(4))


def test_odds_of_laws_that_are_sure_or_all_alike_are_finite():
    sure, even, one = torch.tensor([800.0, 0.0, -800.0]), torch.zeros(4), torch.tensor([3.0])
    assert float(log_odds_of_best(sure)) == float(log_odds_of_best(one)) == MOST_ODDS
    assert float(log_odds_of_best(even)) == pytest.approx(logit(1 / 4))
    banned = torch.tensor([0.0, -math.inf, -math.inf])
    assert float(log_odds_of_best(banned)) == MOST_ODDS


def test_the_odds_of_a_sure_law_hardly_move_when_its_logits_hardly_do():
    """Requests in a batch have other roundings than alone, and must come to the same decisions."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 1024, generator=generator) * 2
    logits[:, 7] = torch.linspace(10, 21, 50)
    moved = logits + 2e-6 * torch.randn(logits.shape, generator=generator)
    exact = logits.double()
    expected = exact[:, 7] - torch.cat((exact[:, :7], exact[:, 8:]), dim=1).logsumexp(-1)
    assert float(expected.max()) > 11
    torch.testing.assert_close(log_odds_of_best(logits).double(), expected.clamp(max=MOST_ODDS), atol=1e-5, rtol=0)
    torch.testing.assert_close(log_odds_of_best(moved), log_odds_of_best(logits), atol=2e-5, rtol=0)


def test_the_config_says_that_confidences_heed_the_law():
    config = toy_law_model().config
    assert DraftConfig.from_dict(config.to_dict()).confidence_reads_law
    assert "confidence_reads_law" not in toy_draft_model().config.to_dict()
