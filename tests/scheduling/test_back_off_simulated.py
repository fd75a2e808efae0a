"""Simulated batches, no model and no clock: prefix with back-off beside plain decoding and the fixed length.

A draft is accepted with exactly its confidence, and each round takes what a made-up machine's curves say.
"""

import random
from statistics import harmonic_mean

import pytest

from dspark_core.events import LoadSample
from dspark_core.params import ScheduleParams
from dspark_core.scheduling import DraftView, RoundView
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.planner import Planner
from dspark_core.scheduling.step_curve import StepCurve

GAMMA, TOKENS = 8, 128
BATCHES = (1, 2, 4, 8, 16, 32)
MACHINES = {  # seconds: of a pass, of each token in it; of a drafting, of each request in it
    "each token costs": (1.0, 0.06, 0.25, 0.05),
    "each token costs much": (1.0, 0.12, 0.3, 0.08),
    "tokens are nearly free": (1.0, 0.004, 0.15, 0.005),
}


class Request:
    def __init__(self):
        self.left = TOKENS


def machine(name):
    a_pass, a_token, drafting, a_request = MACHINES[name]
    counts = (1, 2, 8, 32, 128, 32 * (1 + GAMMA))
    steps = StepCurve.of(counts, [a_pass + a_token * tokens for tokens in counts], source="simulated")
    probes = [(GAMMA, requests, drafting + a_request * requests) for requests in (1, 8, 32)]
    return steps.with_drafting({"d": DraftingCurve.of(probes, source="simulated")})


def tokens_per_s(curve, number, chance, schedule, seed):
    """Of so many requests side by side, until the first has all its tokens."""
    dice, planner = random.Random(seed), Planner(curve)
    requests, seconds = [Request() for _ in range(number)], 0.0
    while all(request.left > 0 for request in requests):
        wanted = [min(GAMMA, schedule.l_max, request.left - 1) for request in requests]
        judged = planner.judge(requests, [("d", count, schedule) for count in wanted])
        counts = [0 if judgement.rest else count for judgement, count in zip(judged, wanted, strict=True)]
        drafting_s = curve.drafting_s({"d": [count for count in counts if count]})
        views = [
            DraftView(count, (chance,) * count, schedule, request.left - 1, resting=judgement.reason)
            for count, request, judgement in zip(counts, requests, judged, strict=True)
        ]
        plans = planner.plan(requests, views, RoundView(LoadSample("none", "none"), curve, drafting_s))
        for request, count, plan in zip(requests, counts, plans, strict=True):
            accepted = 0
            while accepted < plan.verify_len and dice.random() < chance:
                accepted += 1
            if count:
                planner.learn(request, plan.verify_len, accepted)
            request.left -= 1 + accepted
        seconds += drafting_s + curve.seconds(number + sum(plan.verify_len for plan in plans))
    return sum(TOKENS - request.left for request in requests) / seconds


def mean_speed(curve, number, chance, schedule):
    return harmonic_mean([tokens_per_s(curve, number, chance, schedule, seed) for seed in range(max(4, 48 // number))])


PREFIX, FIXED, PLAIN = (ScheduleParams(name, 0, most) for name, most in (("prefix", 8), ("fixed", 8), ("fixed", 0)))


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.05, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("name", MACHINES)
def test_simulated_prefix_never_loses_to_the_better_of_plain_and_fixed(name, chance):
    curve = machine(name)
    for number in BATCHES:
        plain, fixed, prefix = (mean_speed(curve, number, chance, each) for each in (PLAIN, FIXED, PREFIX))
        assert prefix >= 0.97 * max(plain, fixed), (number, plain, fixed, prefix)


def test_simulated_full_batches_gain_over_the_fixed_length_and_lose_without_back_off():
    """16 and 32 requests where each token costs and half of the drafts are accepted."""
    curve = machine("each token costs")
    for number in (16, 32):
        plain, fixed, prefix = (mean_speed(curve, number, 0.5, each) for each in (PLAIN, FIXED, PREFIX))
        assert prefix >= 1.15 * fixed
        assert mean_speed(curve, number, 0.5, ScheduleParams("prefix", 0, 8, back_off=False)) < 0.9 * plain
