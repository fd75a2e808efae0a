"""Costs: from throughput to money and energy, and when a saving makes the total rise."""

import math
from dataclasses import replace

import pytest

from dspark_core.cost import ARTICLE, Fleet, Rebound, energy_per_request, number, totals
from dspark_core.errors import ParameterError


def test_twice_the_throughput_halves_the_cost_of_a_request():
    fleet = Fleet(4, 2.5)
    slow, fast = (fleet.requests_per_s(speed, 250) for speed in (100, 200))
    assert (slow, fast) == (1.6, 3.2)
    assert fleet.cost_per_request(slow) == pytest.approx(2.5 * 4 / 3600 / 1.6)
    assert fleet.cost_per_request(fast) == pytest.approx(fleet.cost_per_request(slow) / 2)


def test_what_a_fleet_costs_in_an_hour_is_what_its_requests_cost_together():
    fleet = Fleet(7, 1.3)
    assert fleet.cost_per_request(2.25) * 2.25 * 3600 == pytest.approx(7 * 1.3)


def test_more_gpus_answer_more_for_the_same_cost_of_a_request():
    one, ten = Fleet(1, 3.0), Fleet(10, 3.0)
    assert ten.requests_per_s(50, 100) == pytest.approx(10 * one.requests_per_s(50, 100))
    costs = [fleet.cost_per_request(fleet.requests_per_s(50, 100)) for fleet in (one, ten)]
    assert costs[0] == pytest.approx(costs[1])


def test_the_articles_example_agrees_with_itself_at_the_price_that_it_implies():
    fleet = Fleet(ARTICLE.gpus, ARTICLE.price_per_gpu_hour)
    for requests_per_s, cost in zip(ARTICLE.requests_per_s, ARTICLE.cost_per_request, strict=True):
        assert fleet.cost_per_request(requests_per_s) == pytest.approx(cost)


def test_energy_of_a_request_is_that_of_its_tokens():
    assert energy_per_request(0.4, 200) == pytest.approx(80)


@pytest.mark.parametrize("saving", [1.2, 2.5, 40.0])
def test_the_total_falls_below_an_elasticity_of_one_stays_at_one_and_rises_above(saving):
    below, at, above = (Rebound(saving, elasticity) for elasticity in (0.6, 1.0, 1.4))
    assert below.total < 1 < above.total
    assert at.total == 1
    assert [it.rises for it in (below, at, above)] == [False, False, True]


def test_without_elasticity_demand_stays_and_the_whole_saving_is_kept():
    rebound = Rebound(2.5, 0)
    assert (rebound.demand, rebound.total) == (1, pytest.approx(0.4))


def test_the_total_is_demand_times_the_unit_cost():
    for saving in (0.5, 1.0, 3.0):
        for elasticity in (0.0, 0.7, 1.0, 2.2):
            rebound = Rebound(saving, elasticity)
            assert rebound.total == pytest.approx(rebound.demand / saving)


def test_dearer_units_never_count_as_a_rebound():
    assert not Rebound(0.5, 3).rises
    assert Rebound(0.5, 3).total < 1


def test_a_curve_is_its_points():
    assert totals(2.5, [0, 1, 2]) == pytest.approx([0.4, 1, 2.5])


@pytest.mark.parametrize("bad", [None, "", "12", True, math.nan, math.inf, -1, 0, 1e13, 1e-300, 10**400])
def test_numbers_that_are_none_or_out_of_range_are_refused_by_name(bad):
    with pytest.raises(ParameterError, match=r"Tokens a request is .*; enter a number above 0"):
        number("Tokens a request", bad)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": 0}, "number of GPUs"),
        ({"gpus": 2.5}, "number of GPUs"),
        ({"gpus": True}, "number of GPUs"),
        ({"gpus": None}, "number of GPUs"),
        ({"price_per_gpu_hour": -0.1}, "price of a GPU-hour"),
        ({"price_per_gpu_hour": math.nan}, "price of a GPU-hour"),
    ],
)
def test_a_fleet_refuses_what_is_no_number_of_machines_or_no_price(change, said):
    with pytest.raises(ParameterError, match=said):
        replace(Fleet(1, 1.0), **change)


@pytest.mark.parametrize(("saving", "elasticity"), [(0, 1), (2, -0.1), (2, 10.5), (math.nan, 1), (2, None)])
def test_a_rebound_refuses_what_is_outside_its_range(saving, elasticity):
    with pytest.raises(ParameterError):
        Rebound(saving, elasticity)


def test_free_machines_cost_nothing_and_numbers_stay_finite():
    assert Fleet(1, 0).cost_per_request(3) == 0
    assert math.isfinite(Rebound(1e12, 10).total)
