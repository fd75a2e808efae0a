"""Back-off: by hand, its words, what ends a rest, and that requests are weighed together."""

import gc
from dataclasses import replace

import pytest

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.back_off import BackOff, BackOffRule, Judgement, Wish
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import StepCurve

PREFIX = ScheduleParams("prefix", 0, 4)
WISH = Wish("dspark", 4, PREFIX, may_rest=True)
RULE = BackOffRule(window=4, least=2, retry=2, shortest=3, longest=6, doubt=0.0)  # the means as they are


def costs(passes, drafting):
    """A pass over 1, 2, 3, … tokens takes these seconds; so does the drafting of 1, 2, 3, … requests."""
    probes = [(4, requests, seconds) for requests, seconds in enumerate(drafting, 1)]
    steps = StepCurve.of(range(1, len(passes) + 1), passes, source="by hand")
    return steps.with_drafting({"dspark": DraftingCurve.of(probes, source="by hand")})


ONE_MORE = costs([1.0, 1.1, 1.2, 1.3, 1.4], [0.4, 0.8])  # alone and with ℓ = 1: 1.5 s a round, 1 s without drafts


class Owner:
    """A request."""


class Batch:
    """Requests whose rounds are played by hand."""

    def __init__(self, number=1, curve=ONE_MORE, rule=RULE, wish=WISH):
        self.back_off = BackOff(rule)
        self.owners = [Owner() for _ in range(number)]
        self.curve = curve
        self.wishes = [wish] * number

    def round(self, *accepted, verified=1):
        """Judge, then learn what those that draft had accepted. Returns the judgements."""
        judged = self.back_off.judge(self.owners, self.wishes, self.curve)
        for owner, judgement, kept in zip(self.owners, judged, accepted, strict=True):
            if not judgement.rest:
                self.back_off.learn(owner, verified, kept)
        return judged

    def rests(self, *rounds):
        return [tuple(judgement.rest for judgement in self.round(*accepted)) for accepted in rounds]


def test_a_request_rests_when_its_drafts_cost_more_than_they_give_and_says_so():
    """Half a token more a round of 1.5 s: (1.5 / 1.5) is a gain of 1; a quarter is 0.83."""
    even = Batch()
    assert [even.round(kept)[0] for kept in (1, 0)] == [Judgement(), Judgement()]
    (judgement,) = even.round(0)
    assert judgement == Judgement(gain=pytest.approx(1.0))
    (judgement,) = even.round(0)
    assert (judgement.gain, judgement.rest) == (pytest.approx((1 + 1 / 3) / 1.5), 3)
    assert judgement.reason == "resting from drafts: gain 0.89 over 3 rounds; tries again in 3 rounds"
    assert even.round(0)[0].reason.endswith("tries again in 2 rounds")
    assert even.round(0)[0].reason.endswith("tries again in 1 round")
    assert even.round(0)[0] == Judgement(), "tries again, and by what comes now"


def test_rests_grow_while_trying_again_fails_and_shrink_once_drafts_have_paid():
    batch = Batch()
    lengths = [rest for (rest,) in batch.rests(*[(0,)] * 24)]
    assert lengths == [0, 0, 3, 2, 1, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0, 6]
    batch.rests(*[(0,)] * 5)
    assert set(batch.rests(*[(1,)] * 6)) == {(0,)}, "drafts pay"
    assert [rest for (rest,) in batch.rests(*[(0,)] * 5)][:4] == [0, 0, 0, 3]


def test_gain_is_of_the_whole_round_so_all_rest_where_only_that_saves_the_drafting():
    """Drafting costs 0.8 s for one as for four, so each alone gains by drafting beside the others; together they lose.

    Without: 4 / 1. One: 4.5 / 1.825. All: 6 / 1.9 = 3.16.
    """
    four = Batch(4, costs([1.0] * 4 + [1.025, 1.05, 1.075, 1.1], [0.8] * 4))
    assert four.rests((1, 1, 0, 0), (0, 0, 1, 1)) == [(0,) * 4, (3,) * 4]
    judged = four.round(0, 0, 0, 0)
    assert judged[0].gain == pytest.approx((6 / 1.9) / 4)


def test_the_better_drafts_and_the_worse_rests():
    """Each costs 0.3 s a round of 1 s. After 48 rounds that lean on 16 of the other's: e = 3/4 and 1/4."""
    rule, curve = replace(RULE, window=48, least=96), costs([1.0, 1.0, 1.1, 1.2], [0.2, 0.4])
    assert set(Batch(2, curve, rule).rests(*[(1, 1)] * 49)) == {(0, 0)}
    assert Batch(2, curve, rule).rests(*[(1, 0)] * 49)[-1] == (0, 3)
    assert Batch(2, curve, rule).rests(*[(0, 1)] * 49)[-1] == (3, 0)


def test_a_full_batch_is_judged_sooner_since_all_have_the_same_drafter():
    assert Batch(1, rule=replace(RULE, least=4)).rests(*[(0,)] * 5)[-2:] == [(0,), (3,)]
    assert Batch(4, rule=replace(RULE, least=4)).rests(*[(0,) * 4] * 2) == [(0,) * 4, (3,) * 4]


def test_what_was_seen_in_another_batch_is_forgotten_and_a_rest_ends():
    batch = Batch(4, rule=replace(RULE, least=4))
    assert batch.rests((0,) * 4, (0,) * 4)[-1] == (3,) * 4
    owners, batch.wishes = batch.owners, batch.wishes[:2]
    batch.owners = owners[:2]
    assert batch.rests((0, 0)) == [(2, 2)], "half as many still tell of each other"
    batch.owners, batch.wishes = owners[:1], batch.wishes[:1]
    assert batch.rests((0,), (0,)) == [(0,), (0,)]


def test_another_schedule_is_another_case():
    batch = Batch()
    assert batch.rests((0,), (0,), (0,)) == [(0,), (0,), (3,)]
    batch.wishes = [replace(WISH, schedule=replace(PREFIX, l_max=2))]
    assert batch.rests((0,), (0,), (0,)) == [(0,), (0,), (3,)]


@pytest.mark.parametrize("wish", [replace(WISH, may_rest=False), replace(WISH, drafts=0)])
def test_who_must_not_rest_or_has_nothing_to_draft_is_left_alone(wish):
    batch = Batch(wish=wish)
    assert [batch.round(0)[0] for _ in range(9)] == [Judgement()] * 9


def test_a_few_unlucky_rounds_are_given_the_benefit_of_the_doubt_and_many_are_not():
    """After two rounds without any, e counts as 0.7 · √(0.25 · 1.25 / 2) = 0.28, and a round takes 1.2 s, not 1."""
    doubtful = replace(RULE, doubt=0.7)
    assert Batch(curve=costs([1.0] * 4, [0.2, 0.4]), rule=doubtful).rests(*[(0,)] * 3) == [(0,)] * 3
    assert Batch(curve=costs([1.0] * 4, [0.2, 0.4]), rule=RULE).rests(*[(0,)] * 3) == [(0,), (0,), (3,)]
    many = replace(doubtful, least=16, window=16)
    assert Batch(curve=costs([1.0] * 4, [0.2, 0.4]), rule=many).rests(*[(0,)] * 17)[-1] == (3,)


def test_without_a_profile_nobody_is_judged():
    assert Batch(curve=None).rests(*[(0,)] * 9) == [(0,)] * 9


def test_the_records_of_a_request_go_with_it():
    batch = Batch()
    batch.rests((0,))
    assert len(batch.back_off._records) == 1
    batch.owners.clear()
    gc.collect()
    assert len(batch.back_off._records) == 0
