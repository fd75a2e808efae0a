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


def pair(drafting, plain, drafter="d"):
    """Three rounds: the first with drafts may have had more to read, so it does not count."""
    return [(drafter, 99.0), (drafter, drafting), ("", plain)]


def test_it_is_the_median_over_rounds_beside_each_other_whatever_slows_both():
    pairs = [*pair(1.2, 1.0), *pair(3.6, 3.0), *pair(9.0, 1.0)]
    assert learned(*pairs[:6]).of("d") == 1.0, "two pairs are too few"
    assert learned(*pairs).of("d") == pytest.approx(1.2), "the third was disturbed"
    assert learned(*pairs).of("lm") == 1.0


def test_tries_and_rounds_with_others_between_make_no_pair():
    tries = learned(*[("d", 2.0), ("", 1.0)] * 9)
    assert not tries.known("d")
    other = learned(*[("d", 2.0), ("lm", 2.0), ("", 1.0)] * 9)
    assert not other.known("d")
    assert not other.known("lm")
    apart = Stretch()
    for drafter, factor in [("d", 2.0), ("d", 2.0), ("", None), ("", 1.0)] * 9:
        apart.skip() if factor is None else apart.learn(drafter, factor)
    assert not apart.known("d")


def test_nothing_is_corrected_beyond_a_factor_of_three():
    assert learned(*pair(50.0, 1.0) * 3).of("d") == 3.0
    assert learned(*pair(1.0, 50.0) * 3).of("d") == pytest.approx(1 / 3)


def test_pairs_fade_so_that_what_rests_is_tried_again_at_last():
    stretch = learned(*pair(2.0, 1.0) * 4)
    changed = [stretch.learn("", 1.0) for _ in range(2002)]
    assert not stretch.known("d"), "two of four are left"
    assert sum(changed) == 1 + 1


def test_what_batches_of_about_its_size_have_told_counts_until_it_tells_itself():
    begun = Stretch(learned(*pair(1.3, 1.0) * 3, *pair(9.0, 1.0, "lm") * 2))
    assert begun.of("d") == pytest.approx(1.3)
    assert not begun.known("lm"), "two pairs told nothing there either"
    for drafter, factor in pair(2.0, 1.0) * 4:
        begun.learn(drafter, factor)
    assert begun.of("d") == pytest.approx(2.0)


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


def test_drafts_that_take_longer_than_the_profile_says_rest():
    slow = played(Batch(4, PAYS, RARE), 1.8, 300)
    assert all(map(any, played(Batch(4, PAYS, RARE), 1.0, 300)[:4]))
    assert sum(map(all, slow[60:])) < 20


def test_a_batch_of_the_next_size_need_not_learn_anew_that_drafts_take_longer():
    small = Batch(4, PAYS, RARE)
    played(small, 1.8, 60)
    grown = Batch(8, costs([1.0] * 16, [0.25] * 8), RARE)
    alone = played(grown, 1.8, 60)
    grown = Batch(8, costs([1.0] * 16, [0.25] * 8), RARE)
    grown.back_off = small.back_off
    assert sum(map(all, played(grown, 1.8, 60))) < sum(map(all, alone)) - 4, "rounds in which all draft"


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
