"""Appendix A's toy in plain numbers. That it is the engine's loop, `tests/engine/test_law.py` shows."""

import pytest

from dspark_core.errors import ParameterError
from dspark_core.lab.appendix_a import SCHEDULES, TARGET, branches, exact_law, sampled
from dspark_core.lab.chi_square import against_law
from dspark_core.scheduling.policies import POLICIES


def test_hindsight_bends_the_law_as_the_paper_says():
    assert exact_law("retrospective") == pytest.approx((0.85, 0.15), abs=1e-12)


@pytest.mark.parametrize("policy", [name for name in SCHEDULES if name in POLICIES])
def test_every_policy_of_the_engine_keeps_the_targets_law(policy):
    assert exact_law(policy) == pytest.approx(TARGET, abs=1e-12)


def test_the_branches_tell_why():
    after_a, after_b = branches("retrospective")
    assert all(branches(policy)[0].throughputs == after_a.throughputs for policy in SCHEDULES)
    assert after_a.throughputs == pytest.approx((1.0, 1.8 * 0.5, (1 + 0.8 + 0.72) * 0.45))
    assert after_b.throughputs == pytest.approx((1.0, 1.8 * 0.5, 1.8 * 0.45))
    assert (after_a.verify_len, after_b.verify_len) == (2, 0)  # whether x_1 is verified hangs on x_1
    assert [branch.verify_len for branch in branches("prefix")] == [0, 0]
    assert [branch.verify_len for branch in branches("threshold")] == [2, 1]  # x_1 decides about x_2 alone


@pytest.mark.parametrize("policy", SCHEDULES)
def test_samples_converge_to_the_exact_law(policy):
    told = list(sampled(policy, 4000, seed=3, every=1500))
    assert [sum(counts) for counts in told] == [1500, 3000, 4000]
    law = exact_law(policy)
    verdict = against_law({"A": told[-1][0], "B": told[-1][1]}, {"A": 4000 * law[0], "B": 4000 * law[1]})
    assert verdict.p_value > 1e-4


def test_as_many_samples_tell_the_bent_law_from_the_targets():
    *_, (a, b) = sampled("retrospective", 1000, seed=3, every=1000)
    assert against_law({"A": a, "B": b}, {"A": 700.0, "B": 300.0}).p_value < 1e-9


def test_what_the_toy_has_not_is_refused():
    with pytest.raises(ParameterError, match="no policy named 'banded'"):
        exact_law("banded")
    with pytest.raises(ParameterError, match="give 1 to"):
        next(sampled("prefix", 0, seed=1, every=1))
