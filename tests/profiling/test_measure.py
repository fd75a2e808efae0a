"""Measuring, on a clock that the toy target moves: what is timed, how often, in which order, what is left behind."""

import random

import pytest

from dspark_core.drafters.none import NoneDrafter
from dspark_core.errors import ParameterError, ResourceError
from dspark_core.profiling.measure import CONTEXTS, LEAST_REPEATS, MOST_REPEATS, measure, tapped_by
from dspark_core.profiling.profile import mix, shared_out, spread_counts, token_counts
from tests.toy import TableDrafter, ToyTarget, toy_drafters

REQUESTS = 3
DRAFT_S = 0.125  # of one block, in the fake drafter


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class TimedTarget(ToyTarget):
    """A pass moves the clock by ``cost(context, B, R)``; each pass with logits is written down."""

    def __init__(self, clock, cost, max_context=2000):
        super().__init__(max_context=max_context)
        self.clock = clock
        self.cost = cost
        self.passes = []

    def forward(self, slots, token_ids, *, tapped_layers, want_logits=True):
        if want_logits:
            (context,) = {slot.length for slot in slots}
            about = (context, sum(map(len, token_ids)), len(slots))
            self.passes.append((about, tuple(map(len, token_ids)), tapped_layers))
            self.clock.now_s += self.cost(*about)
        return super().forward(slots, token_ids, tapped_layers=tapped_layers, want_logits=want_logits)


class TimedDrafter(TableDrafter):
    def __init__(self, clock, **options):
        super().__init__(**options)
        self.clock = clock
        self.counts = []

    def open(self, capacity):
        state = super().open(capacity)
        draft = state.draft

        def timed(anchor, count, *rest):
            self.clock.now_s += DRAFT_S
            self.counts.append(count)
            return draft(anchor, count, *rest)

        state.draft = timed
        return state


def plain_cost(context, tokens, requests):
    return 1 + tokens / 16 + context / 1024 + requests / 64


@pytest.fixture
def clock():
    return Clock()


def run(clock, cost=plain_cost, budget_s=1.0, max_context=2000, progress=lambda *_: None):
    target = TimedTarget(clock, cost, max_context)
    drafter = TimedDrafter(clock, num_draft_tokens=2)
    drafters = {"table": drafter, "none": NoneDrafter()}
    measured = measure(target, drafters, max_requests=REQUESTS, budget_s=budget_s, progress=progress, now=clock)
    return measured, target, drafter


def test_each_pass_is_measured_at_each_context_with_its_own_time(clock):
    measured, target, _ = run(clock)
    abouts = [(probe.context, probe.tokens, probe.requests) for probe in measured.steps]
    counts = token_counts(REQUESTS * 3)
    assert abouts == [(c, tokens, len(mix(tokens, REQUESTS, 3))) for c in CONTEXTS for tokens in counts]
    for probe in measured.steps:
        assert probe.seconds == pytest.approx(plain_cost(probe.context, probe.tokens, probe.requests))
    assert {taps for _, _, taps in target.passes} == {(0, 2)}


def test_requests_share_a_pass_as_their_mix_says(clock):
    _, target, _ = run(clock)
    spread = {shared_out(*pair) for pair in spread_counts(REQUESTS, 3)}
    assert {shares for _, shares, _ in target.passes} == spread | {mix(n, REQUESTS, 3) for n in token_counts(9)}


def test_requests_with_as_many_tokens_each_are_measured_at_the_middle_context(clock):
    measured, _, _ = run(clock)
    abouts = [(probe.context, probe.tokens, probe.requests) for probe in measured.spread]
    assert abouts == [(CONTEXTS[1], *pair) for pair in spread_counts(REQUESTS, 3)]
    for probe in measured.spread:
        assert probe.seconds == pytest.approx(plain_cost(probe.context, probe.tokens, probe.requests))


def test_the_verdicts_are_part_of_a_step(clock, monkeypatch):
    def slow(cases):
        clock.now_s += 10 * len(cases)
        return [len(case.logits) - len(case.verified) for case in cases]

    monkeypatch.setattr("dspark_core.profiling.measure.judge_all", slow)
    measured, _, _ = run(clock)
    for probe in (*measured.steps, *measured.spread):
        whole = plain_cost(probe.context, probe.tokens, probe.requests) + 10 * probe.requests
        assert probe.seconds == pytest.approx(whole)


def test_drafting_is_timed_for_few_and_all_drafts_of_one_to_all_requests(clock):
    measured, _, drafter = run(clock)
    found = {(probe.drafter, probe.drafts, probe.requests): probe.seconds for probe in measured.drafting}
    assert found == {
        ("table", drafts, requests): pytest.approx(requests * DRAFT_S)
        for drafts in (1, 2)
        for requests in (1, REQUESTS)
    }
    assert {probe.num_draft_tokens for probe in measured.drafting} == {2}
    assert set(drafter.counts) == {1, 2}


def test_the_warm_up_does_not_count_and_neither_does_a_slow_moment(clock):
    """The first pass of each kind is a hundred times as slow, and one later one too."""
    seen = {}

    def cost(*about):
        seen[about] = seen.get(about, 0) + 1
        return plain_cost(*about) * (100 if seen[about] in (1, 3) else 1)

    measured, _, _ = run(clock, cost)
    assert measured.repeats == LEAST_REPEATS
    for probe in measured.steps:
        assert probe.seconds == pytest.approx(plain_cost(probe.context, probe.tokens, probe.requests))


def test_rounds_begin_elsewhere_each_time(clock):
    target = TimedTarget(clock, plain_cost)
    measured = measure(target, {"none": NoneDrafter()}, max_requests=9, budget_s=1.0, now=clock)
    each = len(measured.steps) + len(measured.spread)
    abouts = [about for about, _, _ in target.passes]
    assert len(abouts) == each * (1 + measured.repeats)
    rounds = [abouts[at : at + each] for at in range(0, len(abouts), each)]
    assert all(sorted(done) == sorted(rounds[0]) for done in rounds)
    assert len({done[0] for done in rounds}) == len(rounds)


def test_a_larger_budget_buys_repeats_and_is_kept_to(clock):
    measured, target, _ = run(clock)
    each = len(measured.steps) + len(measured.spread)
    once = sum(plain_cost(*about) for about, _, _ in target.passes[:each]) + 8 * DRAFT_S
    repeats = []
    for rounds in (1, 4, 6.5, 12, 1000):
        begun = clock.now_s
        measured, _, _ = run(clock, budget_s=rounds * once)
        repeats.append(measured.repeats)
        if rounds >= 1 + LEAST_REPEATS:
            assert clock.now_s - begun <= rounds * once * 1.001
    assert repeats[0] == LEAST_REPEATS
    assert repeats[2:] == [5, 11, MOST_REPEATS]
    assert repeats[1] in (3, LEAST_REPEATS)


@pytest.mark.parametrize("budget_s", [1.0, 400.0, 1e6, 1e308])
def test_the_time_left_is_told_and_runs_out(clock, budget_s):
    said = []
    run(clock, lambda *_: 1.0, budget_s, progress=lambda stage, fraction: said.append((clock.now_s, stage, fraction)))
    fractions = [fraction for _, _, fraction in said]
    assert fractions == sorted(fractions)
    assert said[-1][1:] == ("Measuring step times: 0:00 left", 1.0)
    for at, stage, _ in said[len(said) // 2 :]:
        minutes, seconds = stage.removesuffix(" left").rpartition(" ")[2].split(":")
        assert int(minutes) * 60 + int(seconds) == pytest.approx(
            said[-1][0] - at, rel=0.2, abs=4
        )  # the four tasks of drafting take a quarter of a second, all others one


def test_nothing_is_kept_open_even_when_it_is_interrupted(clock):
    _, target, drafter = run(clock)
    assert all(slot.released for slot in target.slots)
    assert len(target.slots) > REQUESTS
    assert all(state.seen == [] for state in drafter.states)
    calls = []

    def cost(*_):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return 1.0

    target = TimedTarget(clock, cost)
    with pytest.raises(KeyboardInterrupt):
        measure(target, {"none": NoneDrafter()}, max_requests=2, budget_s=1, now=clock)
    assert target.slots
    assert all(slot.released for slot in target.slots)


def test_contexts_stay_within_the_models(clock):
    measured, _, _ = run(clock, max_context=100)
    assert sorted({probe.context for probe in measured.steps}) == [64, 97]
    measured, _, _ = run(clock, max_context=5)
    assert {probe.context for probe in measured.steps} == {2}
    with pytest.raises(ParameterError, match="nothing to measure"):
        run(clock, max_context=3)


def test_without_drafters_plain_passes_are_measured(clock):
    target = TimedTarget(clock, plain_cost)
    measured = measure(target, {"none": NoneDrafter()}, max_requests=4, budget_s=1, now=clock)
    assert measured.drafting == ()
    assert {probe.tokens for probe in measured.steps} == {1, 2, 3, 4}
    assert {taps for _, _, taps in target.passes} == {()}


def test_a_clock_too_coarse_to_move_gives_times_that_can_be_stored(clock):
    measured, _, _ = run(clock, lambda *_: 0.0)
    assert {probe.seconds for probe in measured.steps} == {1e-9}


def test_caches_that_find_no_room_are_said_and_given_back(clock):
    class Small(TimedTarget):
        def open_slot(self, capacity):
            if len(self.slots) == 5:
                raise ResourceError("too large")
            return super().open_slot(capacity)

    target = Small(clock, plain_cost)
    with pytest.raises(ResourceError, match="measured on 4 requests of up to 1024 tokens"):
        measure(target, {"none": NoneDrafter()}, max_requests=4, budget_s=1, now=clock)
    assert [slot.released for slot in target.slots] == [True] * 5


@pytest.mark.parametrize("budget_s", [0, -1, float("inf"), float("nan")])
def test_a_budget_that_is_none_is_refused(clock, budget_s):
    with pytest.raises(ParameterError, match="budget"):
        run(clock, budget_s=budget_s)


def test_every_drafter_of_the_engine_can_be_measured():
    target = ToyTarget()
    drafters = toy_drafters(target)
    clock = Clock()
    dice = random.Random(1)

    def ticking():
        clock.now_s += dice.uniform(0.5, 1)
        return clock.now_s

    measured = measure(target, drafters, max_requests=2, budget_s=1, now=ticking)
    assert {probe.drafter for probe in measured.drafting} == set(drafters) - {"none"}
    assert tapped_by(drafters.values()) == (0, 2)


def test_the_real_target_has_the_same_caches_after_each_pass(tiny_target):
    """Unused memory of this target holds NaN: a slot that was filled wrongly would end in an error or NaN."""
    measured = measure(tiny_target, {"table": TableDrafter97()}, max_requests=2, budget_s=1)
    assert {probe.context for probe in measured.steps} == {64, 253}
    assert all(probe.seconds > 0 for probe in measured.steps)


class TableDrafter97(TimedDrafter):
    """Drafts the tiny target's tokens; its features are as wide as that target's."""

    def __init__(self):
        super().__init__(Clock(), vocab_size=97, num_draft_tokens=2)

    def open(self, capacity):
        state = super().open(capacity)
        state.observe = lambda *_: None
        return state
