"""Back-off: by hand, its words, what ends a rest, and that requests are weighed together."""

import gc
import random
from dataclasses import replace

import pytest

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.back_off import BackOff, BackOffRule, Judgement, Wish
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import StepCurve

PREFIX = ScheduleParams("prefix", 0, 4)
WISH = Wish("dspark", 4, PREFIX, may_rest=True)
RULE = BackOffRule(
    window=10**9, batch_window=10**9, least=2, trials=0.05, longest=6, doubt=0.0
)  # the means as they are


def costs(passes, drafting):
    """A pass over 1, 2, 3, … tokens takes these seconds; so does the drafting of 1, 2, 3, … requests."""
    probes = [(4, requests, seconds) for requests, seconds in enumerate(drafting, 1)]
    steps = StepCurve.of(range(1, len(passes) + 1), passes, source="by hand")
    return steps.with_drafting({"dspark": DraftingCurve.of(probes, source="by hand")})


ONE_MORE = costs([1.0, 1.1, 1.2, 1.3, 1.4], [0.4, 0.8])  # alone and with ℓ = 1: 1.5 s a round, 1 s without drafts


class Owner:
    """A request."""


def wish_drafts(judgement, wish):
    return wish.drafts if judgement.most is None else min(wish.drafts, judgement.most)


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
                self.back_off.learn(owner, wish_drafts(judgement, self.wishes[0]), verified, kept)
        return judged

    def rests(self, *rounds):
        return [tuple(judgement.rest for judgement in self.round(*accepted)) for accepted in rounds]


def test_a_request_rests_when_its_drafts_cost_more_than_they_give_and_says_so():
    """A round takes 1.49 s with its drafts and 1 s without; what a try loses is spread over rounds at 0.05 a round."""
    even = Batch(curve=costs([1.0, 1.09, 1.2], [0.4, 0.8]))
    assert [even.round(kept)[0] for kept in (1, 0)] == [Judgement(), Judgement()]
    assert even.round(0)[0] == Judgement(gain=pytest.approx(1.5 / 1.49), expected=4.0)
    (judgement,) = even.round(0)
    assert (judgement.gain, judgement.rest) == (pytest.approx((1 + 1 / 3) / 1.49), 0), "tries at once"
    (judgement,) = even.round(0)
    assert (judgement.gain, judgement.rest) == (pytest.approx((1 + 1 / 4) / 1.49), 3), "0.11 / 0.05 rounds, whole ones"
    assert judgement.reason == "resting from drafts: gain 0.84 over 4 rounds; tries again in 3 rounds"
    assert even.round(0)[0].reason.endswith("tries again in 2 rounds")
    assert even.round(0)[0].reason.endswith("tries again in 1 round")
    assert even.round(0)[0].rest == 0
    assert even.round(0)[0].rest == 4, "0.16 / 0.05"


def test_rests_end_when_drafts_pay_again():
    rule = replace(RULE, window=4)
    batch = Batch(rule=rule)
    assert [rest for (rest,) in batch.rests(*[(0,)] * 12)] == [0, 0, 0, 6, 5, 4, 3, 2, 1, 0, 6, 5]
    assert [rest for (rest,) in batch.rests(*[(1,)] * 8)][4:] == [0, 6, 5, 4]
    for _ in range(30):
        batch.round(1)
    assert set(batch.rests(*[(1,)] * 6)) == {(0,)}, "drafts pay"


def test_gain_is_of_the_whole_round_so_all_rest_where_only_that_saves_the_drafting():
    """Drafting costs 0.8 s for one as for four, so each alone gains by drafting beside the others; together they lose.

    Without: 4 / 1. One: 4.5 / 1.825. All: 6 / 1.9 = 3.16.
    """
    four = Batch(4, costs([1.0] * 4 + [1.025, 1.05, 1.075, 1.1], [0.8] * 4))
    four.rests((1, 1, 0, 0))
    judged = four.round(0, 0, 0, 0)
    assert [judgement.rest > 0 for judgement in judged] == [False, True, True, True], "one tries for all"
    assert judged[-1].gain == pytest.approx((6 / 1.9) / 4)
    assert "of all requests" in judged[-1].reason


def test_the_better_drafts_and_the_worse_rests():
    """Each costs 0.3 s a round of 1 s. After 48 rounds that lean on 16 of both's: e near 0.9 and 0.1."""
    rule, curve = replace(RULE, least=96), costs([1.0, 1.0, 1.1, 1.2], [0.2, 0.4])
    assert set(Batch(2, curve, rule).rests(*[(1, 1)] * 49)) == {(0, 0)}
    for accepted in ((1, 0), (0, 1)):
        batch = Batch(2, curve, rule)
        batch.rests(*[accepted] * 49)
        assert [rest > 0 for rest in batch.rests(accepted)[0]] == [kept == 0 for kept in accepted]


def dear(number):
    """Requests whose drafts cost twice a pass and give nothing."""
    return Batch(number, costs([1.0] * (2 * number), [2.0] * number), replace(RULE, least=4, trials=0.1))


def drafting(batch):
    return [judgement.rest == 0 for judgement in batch.round(*[0] * len(batch.owners))]


def test_one_request_tries_at_a_time_and_each_has_its_turn():
    batch = dear(4)
    assert drafting(batch) == [True] * 4, "nothing is known yet"
    rounds = [drafting(batch) for _ in range(28)]
    assert {sum(each) for each in rounds} == {0, 1}
    assert sum(map(sum, rounds)) == 4, "one in seven rounds: 0.67 / 0.1"
    assert [sum(each) for each in zip(*rounds, strict=True)] == [1] * 4


def test_the_rounds_that_are_told_are_those_until_the_next_try():
    batch = dear(4)
    drafting(batch)
    trying, *told = [judgement.rest for judgement in batch.round(0, 0, 0, 0)]
    assert trying == 0
    rounds = [drafting(batch) for _ in range(max(told))]
    assert [rounds.index([index == one for index in range(4)]) + 1 for one in (1, 2, 3)] == told


def test_a_new_request_inherits_what_the_batch_knows_also_from_requests_that_have_ended():
    batch = dear(4)
    for _ in range(3):
        drafting(batch)
    batch.owners = [Owner() for _ in range(4)]
    gc.collect()
    assert drafting(batch) == [False] * 4
    assert "over 5 rounds of all requests" in batch.round(0, 0, 0, 0)[0].reason
    paying = Batch(4, costs([1.0] * 8, [0.1] * 4))
    assert [drafted.rest for _ in range(4) for drafted in paying.round(1, 1, 1, 1)] == [0] * 16
    paying.owners = [Owner() for _ in range(4)]
    judged = paying.round(1, 1, 1, 1)
    assert all(judgement.rest == 0 and judgement.gain > 1 for judgement in judged)


def test_a_batch_of_another_size_begins_with_what_the_nearest_has_seen():
    batch = dear(16)
    assert drafting(batch) == [True] * 16
    drafting(batch)
    for number in (8, 4, 2, 12, 3):
        batch.owners, batch.wishes = batch.owners[:number], batch.wishes[:number]
        while len(batch.owners) < number:
            batch.owners.append(Owner())
            batch.wishes.append(WISH)
        assert sum(drafting(batch)) <= 1


def test_a_request_by_itself_learns_nothing_from_others_so_that_a_seed_repeats():
    batch = dear(2)
    for _ in range(3):
        drafting(batch)
    batch.owners, batch.wishes = [Owner()], [WISH]
    assert [drafting(batch) for _ in range(4)] == [[True]] * 4


def test_another_schedule_is_another_case():
    batch = Batch()
    assert batch.rests((0,), (0,), (0,), (0,)) == [(0,), (0,), (0,), (6,)]
    batch.wishes = [replace(WISH, schedule=replace(PREFIX, l_max=2))]
    assert batch.rests((0,), (0,), (0,), (0,)) == [(0,), (0,), (0,), (6,)]


def test_where_few_drafts_are_verified_few_are_asked_for():
    """Twice the longest verification of late, and two more, if the policy lets it."""
    batch = Batch(curve=None, wish=replace(WISH, may_shorten=True))
    assert batch.round(1)[0].most is None
    for wish, most in ((replace(WISH, may_shorten=True), 6), (WISH, None)):
        batch = Batch(curve=costs([1.0] * 4, [0.1]), wish=wish)
        batch.round(1, verified=1)
        batch.round(2, verified=2)
        assert batch.round(1, verified=1)[0].most == most


def test_what_others_want_without_rest_is_in_the_round_in_any_case():
    """Beside drafts that must be made, those of a request that may rest cost less: the drafting is paid for already."""
    alone, beside = Batch(2, costs([1.0] * 9, [0.5, 0.5])), Batch(2, costs([1.0] * 9, [0.5, 0.5]))
    beside.wishes = [replace(WISH, may_rest=False), WISH]
    for batch in (alone, beside):
        batch.rests((0, 1), (0, 0), (0, 0))
    assert alone.round(0, 0)[1].gain < 1
    assert beside.round(0, 0)[1].gain > 1


def test_memories_of_batches_are_bounded():
    batch = Batch(2)
    for index in range(200):
        batch.wishes = [replace(WISH, schedule=replace(PREFIX, threshold=index / 200))] * 2
        batch.round(0, 0)
    assert len(batch.back_off._memories) == 64


@pytest.mark.parametrize("wish", [replace(WISH, may_rest=False), replace(WISH, drafts=0)])
def test_who_must_not_rest_or_has_nothing_to_draft_is_left_alone(wish):
    batch = Batch(wish=wish)
    assert [batch.round(0)[0] for _ in range(9)] == [Judgement()] * 9


def test_a_few_unlucky_rounds_are_given_the_benefit_of_the_doubt_and_many_are_not():
    """After two rounds without any, e counts as 0.7 · √(0.25 · 1.25 / 2) = 0.28, and a round takes 1.2 s, not 1."""
    doubtful = replace(RULE, doubt=0.7)
    curve = costs([1.0] * 4, [0.2, 0.4])
    assert Batch(curve=curve, rule=doubtful).rests(*[(0,)] * 3) == [(0,)] * 3
    assert Batch(curve=curve, rule=RULE).rests(*[(0,)] * 4)[-1] != (0,)
    assert Batch(curve=curve, rule=replace(doubtful, least=16)).rests(*[(0,)] * 18)[-1] != (0,)


def test_without_a_profile_nobody_is_judged():
    assert Batch(curve=None).rests(*[(0,)] * 9) == [(0,)] * 9


def test_the_records_of_a_request_go_with_it():
    batch = Batch()
    batch.rests((0,))
    assert len(batch.back_off._records) == 1
    batch.owners.clear()
    gc.collect()
    assert len(batch.back_off._records) == 0


class _Forgetful(BackOff):
    """Weighs every batch anew."""

    def judge(self, owners, wishes, curve):
        self._found.clear()
        return super().judge(owners, wishes, curve)


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_that_was_weighed_before_is_judged_as_if_for_the_first_time(seed):
    """Requests come and go, end soon, must draft, change their schedule; equals are weighed once in `BackOff`."""
    draw = random.Random(seed)
    rule = replace(RULE, longest=20)
    both = BackOff(rule), _Forgetful(rule)
    curve = costs([1 + 0.1 * tokens for tokens in range(64)], [0.2 * requests for requests in range(1, 9)])
    others = replace(PREFIX, l_max=2), replace(PREFIX, threshold=0.5)
    owners, wishes, rested = [], [], 0
    for _ in range(200):
        if owners and draw.random() < 0.2:
            gone = draw.randrange(len(owners))
            del owners[gone], wishes[gone]
        while len(owners) < 2 or (len(owners) < 8 and draw.random() < 0.2):
            owners.append(Owner())
            wishes.append(draw.choice([WISH, WISH, WISH, replace(WISH, may_rest=False), replace(WISH, drafts=0)]))
        if draw.random() < 0.1:
            changed = draw.randrange(len(wishes))
            wishes[changed] = replace(wishes[changed], schedule=draw.choice([PREFIX, *others]))
        ends = draw.randrange(len(wishes))
        now = [replace(wish, drafts=0) if index == ends else wish for index, wish in enumerate(wishes)]
        judged, again = (each.judge(owners, now, curve) for each in both)
        assert judged == again
        kept = [draw.choice([0, 0, 0, 1]) for _ in owners]
        for back_off in both:
            for owner, judgement, wish, accepted in zip(owners, judged, now, kept, strict=True):
                if wish.drafts and not judgement.rest:
                    back_off.learn(owner, wish.drafts, 1, accepted)
        rested += sum(judgement.rest > 0 for judgement in judged)
    assert rested > 100
