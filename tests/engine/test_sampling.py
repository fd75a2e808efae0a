"""Chance: the seeded dice draw from exactly the given law."""

import random

import pytest
import torch
from scipy.stats import chisquare

from dspark_core.errors import NumericsError
from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice, law, shown_probs


class Scripted(random.Random):
    """Gives the numbers it was told to."""

    def __init__(self, *numbers):
        super().__init__()
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)


def dice_with(*numbers):
    dice = SeededDice(0)
    dice._random = Scripted(*numbers)
    return dice


def test_inverse_cdf_cuts_the_unit_interval_at_the_cumulative_sums():
    probs = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0], dtype=torch.float64)
    for uniform, index in [(0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (1 - 2**-53, 4)]:
        assert dice_with(uniform).choose(probs) == index


@pytest.mark.parametrize("scale", [1e-30, 1.0, 3.0])
def test_the_law_need_not_be_normalised_and_zero_mass_is_never_drawn(scale):
    probs = torch.tensor([0.0, 1.0, 3.0, 0.0]) * scale
    drawn = [SeededDice(seed).choose(probs) for seed in range(200)]
    assert set(drawn) == {1, 2}


def test_draws_follow_the_law():
    probs = torch.tensor([0.05, 0.1, 0.15, 0.3, 0.4])
    dice = SeededDice(5)
    counts = torch.bincount(torch.tensor([dice.choose(probs) for _ in range(5000)]), minlength=5)
    assert chisquare(counts.numpy(), (probs.double() / probs.double().sum() * 5000).numpy()).pvalue > 1e-3


def test_acceptance_compares_strictly_and_draws_nothing_when_certain():
    assert dice_with(0.4).accept(0.4) == (False, 0.4)
    assert dice_with(0.39).accept(0.4) == (True, 0.39)
    assert dice_with().accept(0.0) == (False, None)
    assert dice_with().accept(1.0) == (True, None)


def test_same_seed_same_decisions():
    probs = torch.rand(50)
    assert [SeededDice(3).choose(probs) for _ in range(3)] == [SeededDice(3).choose(probs)] * 3


def test_ties_with_the_last_kept_candidate_are_kept():
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0]])
    assert law(logits, SamplingParams(temperature=1.0, top_k=1))[0].tolist() == [0.0, 0.5, 0.5, 0.0]


def test_nucleus_beyond_the_sorted_candidates_is_still_exact():
    logits = torch.zeros(1, 5000)
    probs = law(logits, SamplingParams(temperature=1.0, top_p=0.9))
    assert probs.sum().item() == pytest.approx(1)
    assert (probs > 0).all()  # all tie


def test_low_temperature_stays_finite():
    probs = law(torch.tensor([[300.0, -300.0, 299.0]]), SamplingParams(temperature=0.01))
    assert probs.isfinite().all()
    assert probs[0, 0] == 1


def test_shown_probabilities_are_the_laws_or_the_models_at_temperature_one_when_greedy():
    logits = torch.tensor([[1.0, 2.0, 0.0]])
    ids = torch.tensor([0])
    for params in (SamplingParams(temperature=0.5), SamplingParams()):
        probs = law(logits, params)
        expected = logits.softmax(-1)[0, 0] if params.greedy else probs[0, 0]
        assert shown_probs(logits, probs, torch.tensor([0]), ids, params) == pytest.approx([float(expected)])


def test_two_low_bits_of_rounding_do_not_lose_the_last_token():
    probs = torch.full((49152,), 1 / 3, dtype=torch.float32)
    assert dice_with(1 - 2**-53).choose(probs) == 49151


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_have_no_law(bad, temperature):
    logits = torch.zeros(2, 5)
    logits[1, 3] = bad
    with pytest.raises(NumericsError, match="float32"):
        law(logits, SamplingParams(temperature=temperature))


@pytest.mark.parametrize("probs", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_a_law_without_finite_mass_is_not_drawn_from(probs):
    with pytest.raises(NumericsError):
        SeededDice(0).choose(torch.tensor(probs))


def test_each_rows_nucleus_is_its_own_whatever_the_others_need():
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(3, 3000, generator=generator, dtype=torch.float64)
    logits *= torch.tensor([[0.01], [1.0], [30.0]])  # nearly flat, middling, one candidate
    params = SamplingParams(temperature=1.0, top_p=0.95)
    together = law(logits, params)
    for row, alone in zip(logits, together, strict=True):
        assert torch.equal(law(row[None], params)[0], alone)
        kept = alone[alone > 0].numel()
        ordered = row.softmax(-1).sort(descending=True).values.cumsum(0)
        assert kept == int((ordered < 0.95).sum()) + 1
