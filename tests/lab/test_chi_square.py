"""The chi-square test: scipy's numbers, honest pooling, and the error rate that it promises."""

import random
from collections import Counter

import pytest
from scipy.stats import chi2, chi2_contingency, chisquare

from dspark_core.errors import ParameterError
from dspark_core.lab.chi_square import against_law, of_two_samples, survival_function


@pytest.mark.parametrize("statistic", [0.0, 0.3, 4.7, 60.0, 900.0])
@pytest.mark.parametrize("degrees", [1, 2, 17, 400])
def test_p_values_are_scipys(statistic, degrees):
    assert survival_function(statistic, degrees) == pytest.approx(chi2.sf(statistic, degrees), rel=1e-9)


def test_without_rare_outcomes_both_tests_are_scipys():
    one, other = Counter(a=40, b=25, c=35), Counter(a=30, b=45, c=65)
    expected = {"a": 50.0, "b": 20.0, "c": 30.0}
    fit = against_law(one, expected)
    assert (fit.statistic, fit.p_value) == pytest.approx(chisquare(list(one.values()), list(expected.values())))
    same = of_two_samples(one, other)
    theirs = chi2_contingency([list(one.values()), list(other.values())], correction=False)
    assert (same.statistic, same.p_value) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert (same.degrees_of_freedom, same.cells, same.pooled, same.n) == (2, 3, 0, 240)


def test_rare_outcomes_are_one_cell_together():
    one = Counter({"a": 60, "b": 30, **{f"rare {i}": 1 for i in range(10)}})
    other = Counter({"a": 50, "b": 40, **{f"rarer {i}": 1 for i in range(10)}})
    verdict = of_two_samples(one, other)
    assert (verdict.cells, verdict.pooled) == (3, 20)
    theirs = chi2_contingency([[60, 30, 10], [50, 40, 10]], correction=False)
    assert verdict.p_value == pytest.approx(theirs.pvalue)


def test_a_pool_that_is_too_rare_itself_joins_the_rarest_cell_and_nothing_is_dropped():
    verdict = of_two_samples(Counter(a=60, b=39, c=1), Counter(a=50, b=50))
    assert (verdict.cells, verdict.pooled) == (2, 1)
    assert verdict.p_value == pytest.approx(chi2_contingency([[60, 40], [50, 50]], correction=False).pvalue)
    fit = against_law(Counter(a=60, b=39, c=1), {"a": 59.0, "b": 40.0, None: 1.0})
    assert (fit.statistic, fit.p_value) == pytest.approx(chisquare([60, 40], [59, 41]))


def test_what_no_law_names_counts_against_it():
    expected = {"a": 60.0, "b": 30.0, None: 10.0}
    fits, stray = against_law(Counter(a=60, b=30, z=10), expected), against_law(Counter(a=40, b=20, z=40), expected)
    assert fits.p_value > 0.9
    assert stray.p_value < 1e-6


@pytest.mark.parametrize("expected", [{"a": 600.0, "b": 401.0, "z": 0.0}, {"a": 600.0, "b": 401.0}])
def test_one_observation_of_what_is_impossible_refutes_the_law(expected):
    assert against_law(Counter(a=600, b=400, z=1), expected).p_value == 0
    assert against_law(Counter(a=601, b=400, z=0), expected).p_value > 0.9
    assert against_law(Counter(a=600, b=400, z=1), {"a": 600.0, "b": 400.0, None: 1.0}).p_value > 0.9


@pytest.mark.parametrize(("one", "other"), [({}, {}), ({"a": 5}, {}), ({"a": 50}, {"a": 70}), ({"a": 1}, {"b": 1})])
def test_where_nothing_can_be_compared_there_is_no_p_value(one, other):
    assert of_two_samples(one, other).p_value is None


def test_counts_and_law_must_be_about_as_many():
    with pytest.raises(ParameterError, match="compare as many"):
        against_law(Counter(a=10), {"a": 20.0})


def test_equal_laws_are_called_different_as_often_as_the_p_value_says_and_a_bent_one_far_more():
    dice = random.Random(5)
    weights = [30, 20, 10, 5] + [1] * 30
    bent = [40, 20, 10, 5] + [1] * 30

    def drawn(law):
        return Counter(dice.choices(range(len(law)), law, k=400))

    alarms = sum(of_two_samples(drawn(weights), drawn(weights)).p_value < 0.1 for _ in range(300))
    found = sum(of_two_samples(drawn(weights), drawn(bent)).p_value < 0.1 for _ in range(300))
    assert 12 <= alarms <= 51  # 30 are promised; beyond are 3.5 standard deviations
    assert found > 2 * alarms
