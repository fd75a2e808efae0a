"""What the clock says of rounds with drafts beside rounds without, and what the back-off makes of it."""

from dataclasses import replace

import pytest

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.planner import Planner
from dspark_core.scheduling.step_curve import StepCurve
from dspark_core.scheduling.stretch import Stretch
from tests.scheduling.test_back_off import RULE, Batch, costs


def learned(*rounds):
    stretch = Stretch()
    for drafter, factor in rounds:
        stretch.learn(drafter, factor)
    return stretch


def test_it_is_the_median_over_rounds_beside_each_other_whatever_slows_both():
    pairs = [("", 1.0), ("d", 1.2), ("", 3.0), ("d", 3.6), ("", 1.5), ("d", 1.8)]
    assert learned(*pairs[:3]).of("d") == 1.0, "two pairs are too few"
    assert learned(*pairs).of("d") == pytest.approx(1.2), "with two odd pairs, where the machine changed between"
    assert learned(*pairs).of("lm") == 1.0


def test_rounds_of_the_same_kind_or_with_others_between_make_no_pair():
    same = learned(("d", 1.0), ("d", 9.0), ("d", 9.0), ("", 1.0), ("", 5.0), ("", 5.0))
    assert not same.known("d")
    apart = Stretch()
    for factor in (1.0, 2.0, 1.0, 2.0, 1.0, 2.0):
        apart.learn("d" if factor == 2.0 else "", factor)
        apart.skip()
    assert not apart.known("d")


def test_nothing_is_corrected_beyond_a_factor_of_two():
    assert learned(*[("", 1.0), ("d", 50.0)] * 4).of("d") == 2.0
    assert learned(*[("", 50.0), ("d", 1.0)] * 4).of("d") == 0.5


def played(batch, factor, rounds, kept=1):
    """Rounds in which those with drafts take ``factor`` times what the profile says. Returns who drafted in each."""
    drafted = []
    for _ in range(rounds):
        judged = batch.round(*[kept] * len(batch.owners), verified=kept)
        drafted.append([judgement.rest == 0 for judgement in judged])
        names = {"dspark"} if any(drafted[-1]) else set()
        batch.back_off.took(len(judged), names, factor if names else 1.0)
    return drafted


PAYS = costs([1.0] * 8, [0.25] * 4)  # 2 tokens a request in 1.25 s, or 1 in 1 s
RARE = replace(RULE, trials=0.01, longest=50)


def test_a_batch_whose_drafts_pay_does_without_them_for_a_round_now_and_then():
    rounds = played(Batch(4, PAYS, RARE), 1.0, 300)
    rests = [index for index, who in enumerate(rounds) if not any(who)]
    assert all(all(who) or not any(who) for who in rounds)
    assert rests[1] - rests[0] == 1 + 16, "a quarter of 61 rounds, until something is known"
    assert rests[-1] - rests[-2] == 1 + 50, "61 rounds by what it loses, 50 at most"


def test_drafts_that_take_longer_than_the_profile_says_rest_and_quicker_ones_draft():
    slow = played(Batch(4, PAYS, RARE), 1.8, 200)
    assert sum(map(any, slow[60:])) < 20
    dear = costs([1.0] * 8, [1.1] * 4)  # 2 tokens in 2.1 s: by the profile they do not pay
    assert sum(map(all, played(Batch(4, dear, RARE), 1.0, 200)[60:])) == 0
    assert sum(map(all, played(Batch(4, dear, RARE), 0.8, 200)[60:])) > 100


def test_drafts_that_pay_beyond_any_correction_never_rest():
    cheap = costs([1.0] * 16, [0.01] * 4)
    assert all(all(who) for who in played(Batch(4, cheap, RARE), 1.0, 100, kept=3))


def test_a_request_by_itself_is_judged_without_the_clock():
    rounds = [played(Batch(1, PAYS, RARE), factor, 100) for factor in (1.0, 1.9)]
    assert rounds[0] == rounds[1]


def test_the_planner_tells_measured_over_expected_seconds_and_who_drafted():
    told = []

    class Told:
        def took(self, *args):
            told.append((args[0], sorted(args[1]), args[2]))

    steps = StepCurve.of([1, 2, 4, 8], [1.0, 2.0, 4.0, 8.0], source="by hand")
    drafting = DraftingCurve.of([(4, 1, 0.5), (4, 2, 1.0)], source="by hand")
    planner = Planner(steps.with_drafting({"d": drafting}), back_off=Told())
    planner.took(10.0, [("d", 4, 2), ("d", 0, 0)])
    planner.took(4.0, [("d", 0, 0), ("none", 0, 0)])
    assert told == [(2, ["d"], pytest.approx(10 / 4.5)), (2, [], pytest.approx(2.0))]
    Planner(back_off=Told()).took(1.0, [("d", 4, 2)])
    assert len(told) == 2, "without a profile there is nothing to compare with"


def test_a_schedule_that_may_not_rest_is_never_told_to():
    batch = Batch(4, PAYS, RARE)
    batch.wishes = [replace(batch.wishes[0], may_rest=False, schedule=ScheduleParams("fixed", 0, 4))] * 4
    assert all(all(who) for who in played(batch, 1.9, 100))
