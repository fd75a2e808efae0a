"""The step curve: by hand where it can be, and the properties that a scheduler leans on."""

import math
import random
from itertools import pairwise

import pytest

from dspark_core.errors import ParameterError
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import StepCurve


def curve(tokens, seconds):
    return StepCurve.of(tokens, seconds, source="by hand")


def noisy(seed):
    dice = random.Random(seed)
    tokens = sorted(dice.sample(range(1, 300), dice.randint(2, 20)))
    return curve(tokens, [0.01 + 0.0002 * count * dice.uniform(0.2, 3) for count in tokens])


def test_between_probes_linear_below_the_first_and_beyond_the_last_with_its_slope():
    steps = curve([2, 4, 8], [1.0, 2.0, 6.0])
    assert [steps.seconds(count) for count in (0, 1, 2, 3, 4, 5, 8, 10)] == [1, 1, 1, 1.5, 2, 3, 6, 8]
    assert steps.per_second(4) == 0.5


def test_falling_neighbours_become_their_mean_and_the_others_stay():
    steps = curve([1, 2, 3, 4], [1.0, 4.0, 2.0, 5.0])
    assert steps.smoothed_s == (1.0, 3.0, 3.0, 5.0)
    assert steps.measured_s == (1.0, 4.0, 2.0, 5.0)


def test_pooling_goes_back_as_far_as_it_must():
    assert curve([1, 2, 3, 4], [3.0, 4.0, 3.0, 1.0]).smoothed_s == (2.75, 2.75, 2.75, 2.75)


def test_a_slow_outlier_does_not_raise_what_comes_after_it():
    steps = curve([1, 2, 3, 4, 5], [1.0, 9.0, 3.0, 9.5, 10.0])
    assert steps.seconds(4) == 9.5
    assert steps.seconds(3) == 6.0


def test_a_pool_at_the_end_does_not_make_further_tokens_free():
    steps = curve([1, 2, 4], [1.0, 4.0, 2.0])
    assert steps.seconds(4) == 3.0
    assert steps.seconds(7) == pytest.approx(3.0 + 3 * 2 / 3)


@pytest.mark.parametrize("seed", range(60))
def test_never_falling_and_exact_at_the_smoothed_probes(seed):
    steps = noisy(seed)
    values = [steps.seconds(count) for count in range(steps.tokens[-1] + 50)]
    assert all(later >= earlier for earlier, later in pairwise(values))
    assert tuple(steps.seconds(count) for count in steps.tokens) == steps.smoothed_s
    assert math.fsum(steps.smoothed_s) == pytest.approx(math.fsum(steps.measured_s))


@pytest.mark.parametrize("seed", range(20))
def test_smoothing_is_the_nearest_of_all_rising_curves(seed):
    """Against many other rising ones: none is nearer in least squares."""
    dice = random.Random(seed)
    steps = noisy(seed)

    def distance(values):
        return sum((a - b) ** 2 for a, b in zip(values, steps.measured_s, strict=True))

    best = distance(steps.smoothed_s)
    for _ in range(200):
        moved = [value + dice.gauss(0, 0.002) for value in steps.smoothed_s]
        assert distance(sorted(moved)) >= best - 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_a_rising_curve_is_left_as_it_is(seed):
    steps = noisy(seed)
    again = curve(steps.tokens, steps.smoothed_s)
    assert again.smoothed_s == steps.smoothed_s


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [
        ([], []),
        ([1], [1.0]),
        ([1, 2], [1.0]),
        ([1, 1], [1.0, 2.0]),
        ([2, 1], [1.0, 2.0]),
        ([0, 1], [1.0, 2.0]),
        ([1, 2.5], [1.0, 2.0]),
        ([True, 2], [1.0, 2.0]),
        ([1, 2], [0.0, 1.0]),
        ([1, 2], [-1.0, 1.0]),
        ([1, 2], [1.0, math.nan]),
        ([1, 2], [1.0, math.inf]),
        ([1, 2], [1.0, 5e-324]),
        ([1, 2], [1.0, 10**400]),
        ([1, 2], [1.0, "2"]),
        ([1, 2], [True, 2.0]),
    ],
)
def test_what_is_no_curve_is_refused(tokens, seconds):
    with pytest.raises(ParameterError, match="step curve"):
        curve(tokens, seconds)


DRAFTING = DraftingCurve.of(
    [(2, 1, 0.2), (2, 4, 0.5), (8, 1, 0.8), (8, 4, 1.1)],  # drafts, requests, seconds
    source="by hand",
)


@pytest.mark.parametrize(
    ("requests", "drafts", "seconds"),
    [(1, 2, 0.2), (4, 8, 1.1), (2, 2, 0.3), (1, 5, 0.5), (2, 5, 0.6), (1, 1, 0.2), (1, 9, 0.8), (0, 8, 0), (3, 0, 0)],
)
def test_drafting_by_hand(requests, drafts, seconds):
    assert DRAFTING.seconds(requests, drafts) == pytest.approx(seconds)


def test_a_rounds_drafting_is_the_sum_over_the_drafters():
    steps = curve([1, 2], [1.0, 2.0]).with_drafting({"one": DRAFTING, "two": DRAFTING})
    assert steps.drafting_s({"one": [8, 2], "two": [8], "unknown": [8], "none": []}) == pytest.approx(0.6 + 0.8)
    assert steps.drafting_s({}) == 0
    assert steps.seconds(1) == 1.0, "the pass alone"
