"""Policies that weigh all requests of a round: values by hand, bounds, and that nothing later decides."""

import math
import random
from dataclasses import replace

import pytest

from dspark_core.events import LoadSample
from dspark_core.params import ScheduleParams
from dspark_core.scheduling import POLICIES, DraftView, RoundView, policy_named
from dspark_core.scheduling.step_curve import StepCurve


def around(seconds, occupancy=0.0, **more):
    """A round on a machine whose pass over 1, 2, 3, … tokens takes these seconds."""
    curve = StepCurve.of(range(1, len(seconds) + 1), seconds, source="by hand")
    return RoundView(LoadSample("none", "none", occupancy=occupancy), step_curve=curve, **more)


def view(policy, confidences, *, l_min=0, l_max=8, room=100, earlier=None):
    schedule = ScheduleParams(policy, l_min, l_max)
    return DraftView(len(confidences), tuple(confidences), schedule, room, earlier)


def plans(policy, views, round_view):
    return policy_named(policy, lab=True).plan(views, round_view)


def lengths(policy, views, round_view):
    return [plan.verify_len for plan in plans(policy, views, round_view)]


LINEAR = around([1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0])  # one token more costs 0.5


def test_prefix_by_hand():
    """a = (0.9, 0.45): Θ is 1/1, 1.9/1.5 = 1.27, 2.35/2 = 1.175 (1.18 as shown)."""
    (plan,) = plans("prefix", [view("prefix", [0.9, 0.5])], LINEAR)
    assert (plan.verify_len, plan.reason) == (1, "stopped at 1: Θ 1.27 → 1.18 (next a_2 0.45)")
    (plan,) = plans("prefix", [view("prefix", [1.0, 1.0])], LINEAR)
    assert (plan.verify_len, plan.reason) == (2, "Θ 1.5 with 2 (all that were drafted)")


def test_prefix_takes_from_all_requests_by_survival():
    """R = 2: 2/1.5 = 1.333; 0.9: 2.9/2 = 1.45; 0.8: 3.7/2.5 = 1.48; 0.72: 4.42/3 = 1.473, which stops all."""
    got = plans("prefix", [view("prefix", [0.9, 0.8]), view("prefix", [0.8, 0.8])], LINEAR)
    assert [plan.verify_len for plan in got] == [1, 1]
    assert got[0].reason == "stopped at 1: Θ 1.48 → 1.47 (next a_2 0.72)"
    assert got[1].reason == "stopped at 1: Θ 1.48 → 1.47 (next a_2 0.64)"


def test_drafting_that_is_paid_already_makes_verifying_more_worth_its_while():
    """a = (0.9, 0.45): with 1 s more a round, Θ is 1/2, 1.9/2.5 = 0.76, 2.35/3 = 0.78."""
    blocks = [view("prefix", [0.9, 0.5])]
    assert lengths("prefix", blocks, LINEAR) == [1]
    assert lengths("prefix", blocks, replace(LINEAR, drafting_s=1.0)) == [2]
    assert lengths("delayed", [view("delayed", [0.9, 0.5], earlier=(0.9, 0.45))], replace(LINEAR, drafting_s=1.0)) == [
        2
    ]


def test_prefix_stops_at_the_first_fall_though_more_would_be_better():
    jagged = around([1.0, 2.0, 2.05, 2.1])  # Θ 1, 1, 1.46, 1.90
    assert lengths("prefix", [view("prefix", [1.0] * 3)], jagged) == [0]
    assert lengths("retrospective", [view("retrospective", [1.0] * 3)], jagged) == [3]


def test_prefix_counts_l_min_as_already_in_the_pass():
    """With one draft free: τ 1.5, B 2: Θ 1; then a_2 0.5: 2/2 = 1 is no rise; a flat curve would take it."""
    blocks = [view("prefix", [0.5, 1.0], l_min=1)]
    assert lengths("prefix", blocks, LINEAR) == [1]
    assert lengths("prefix", blocks, around([1.0, 1.5, 1.5])) == [2]
    assert lengths("prefix", [view("prefix", [0.0, 0.0, 0.9], l_min=2)], LINEAR) == [2]


def test_ties_go_by_position_then_by_request():
    two = [view("prefix", [1.0, 1.0]), view("prefix", [1.0])]
    room_for = {2: [1.0, 1.0, 9.0], 3: [1.0, 1.0, 1.0, 9.0], 4: [1.0, 1.0, 1.0, 1.0, 9.0]}
    assert {n: lengths("prefix", two, around(seconds)) for n, seconds in room_for.items()} == {
        2: [0, 0],
        3: [1, 0],
        4: [1, 1],
    }


def test_tokens_that_other_policies_settled_fill_the_pass():
    """Alone Θ rises from 1 to 1.9/1.5; beside 3 tokens that commit 2, it goes from 3/2.5 to 3.4/3 at a_1 0.4."""
    assert lengths("prefix", [view("prefix", [0.6])], LINEAR) == [1]
    beside = around([1.0, 1.5, 2.0, 2.5, 3.0, 3.5], settled_tokens=3, settled_expected=2.0)
    assert lengths("prefix", [view("prefix", [0.4])], beside) == [0]
    assert lengths("prefix", [view("prefix", [0.7])], beside) == [1]


def test_delayed_takes_the_number_from_before_and_the_best_of_today():
    """Before, both were sure of 2: K = 4 on a flat curve. Today the first is sure and the second is not."""
    flat_to_four = around([1.0, 1.0, 1.0, 1.0, 9.0, 9.0])
    two = [
        view("delayed", [1.0, 0.9, 0.8], earlier=(1.0, 0.1, 0.1)),
        view("delayed", [0.3, 0.3], earlier=(0.9, 0.1)),
    ]
    got = plans("delayed", two, flat_to_four)
    assert [plan.verify_len for plan in got] == [2, 0]
    assert got[0].reason == "cut at 2: a_3 0.72 is not among the top K = 2 of all"
    assert got[1].reason == "cut at 0: a_1 0.30 is not among the top K = 2 of all"


def test_delayed_keeps_its_number_whatever_today_looks_like():
    steep = around([1.0, 1.5, 2.0, 2.5])
    for today in ([0.9, 0.9, 0.9], [0.0, 0.0, 0.0], [math.nan] * 3):
        assert lengths("delayed", [view("delayed", today, earlier=(0.9, 0.4, 0.1))], steep) == [1]


def test_delayed_goes_over_a_dent_in_the_curve():
    jagged = around([1.0, 2.0, 2.05, 2.1])
    assert lengths("delayed", [view("delayed", [0.5] * 3, earlier=(1.0, 1.0, 1.0))], jagged) == [3]


def test_delayed_counts_a_new_request_as_sure():
    flat_to_three = around([1.0, 1.0, 1.0, 9.0])
    got = plans("delayed", [view("delayed", [0.1, 0.1, 0.1])], flat_to_three)
    assert (got[0].verify_len, got[0].reason[:8]) == (2, "cut at 2")
    assert lengths("delayed", [view("delayed", [0.1] * 3, l_min=1, l_max=2)], flat_to_three) == [2]


def some_round(dice, policy):
    """Random requests on a random machine: bounds, rooms, unread confidences, equal survivals, unknown pasts."""
    views = []
    for _ in range(dice.randint(1, 4)):
        block = [dice.choice((0.5, 1.0, dice.random(), dice.random(), math.nan)) for _ in range(dice.randint(0, 7))]
        l_max = dice.randint(0, 8)
        earlier = dice.choice((None, tuple(sorted((dice.random() for _ in block), reverse=True))))
        views.append(
            view(
                policy,
                block,
                l_min=dice.randint(0, min(1, l_max)),
                l_max=l_max,
                room=dice.choice((0, 2, 99, 99)),
                earlier=earlier,
            )
        )
    seconds, steps, stair = 1.0, [], dice.randint(2, 5)
    for _ in range(30):
        steps.append(seconds)
        seconds += dice.choice((0.0, 0.02, 0.1)) if len(steps) % stair else dice.uniform(0.1, 0.6)
    return views, around(
        steps, occupancy=dice.random(), settled_tokens=dice.randint(0, 4), settled_expected=dice.random()
    )


def redrawn(dice, seen, kept):
    """The same request with other confidences after the first ``kept``."""
    after = [dice.choice((0.0, 1.0, 1.0, dice.random())) for _ in seen.confidences[kept:]]
    return DraftView(seen.num_drafted, (*seen.confidences[:kept], *after), seen.schedule, seen.room, seen.earlier)


@pytest.mark.parametrize("policy", POLICIES)
def test_bounds_hold_for_every_request_and_each_choice_has_its_reason(policy):
    dice = random.Random(3)
    for _ in range(500):
        views, round_view = some_round(dice, policy)
        for seen, plan in zip(views, plans(policy, views, round_view), strict=True):
            assert seen.lower <= plan.verify_len <= seen.upper
            assert plan.reason


@pytest.mark.parametrize("policy", POLICIES)
def test_a_requests_own_later_confidences_never_decide_about_an_earlier_token(policy):
    """For each k: whether x_k is verified is the same under other c_{k+1}, c_{k+2}, …, the other requests fixed."""
    dice = random.Random(4)
    cut = 0
    for _ in range(1000):
        views, round_view = some_round(dice, policy)
        before = lengths(policy, views, round_view)
        who = dice.randrange(len(views))
        for k in range(1, views[who].num_drafted + 1):
            changed = [*views[:who], redrawn(dice, views[who], k), *views[who + 1 :]]
            assert (lengths(policy, changed, round_view)[who] >= k) == (before[who] >= k), (views, who, k)
        cut += before[who] < views[who].upper
    assert policy == "fixed" or cut > 60


@pytest.mark.parametrize("policy", POLICIES)
def test_no_plan_of_a_round_depends_on_what_lies_beyond_the_first_draft_left_out(policy):
    """Of each request, c_1 … c_{ℓ+1} alone were looked at: other values after them, for all at once, change nothing."""
    dice = random.Random(6)
    between = 0
    for _ in range(1000):
        views, round_view = some_round(dice, policy)
        before = plans(policy, views, round_view)
        between += any(seen.lower < plan.verify_len < seen.upper for seen, plan in zip(views, before, strict=True))
        changed = [redrawn(dice, seen, plan.verify_len + 1) for seen, plan in zip(views, before, strict=True)]
        assert plans(policy, changed, round_view) == before
    assert policy == "fixed" or between > 60, "the rounds are of the kind in which it matters"


def test_the_property_finds_the_biased_policy():
    dice = random.Random(7)
    differs = 0
    for _ in range(1000):
        views, round_view = some_round(dice, "retrospective")
        before = lengths("retrospective", views, round_view)
        changed = [redrawn(dice, seen, length + 1) for seen, length in zip(views, before, strict=True)]
        differs += lengths("retrospective", changed, round_view) != before
    assert differs > 20
