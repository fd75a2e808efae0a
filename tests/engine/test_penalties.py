"""Bias and penalties: by hand, row by row, and as transformers has them."""

import math
import random

import pytest
import torch

from dspark_core.params import SamplingParams
from dspark_core.penalties import adjusted, biased
from dspark_core.sampling import law
from tests.laws import law_by_hand, logits_by_hand

OPTIONS = {
    "repetition_penalty": {"repetition_penalty": 1.7},
    "repetition wanted": {"repetition_penalty": 0.6},
    "presence_penalty": {"presence_penalty": 0.9},
    "frequency_penalty": {"frequency_penalty": -0.8},
    "logit_bias": {"logit_bias": ((3, 4.5), (0, -2.0), (5, -math.inf))},
}
OPTIONS["all"] = {name: value for options in OPTIONS.values() for name, value in options.items()}


def some_text(dice, vocab_size=7):
    return [[dice.randrange(vocab_size) for _ in range(dice.randint(low, 6))] for low in (1, 0, 0)]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_row_counts_exactly_the_tokens_before_it(option):
    dice, generator = random.Random(1), torch.Generator().manual_seed(2)
    params = SamplingParams(**OPTIONS[option])
    for _ in range(100):
        prompt, answer, drafted = some_text(dice)
        logits = torch.randn(len(drafted) + 1, 7, generator=generator, dtype=torch.float64) * 3
        before = logits.clone()
        rows = adjusted(logits, params, prompt, answer, drafted)
        for k, row in enumerate(rows.tolist()):
            expected = logits_by_hand(logits[k].tolist(), params, prompt, [*answer, *drafted[:k]])
            assert row == pytest.approx(expected, abs=1e-12)
        assert torch.equal(logits, before), "what was given is not to be changed"


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=1.0, top_k=3, min_p=0.1, seed=4)])
def test_without_bias_and_penalty_the_logits_are_handed_on_untouched(params):
    logits = torch.randn(3, 7)
    assert adjusted(logits, params, [1], [2], [3, 4]) is logits
    assert biased(logits, params) is logits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_coarse_logits_are_widened_before_anything_is_added(dtype):
    logits = torch.full((1, 3), 20.0, dtype=dtype)
    rows = adjusted(logits, SamplingParams(logit_bias=((0, 0.01),), frequency_penalty=0.01), [1], [1], [])
    assert rows[0].tolist() == pytest.approx([20.01, 19.99, 20.0], abs=1e-5)


def test_a_bias_finds_its_column_in_a_part_of_the_vocabulary():
    params = SamplingParams(logit_bias=((4, 1.0), (9, 2.0), (5, 3.0), (0, 4.0), (12, 5.0)))
    rows = biased(torch.zeros(2, 3), params, torch.tensor([2, 4, 9]))
    assert rows.tolist() == [[0.0, 1.0, 2.0]] * 2
    assert biased(torch.zeros(1, 5), params)[0].tolist() == [4.0, 0.0, 0.0, 0.0, 1.0]


def test_a_row_that_a_ban_would_leave_empty_stays_as_it_was():
    banned = SamplingParams(logit_bias=((2, -math.inf), (4, -math.inf)))
    logits = torch.tensor([[1.0, 2.0]])
    assert torch.equal(biased(logits, banned, torch.tensor([2, 4])), logits)
    assert biased(logits, banned, torch.tensor([2, 5]))[0].tolist() == [-math.inf, 2.0]


@pytest.mark.parametrize("greedy", [False, True])
def test_the_law_is_the_one_by_hand_and_transformers(greedy):
    """Presence and frequency apart, which transformers has not."""
    from transformers.generation import logits_process as theirs

    dice, generator = random.Random(3), torch.Generator().manual_seed(4)
    for _ in range(50):
        prompt, answer, _ = some_text(dice)
        params = SamplingParams(
            temperature=0.0 if greedy else dice.uniform(0.3, 2),
            top_k=dice.choice((0, 3, 5)),
            top_p=dice.choice((1.0, 0.6, 0.9)),
            min_p=dice.choice((0.0, 0.05, 0.4)),
            repetition_penalty=dice.uniform(0.5, 2),
            logit_bias=((dice.randrange(7), dice.uniform(-3, 3)),),
        )
        logits = torch.randn(1, 7, generator=generator, dtype=torch.float64) * 2
        ours = law(adjusted(logits, params, prompt, answer, []), params)[0].tolist()
        assert ours == pytest.approx(law_by_hand(logits[0].tolist(), params, prompt, answer), abs=1e-12)
        ((biased_token, bias),) = params.logit_bias
        chain = [
            theirs.SequenceBiasLogitsProcessor({(biased_token,): bias}),
            theirs.RepetitionPenaltyLogitsProcessor(params.repetition_penalty),
        ]
        if not greedy:
            chain += [theirs.TemperatureLogitsWarper(params.temperature)]
            chain += [theirs.TopKLogitsWarper(params.top_k)] if params.top_k else []
            chain += [theirs.TopPLogitsWarper(params.top_p)] if params.top_p < 1 else []
            chain += [theirs.MinPLogitsWarper(params.min_p)] if params.min_p else []
        scores = logits
        for step in chain:
            scores = step(torch.tensor([[*prompt, *answer]]), scores)
        if greedy:
            assert ours.index(1.0) == int(scores.argmax())
        else:
            assert ours == pytest.approx(scores.softmax(-1)[0].tolist(), abs=1e-7)
