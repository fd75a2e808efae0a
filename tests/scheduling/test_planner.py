"""The planner: policies side by side, failures that stay where they are, and what a request had before."""

import gc
import random
from dataclasses import replace

import pytest

from dspark_core.errors import ParameterError
from dspark_core.events import LoadSample
from dspark_core.params import ScheduleParams
from dspark_core.scheduling import POLICIES, DraftView, Plan, RoundView
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.planner import Planner
from dspark_core.scheduling.step_curve import StepCurve
from dspark_core.scheduling.step_table import StepTable

CURVE = StepCurve.of([1, 2, 3, 4, 5, 6, 7], [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0], source="by hand")
AROUND = RoundView(LoadSample("none", "none"), step_curve=CURVE)


class Owner:
    """A request."""


class Recording:
    """Verifies nothing, remembers what it was asked, and fails on the number of drafts that it is told to."""

    name = "recording"
    needs_confidence = False
    needs_curve = True

    def __init__(self):
        self.asked = []
        self.fails_on = self.fails_from = 99
        self.too_long = False

    def plan(self, views, around):
        self.asked.append((views, around))
        if any(view.num_drafted == self.fails_on for view in views) or len(views) >= self.fails_from:
            raise ValueError("confused")
        return [Plan(view.upper + 1 if self.too_long and view.num_drafted == 1 else 0, "nothing") for view in views]

    def goes_on(self, confidences, schedule, around):  # noqa: ARG002
        return True


@pytest.fixture
def recording(monkeypatch):
    policy = Recording()
    monkeypatch.setitem(POLICIES, "recording", policy)
    return policy


def view(policy, confidences, **more):
    given = None if confidences is None else tuple(confidences)
    return DraftView(len(confidences or (1, 1)), given, ScheduleParams(policy, 0, 8, **more), 100)


def plan(views, planner=None, owners=None):
    return (planner or Planner(CURVE)).plan(owners or [Owner() for _ in views], views, AROUND)


def test_plans_come_in_the_order_of_the_requests_whatever_their_policies(recording):
    views = [
        view("recording", [1.0]),
        view("threshold", [0.9, 0.1]),
        view("recording", [1.0]),
        view("fixed", [0.1] * 3),
    ]
    assert [got.verify_len for got in plan(views)] == [0, 1, 0, 3]
    assert len(recording.asked) == 1, "a policy is asked once for all of its requests"


def test_what_weighs_the_pass_knows_what_the_others_put_in_it(recording):
    plan([view("recording", [1.0]), view("threshold", [0.9, 0.8, 0.1]), view("fixed", None), view("threshold", [0.1])])
    ((_, around),) = recording.asked
    assert around.settled_tokens == (1 + 2) + (1 + 2) + 1
    assert around.settled_expected == pytest.approx((1 + 0.9 + 0.72) + 1 + 1)


def test_a_request_that_a_policy_cannot_serve_leaves_the_others_as_without_it():
    good = [view("prefix", [0.9, 0.8]), view("prefix", [0.8, 0.8])]
    first, bad, second = plan([good[0], view("prefix", None), good[1]])
    assert isinstance(bad, ParameterError)
    assert [first, second] == plan(good)
    assert [got.verify_len for got in (first, second)] == [1, 1]


def test_a_policy_that_is_confused_by_one_serves_the_rest(recording):
    recording.fails_on = 2
    got = plan([view("recording", [1.0]), view("recording", [1.0] * 2), view("recording", [1.0] * 3)])
    assert [type(each) for each in got] == [Plan, ValueError, Plan]


def test_a_policy_that_fails_on_all_together_fails_them_all_and_no_other(recording):
    recording.fails_from = 2
    got = plan([view("recording", [1.0]), view("fixed", [1.0]), view("recording", [1.0])])
    assert [type(each) for each in got] == [ValueError, Plan, ValueError]


def test_a_plan_out_of_bounds_is_that_requests_failure(recording):
    recording.too_long = True
    got = plan([view("recording", [1.0]), view("recording", [1.0] * 2)])
    assert [type(each) for each in got] == [RuntimeError, Plan]
    assert "left its bounds" in str(got[0])


@pytest.mark.parametrize(
    ("policy", "curve", "says"),
    [
        ("prefix", None, "python -m dspark_core profile"),
        ("delayed", None, "python -m dspark_core profile"),
        ("retrospective", CURVE, "biased"),
        ("coin", CURVE, "no policy named 'coin'"),
    ],
)
def test_what_cannot_be_honoured_is_refused_beforehand_and_never_planned_otherwise(policy, curve, says):
    planner = Planner(curve)
    with pytest.raises(ParameterError, match=says):
        planner.policy_for(ScheduleParams(policy))
    bad, good = plan([view(policy, [0.9]), view("threshold", [0.9])], planner)
    assert isinstance(bad, ParameterError)
    assert good.verify_len == 1
    assert Planner(CURVE, lab=True).policy_for(ScheduleParams("retrospective")).name == "retrospective"


def test_earlier_is_what_the_request_had_two_rounds_before_under_the_same_policy(recording):
    planner, one, other = Planner(CURVE), Owner(), Owner()
    for c in (0.5, 0.6, 0.7, 0.8):
        plan([view("recording", [c, c])], planner, [one])
    plan([view("recording", [0.9]), view("recording", [0.9])], planner, [other, one])
    earlier = [views[-1].earlier for views, _ in recording.asked]
    assert earlier[:2] == [None, None]
    assert earlier[2:] == [pytest.approx(a) for a in ((0.5, 0.25), (0.6, 0.36), (0.7, 0.49))]
    assert recording.asked[-1][0][0].earlier is None, "another request's past is not its own"
    plan([view("fixed", [0.9])], planner, [one])
    for _ in range(3):
        plan([view("recording", [0.3])], planner, [one])
    earlier = [views[-1].earlier for views, _ in recording.asked[-3:]]
    assert earlier == [None, None, (0.3,)], "rounds under another policy tell too little"


def test_a_round_of_rest_tells_nothing_of_the_survivals(recording):
    planner, owner = Planner(CURVE), Owner()
    for c in (0.5, 0.6):
        plan([view("recording", [c])], planner, [owner])
    resting = DraftView(0, None, ScheduleParams("recording", 0, 8), 100, resting="resting from drafts")
    assert plan([resting], planner, [owner])[0].verify_len == 0
    plan([view("recording", [0.7])], planner, [owner])
    assert recording.asked[-1][0][0].earlier == (0.5,)


@pytest.mark.parametrize("policy", POLICIES)
def test_why_a_request_rests_is_its_reason(policy):
    resting = DraftView(0, None, ScheduleParams(policy, 0, 8), 100, resting="resting from drafts: …")
    assert plan([resting]) == [Plan(0, "resting from drafts: …")]


@pytest.mark.parametrize(("policy", "back_off"), [("prefix", None), ("delayed", False), ("fixed", True)])
def test_a_drafter_whose_cost_is_not_known_is_refused_where_costs_are_weighed(policy, back_off):
    schedule = ScheduleParams(policy, back_off=back_off)
    measured = CURVE.with_drafting({"dspark": DraftingCurve.of([(1, 1, 0.1)], source="by hand")})
    with pytest.raises(ParameterError, match=r"drafting of 'lm' is not in the profile \(it has: dspark\)"):
        Planner(measured).policy_for(schedule, "lm")
    assert Planner(measured).policy_for(schedule, "dspark").name == policy
    with pytest.raises(ParameterError, match="python -m dspark_core profile"):
        Planner().policy_for(schedule, "dspark")


def test_the_past_of_a_request_goes_with_it():
    planner, owner = Planner(CURVE), Owner()
    plan([view("fixed", [0.9])], planner, [owner])
    assert len(planner._past) == 1
    del owner
    gc.collect()
    assert len(planner._past) == 0


def test_in_rounds_of_mixed_policies_no_plan_depends_on_what_nobody_has_looked_at():
    """Of each request c_1 … c_{ℓ+1} count, its own and the others': redrawn values after them change no plan at all."""
    dice = random.Random(8)
    between = 0
    for _ in range(300):
        policies = [dice.choice(list(POLICIES)) for _ in range(dice.randint(2, 4))]
        owners, planner = [Owner() for _ in policies], Planner(CURVE)
        twin_owners, twin = [Owner() for _ in policies], Planner(CURVE)
        for round_index in range(3):  # the past decides in the third
            views = [view(name, [dice.uniform(0.4, 1) for _ in range(dice.randint(1, 4))]) for name in policies]
            plans = planner.plan(owners, views, AROUND)
            if round_index == 2:
                between += sum(0 < p.verify_len < v.upper - 1 for p, v in zip(plans, views, strict=True))
                views = [
                    replace(v, confidences=v.confidences[: p.verify_len + 1] + redraw(dice, v, p.verify_len + 1))
                    for v, p in zip(views, plans, strict=True)
                ]
            assert twin.plan(twin_owners, views, AROUND) == plans
    assert between > 50, "the rounds are of the kind in which it matters"


def redraw(dice, view, kept):
    return tuple(dice.random() for _ in view.confidences[kept:])


def test_policies_and_back_off_weigh_by_the_curve_of_a_round_of_so_many_requests():
    """A round of one request takes 1 s for each token; one of three takes 2 s, and half a second for each token."""
    table = StepTable((1, 3), ((1, (1.0, 3.0)), (3, (3.5, 6.5))))
    planner = Planner(CURVE.with_table(table))
    around = planner.around(LoadSample("none", "none"), [("table", 2, ScheduleParams(), None)] * 3)
    assert [around.step_curve.seconds(tokens) for tokens in (3, 7)] == [3.5, 5.5]
    few = planner.around(LoadSample("none", "none"), [("table", 2, ScheduleParams(), None)])
    assert [few.step_curve.seconds(tokens) for tokens in (1, 2)] == [1.0, 2.0]


def test_a_round_in_which_nothing_was_verified_tells_nothing_of_the_times():
    planner = Planner(CURVE.with_table(StepTable((1, 3), ((1, (1.0, 3.0)), (3, (3.5, 6.5))))))
    planner.took(0.1, [])
