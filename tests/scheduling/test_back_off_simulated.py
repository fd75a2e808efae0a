"""Simulated batches: prefix with back-off beside plain decoding and the fixed length."""

from statistics import harmonic_mean

import pytest

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import StepCurve
from dspark_core.scheduling.step_table import StepTable
from tests.scheduling.simulated import machine, tokens_per_s

BATCHES = (1, 2, 4, 8, 16, 32)
MACHINES = {  # seconds: of a pass, of each token in it; of a drafting, of each request in it
    "each token costs": (1.0, 0.06, 0.25, 0.05),
    "each token costs much": (1.0, 0.12, 0.3, 0.08),
    "tokens are nearly free": (1.0, 0.004, 0.15, 0.005),
}
PREFIX, FIXED, PLAIN = (ScheduleParams(name, 0, most) for name, most in (("prefix", 8), ("fixed", 8), ("fixed", 0)))


def mean_speed(curve, users, chance, schedule):
    seeds = range(max(4, 192 // users))  # as many rounds for few requests as for many: chance must not decide
    if schedule == PLAIN:
        seeds = range(1)  # without drafts nothing is left to chance
    return harmonic_mean([tokens_per_s(curve, users, chance, schedule, seed) for seed in seeds])


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.05, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("name", MACHINES)
def test_simulated_prefix_never_loses_to_the_better_of_plain_and_fixed(name, chance):
    curve = machine(*MACHINES[name])
    for users in BATCHES:
        plain, fixed, prefix = (mean_speed(curve, users, chance, each) for each in (PLAIN, FIXED, PREFIX))
        assert prefix >= 0.97 * max(plain, fixed), (users, plain, fixed, prefix)


def test_simulated_full_batches_gain_over_the_fixed_length():
    """16 and 32 requests where each token costs and half of the drafts are accepted."""
    curve = machine(*MACHINES["each token costs"])
    for users in (16, 32):
        fixed, prefix = (tokens_per_s(curve, users, 0.5, each, 0, rounds=100) for each in (FIXED, PREFIX))
        assert prefix >= 1.15 * fixed


# Milliseconds as `python -m dspark_core profile` measured them on two cores of a CPU (smollm2-135m, bfloat16, the
# median over context lengths), and of drafting 3 and 15 tokens with the shipped drafter.
TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
PASSES_MS = (21, 24.2, 22.2, 21.6, 23.5, 27.3, 29.9, 33.8, 59.3, 69.6, 97.3, 116, 158, 195, 275, 358, 521, 675)
SHARES = (1, 2, 3, 4, 8, 16)
ROWS_MS = {  # by requests, of so many tokens each, at 256 tokens of context
    1: (21, 22.7, 22.7, 22.7, 27.3, 33.8),
    2: (25.1, 26.1, 26.5, 29, 38.3, 57.7),
    4: (27, 34.3, 38.5, 42.4, 63.1, 104.5),
    8: (37, 53.6, 63.8, 70.8, 114.1, 186.8),
    16: (58.9, 96.7, 121.6, 130.6, 197.7, 337.6),
    32: (103.2, 169.3, 204.6, 231.1, 375.3, 663.1),
}
DRAFTING_MS = {(3, 1): 5.4, (3, 8): 9, (3, 32): 22.7, (15, 1): 10.7, (15, 8): 30.5, (15, 32): 93.2}
LANES = {name: ScheduleParams("fixed", 0, most) for name, most in (("plain", 0), ("fixed@4", 4), ("fixed", 15))}


def measured_cpu():
    steps = StepCurve.of(TOKENS, [ms / 1000 for ms in PASSES_MS], source="measured")
    probes = [(drafts, requests, ms / 1000) for (drafts, requests), ms in DRAFTING_MS.items()]
    rows = tuple((requests, tuple(ms / 1000 for ms in row)) for requests, row in ROWS_MS.items())
    steps = steps.with_table(StepTable(SHARES, rows))
    return steps.with_drafting({"d": DraftingCurve.of(probes, source="measured")})


@pytest.mark.slow
@pytest.mark.parametrize("users", BATCHES)
@pytest.mark.parametrize("chance", [0.3, 0.5, 0.7, 0.9])
def test_simulated_with_measured_costs_prefix_never_loses_to_the_best_of_plain_and_fixed_lengths(chance, users):
    """Short answers, one after the other, so that most requests are new ones; confidences vary around the chance."""
    curve, how = measured_cpu(), {"gamma": 15, "tokens": 64, "rounds": 400, "spread": 0.1}
    seeds = range(max(1, 16 // users))  # as many rounds for few requests as for many: chance must not decide
    lanes = {**LANES, "prefix": ScheduleParams("prefix", 0, 15)}
    speeds = {
        name: harmonic_mean(
            [tokens_per_s(curve, users, chance, schedule, seed, **how) for seed in (seeds if schedule.l_max else (0,))]
        )
        for name, schedule in lanes.items()
    }
    prefix = speeds.pop("prefix")
    assert prefix >= 0.97 * max(speeds.values()), (speeds, prefix)


def test_simulated_new_requests_cost_a_full_batch_next_to_nothing_where_drafts_do_not_pay():
    curve, how = measured_cpu(), {"gamma": 15, "tokens": 8, "rounds": 300, "spread": 0.1}
    plain, prefix = (
        tokens_per_s(curve, 16, 0.3, each, 0, **how) for each in (LANES["plain"], ScheduleParams("prefix", 0, 15))
    )
    assert prefix >= 0.97 * plain


@pytest.mark.slow
@pytest.mark.parametrize("stretch", [0.7, 1.2, 1.4])
@pytest.mark.parametrize("users", [4, 8])
def test_simulated_where_the_profile_is_wrong_about_drafts_the_clock_corrects_it(users, stretch):
    """Rounds with drafts take less or more than was measured in quiet, and every round is disturbed."""
    curve, how = measured_cpu(), {"gamma": 15, "tokens": 64, "rounds": 500, "spread": 0.1}
    how |= {"stretch": stretch, "shaken": 0.3}
    lanes = {**LANES, "prefix": ScheduleParams("prefix", 0, 15)}
    for chance in (0.5, 0.7):
        speeds = {
            name: harmonic_mean([tokens_per_s(curve, users, chance, schedule, seed, **how) for seed in range(2)])
            for name, schedule in lanes.items()
        }
        prefix = speeds.pop("prefix")
        assert prefix >= 0.93 * max(speeds["plain"], speeds["fixed"]), (chance, speeds, prefix)
