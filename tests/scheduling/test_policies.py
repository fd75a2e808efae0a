"""Policies: bounds, reasons, and the property that keeps the law: nothing after position k decides about k."""

import itertools
import math
import random
from dataclasses import replace

import pytest

from dspark_core.errors import ParameterError
from dspark_core.events import LoadReading, LoadSample
from dspark_core.params import PRESETS, Preset, ScheduleParams
from dspark_core.scheduling import LAB_POLICIES, POLICIES, DraftView, RoundView, policy_named
from dspark_core.scheduling.step_curve import StepCurve

LOAD = LoadSample("none", "none", occupancy=0.5)
CURVE = StepCurve.of([1, 2, 3, 4, 5, 6, 8], [1.0, 1.1, 1.1, 1.5, 1.6, 2.2, 4.0], source="by hand")  # flat and steep
AROUND = RoundView(LOAD, step_curve=CURVE)
LEVELS = (0.0, 0.3, 0.5, 0.8, 1.0)
ALONE = [name for name, policy in POLICIES.items() if not policy.needs_curve]  # each request by itself


def under(load, **more):
    """A round in which the answers take that share of the places."""
    return RoundView(LoadSample("none", "none", occupancy=load, **more))


def plan(policy, confidences, *, l_min=0, l_max=8, threshold=0.5, room=100, around=AROUND, **more):
    schedule = ScheduleParams(policy, l_min, l_max, threshold, **more)
    view = DraftView(len(confidences), tuple(confidences), schedule, room)
    return policy_named(policy).plan([view], around)[0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("l_min", "l_max"), [(0, 3), (1, 3), (2, 2), (0, 0), (3, 8)])
def test_no_policy_anticipates(policy, l_min, l_max):
    """Whether x_k is verified is the same for all blocks that share c_1 … c_k, whatever follows."""
    admitted = {}
    for block in itertools.product(LEVELS, repeat=4):
        length = plan(policy, block, l_min=l_min, l_max=l_max).verify_len
        for k in range(1, 5):
            assert admitted.setdefault(block[:k], length >= k) == (length >= k)


@pytest.mark.parametrize("policy", POLICIES)
def test_lengths_stay_within_bounds_drafts_and_room(policy):
    for block in itertools.product((0.2, 0.9), repeat=3):
        for l_min, l_max, room in itertools.product(range(3), range(2, 6), range(5)):
            got = plan(policy, block, l_min=l_min, l_max=l_max, room=room)
            upper = min(l_max, 3, room)
            assert min(l_min, upper) <= got.verify_len <= upper
            assert got.reason


def stopped_early(confidences, schedule, count):
    """What drafting leaves of c_1 … c_count when the policy is asked before each draw: drafts, confidences known."""
    goes_on = policy_named(schedule.policy).goes_on
    around = replace(AROUND, forced_tokens=min(schedule.l_min, count))
    for k in range(1, count + 1):
        if not goes_on(confidences[:k], schedule, around):
            return k - 1, confidences[:k]
    return count, confidences[:count]


@pytest.mark.parametrize("policy", POLICIES)
def test_drafting_that_stops_early_leaves_length_and_reason_as_with_the_whole_block(policy):
    """Only blocks that are cut by nothing but their own drafts' number say so: γ below L_max."""
    dice = random.Random(5)
    stops = 0
    for _ in range(4000):
        gamma, l_max = dice.randint(1, 8), dice.randint(0, 9)
        schedule = ScheduleParams(policy, dice.randint(0, l_max), l_max, dice.choice((0.0, 0.3, 0.5, 1.0)))
        room = dice.choice((0, 1, 3, 100))
        drawable = min(gamma, room)  # the loop never drafts beyond the room, whether it stops early or not
        block = tuple(dice.choice((*LEVELS, dice.random(), math.nan)) for _ in range(drawable))
        whole = DraftView(drawable, block, schedule, room)
        drafted, known = stopped_early(block, schedule, min(drawable, l_max))
        stops += drafted < drawable
        early = DraftView(drafted, known, schedule, room)
        for view in (whole, early):
            assert view.lower <= policy_named(policy).plan([view], AROUND)[0].verify_len <= view.upper
        left, full = (policy_named(policy).plan([view], AROUND)[0] for view in (early, whole))
        if policy == "prefix" and drafted < drawable:  # it weighed the last one before drawing it, and says so
            assert drafted == 0 or schedule.l_max == drafted or "stopped" in left.reason
            left, full = (replace(p, reason="", throughputs=p.throughputs[: 1 + drafted]) for p in (left, full))
            full = replace(full, throughputs=full.throughputs[: len(left.throughputs)])
        assert left == full, (whole, early)
    assert stops > 500


@pytest.mark.parametrize("policy", ALONE)
@pytest.mark.parametrize(("l_min", "l_max"), [(0, 3), (1, 3), (2, 2), (0, 0), (3, 8)])
def test_a_policy_goes_on_exactly_as_far_as_it_would_verify(policy, l_min, l_max):
    """More would be drafts drawn in vain, less would bend the choice."""
    schedule = ScheduleParams(policy, l_min, l_max, 0.5)
    for block in itertools.product(LEVELS, repeat=4):
        length = plan(policy, block, l_min=l_min, l_max=l_max).verify_len
        assert stopped_early(block, schedule, 4)[0] == length


def test_prefix_by_itself_drafts_exactly_as_far_as_it_verifies_where_drafting_is_free():
    lengths = set()
    for block in itertools.product(LEVELS, repeat=4):
        for l_min in (0, 1):
            length = plan("prefix", block, l_min=l_min).verify_len
            assert stopped_early(block, ScheduleParams("prefix", l_min, 8), 4)[0] == length
            lengths.add(length)
    assert lengths == {0, 1, 2}


def test_prefix_weighs_what_drawing_one_more_costs():
    """One more token takes 0.1 s of 1 s, and its drafting as much again: a_1 has to be above 0.2, not above 0.1."""
    goes_on, steps = policy_named("prefix").goes_on, StepCurve.of([1, 2], [1.0, 1.1], source="by hand")
    schedule = ScheduleParams("prefix", 0, 8)
    free = RoundView(LOAD, steps)
    dear = replace(free, drafting_s=0.1, expected_drafts=1.0, draft_s=0.1)
    assert [goes_on((c,), schedule, free) for c in (0.05, 0.11, 0.21)] == [False, True, True]
    assert [goes_on((c,), schedule, dear) for c in (0.05, 0.11, 0.21)] == [False, False, True]


def test_prefix_beside_others_counts_on_them_to_draft_as_it_does():
    """Two tokens more are free for one request alone; four requests fill that room with their first drafts."""
    goes_on = policy_named("prefix").goes_on
    steps = StepCurve.of([4, 6, 8, 16], [1.0, 1.0, 1.1, 2.7], source="by hand")
    schedule, one = ScheduleParams("prefix", 0, 8), RoundView(LOAD, steps, requests=4)
    four = replace(one, weighed_requests=4)
    assert [goes_on((0.5,) * k, schedule, one) for k in (1, 2)] == [True, True]
    assert [goes_on((0.5,) * k, schedule, four) for k in (1, 2)] == [True, False]


def test_up_to_l_min_drafting_never_stops():
    goes_on = policy_named("threshold").goes_on
    schedule = ScheduleParams("threshold", 2, 4, 0.5)
    assert [goes_on((0.1,) * k, schedule, AROUND) for k in (1, 2, 3)] == [True, True, False]
    assert [goes_on((0.9,) * k, schedule, AROUND) for k in (3, 4, 5)] == [True, True, False]


def test_a_cut_that_stopped_the_drafting_says_which_confidence_it_was():
    view = DraftView(2, (0.9, 0.8, 0.21), ScheduleParams("threshold", 1, 8, 0.3), 100)
    assert policy_named("threshold").plan([view], AROUND)[0].reason == "cut at 2: c_3 0.21 < 0.30"
    nothing = DraftView(0, (0.21,), ScheduleParams("threshold", 0, 8, 0.3), 100)
    assert policy_named("threshold").plan([nothing], AROUND)[0].reason == "cut at 0: c_1 0.21 < 0.30"


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_drafted_is_said(policy):
    view = DraftView(0, None, ScheduleParams(policy), 10)
    assert policy_named(policy).plan([view], AROUND)[0] == policy_named("fixed").plan([view], AROUND)[0]
    assert "nothing was drafted" in policy_named(policy).plan([view], AROUND)[0].reason


def test_threshold_cuts_at_the_first_confidence_below_it_not_at_the_survival():
    got = plan("threshold", [0.9, 0.8, 0.8, 0.4, 0.9])
    assert (got.verify_len, got.reason) == (3, "cut at 3: c_4 0.40 < 0.50")  # a_3 = 0.58, a_4 = 0.23


def test_threshold_counts_from_l_min():
    assert plan("threshold", [0.1, 0.1, 0.9, 0.1], l_min=2).verify_len == 3


def test_threshold_at_its_ends():
    assert plan("threshold", [0.0] * 4, threshold=0.0).verify_len == 4
    assert plan("threshold", [1.0] * 4, threshold=1.0).verify_len == 4
    assert plan("threshold", [0.999] * 4, threshold=1.0).verify_len == 0


def test_threshold_cuts_at_an_unreadable_confidence():
    assert plan("threshold", [0.9, math.nan, 0.9]).verify_len == 1


@pytest.mark.parametrize("policy", [name for name, policy in POLICIES.items() if policy.needs_confidence])
def test_a_policy_that_needs_confidences_refuses_drafts_without(policy):
    view = DraftView(3, None, ScheduleParams(policy), 10)
    with pytest.raises(ParameterError, match=f"{policy} policy needs confidences.*confidence head"):
        policy_named(policy).plan([view], AROUND)


@pytest.mark.parametrize("policy", [name for name, policy in POLICIES.items() if policy.needs_curve])
def test_a_policy_that_needs_the_step_curve_refuses_to_guess_it(policy):
    with pytest.raises(ParameterError, match="python -m dspark_core profile"):
        plan(policy, [0.9] * 3, around=RoundView(LOAD))


@pytest.mark.parametrize("policy", LAB_POLICIES)
def test_a_biased_policy_is_refused_by_name_outside_of_a_lab(policy):
    assert policy not in POLICIES
    with pytest.raises(ParameterError, match=f"'{policy}' is biased.*Choose one of: threshold, fixed"):
        policy_named(policy)
    assert policy_named(policy, lab=True).name == policy


BANDED = [  # (confidences, load, ℓ, reason), with the bands 0.6 and 0.9
    ([0.95, 0.91, 0.92], 1.0, 3, "load 1.00 (occupancy): every x_k is admitted up to 3 (all that were drafted)"),
    ([0.95, 0.9], 0.9, 1, "cut at 1: c_2 0.90 ≤ 0.90 and a_2 0.85 < load 0.90 (occupancy)"),
    ([0.95, 0.9, 0.95], 0.85, 3, "load 0.85 (occupancy): every x_k is admitted up to 3 (all that were drafted)"),
    ([0.8, 0.8, 0.7, 0.99], 0.5, 2, "cut at 2: c_3 0.70 ≤ 0.90 and a_3 0.45 < load 0.50 (occupancy)"),
    ([0.8, 0.8, 0.7, 0.99], 0.4, 4, "load 0.40 (occupancy): every x_k is admitted up to 4 (all that were drafted)"),
    ([0.99, 0.59, 0.99], 0.0, 1, "cut at 1: c_2 0.59 < 0.60"),
    ([0.6] * 4, 0.0, 4, "load 0.00 (occupancy): every x_k is admitted up to 4 (all that were drafted)"),
    ([0.99, math.nan], 0.0, 1, "cut at 1: c_2 nan < 0.60"),
]


@pytest.mark.parametrize(("confidences", "load", "length", "reason"), BANDED)
def test_banded_by_hand(confidences, load, length, reason):
    got = plan("banded", confidences, around=under(load))
    assert (got.verify_len, got.reason) == (length, reason)


def test_bands_can_be_moved_and_act_from_l_min_on():
    assert plan("banded", [0.1, 0.1, 0.95, 0.95], l_min=2).verify_len == 4
    assert plan("banded", [0.5, 0.5], band_low=0.4, band_high=0.45).verify_len == 2
    assert plan("banded", [0.5, 0.5], band_low=0.4).verify_len == 1  # a_2 0.25 under the load 0.5
    assert plan("banded", [0.95, 0.95], band_low=0.96, band_high=0.97).verify_len == 0


def test_banded_never_verifies_more_under_more_load():
    dice = random.Random(2)
    for _ in range(300):
        block = [dice.choice((1.0, 0.95, dice.uniform(0.5, 1))) for _ in range(6)]
        lengths = [plan("banded", block, around=under(load / 4)).verify_len for load in range(5)]
        assert lengths == sorted(lengths, reverse=True)


LOADED = LoadSample("GPU 0 (X)", "gpu", utilisation=0.9, occupancy=0.1, engine_busy=0.7)


@pytest.mark.parametrize(
    ("asked", "value", "source"),
    [
        ({}, 0.1, "answers in the round over those that may run at once"),
        ({"load_signal": "engine"}, 0.7, "share of the last seconds in which the engine computed"),
        ({"load_signal": "device"}, 0.9, "utilisation of GPU 0 (X)"),
        ({"load_signal": "busy"}, 0.9, "utilisation of GPU 0 (X)"),
        ({"load_signal": "simulated", "simulated_load": 0.75}, 0.75, "simulated: set by the user, not measured"),
    ],
)
def test_banded_heeds_the_load_that_was_named_and_tells_it_with_its_source(asked, value, source):
    got = plan("banded", [0.8], around=RoundView(LOADED), **asked)
    signal = {"busy": "device"}.get(asked.get("load_signal"), asked.get("load_signal", "occupancy"))
    assert got.signal == LoadReading(signal, value, source)
    assert got.verify_len == (value <= 0.8)
    assert f"load {value:.2f} ({signal})" in got.reason


def test_what_one_request_simulates_is_no_load_of_the_others():
    simulating = ScheduleParams("banded", 0, load_signal="simulated", simulated_load=1)
    others = [ScheduleParams("banded", 0, load_signal=name) for name in ("device", "occupancy")]
    views = [DraftView(1, (0.8,), schedule, 10) for schedule in (simulating, *others)]
    plans = policy_named("banded").plan(views, RoundView(LoadSample("CPU", "cpu", utilisation=0.2, occupancy=0.3)))
    assert [(got.verify_len, got.signal.signal, got.signal.value) for got in plans] == [
        (0, "simulated", 1.0),
        (1, "device", 0.2),
        (1, "occupancy", 0.3),
    ]


@pytest.mark.parametrize(
    ("confidences", "length", "begins"),
    [([0.8, 0.8], 2, "load not available"), ([0.8, 0.5], 1, "cut at 1: c_2 0.50 < 0.60; load not available")],
)
def test_a_load_that_is_not_available_is_judged_as_idle_and_the_reason_says_why(confidences, length, begins):
    lost = RoundView(LoadSample("GPU 0", "gpu", note="not available: GPU is lost", occupancy=1.0))
    got = plan("banded", confidences, around=lost, load_signal="device")
    assert got.verify_len == length
    assert got.reason.startswith(f"{begins} (device: GPU is lost), judged as if idle")
    assert got.signal == LoadReading("device", None, "utilisation of GPU 0", "not available: GPU is lost")


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "banded"])
def test_a_policy_that_heeds_no_load_names_none(policy):
    assert plan(policy, [0.8, 0.8]).signal is None


def test_fixed_says_what_bounds_it():
    assert plan("fixed", [0.1] * 4, l_max=3).reason == "fixed: L_max = 3"
    assert "drafted" in plan("fixed", [0.1] * 4).reason
    assert "limit" in plan("fixed", [0.1] * 4, room=2).reason


def test_presets_are_clipped_to_gamma_and_say_so():
    low, high = PRESETS
    assert low.clipped_to(8) == (low.schedule, "")
    schedule, note = high.clipped_to(8)
    assert (schedule.l_min, schedule.l_max, schedule.threshold) == (5, 8, 0.6)
    assert "γ = 8" in note


def test_a_clipped_preset_keeps_what_it_says_about_stopping():
    high = Preset("high", ScheduleParams("threshold", 5, 15, 0.6, stop_early=False))
    assert not high.clipped_to(8)[0].stop_early


@pytest.mark.parametrize(
    "values",
    [
        {"l_min": 5, "l_max": 3},
        {"l_min": -1},
        {"l_max": 65},
        {"l_max": True},
        {"l_min": 1.5},
        {"threshold": math.nan},
        {"threshold": 1.01},
        {"threshold": "0.5"},
        {"band_low": 0.95},
        {"band_high": 0.5},
        {"band_low": -0.1},
        {"band_high": math.nan},
        {"band_high": 2},
        {"load_signal": "moon"},
        {"load_signal": None},
        {"load_signal": ["busy"]},
        {"simulated_load": 1.5},
        {"simulated_load": math.nan},
        {"simulated_load": None},
        {"policy": ""},
        {"stop_early": 1},
        {"stop_early": None},
        {"back_off": 1},
        {"back_off": "no"},
    ],
)
def test_bad_schedules_are_refused_with_the_value(values):
    with pytest.raises(ParameterError) as caught:
        ScheduleParams(**values)
    name, value = next(iter(values.items()))
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
