"""Duels: lanes in turn on one engine, every figure traceable to the laps, sameness never claimed where it is not."""

import math
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from dspark_core.bench.duel import MAX_LANES, Duel, Entry, duel_lanes
from dspark_core.bench.duel_report import Spread, duel_report, median_lap
from dspark_core.bench.identity import gap_in, look_at, sameness
from dspark_core.bench.lap import Lap
from dspark_core.bench.paired import WARM_UP_TOKENS
from dspark_core.bench.run import Run
from dspark_core.errors import DSparkError, ParameterError
from dspark_core.events import Candidate
from dspark_core.params import GenerationRequest, SamplingParams
from dspark_core.telemetry import Summary
from tests.sources import ROOT
from tests.toy_session import ToySession

GREEDY = SamplingParams(max_new_tokens=24, seed=0)
NAMES = ("plain", "fixed@2", "dflash+threshold@0.5")


class Watch:
    """The engine of a session, with a note of what it was asked and a hand on it."""

    def __init__(self, session):
        self._engine = session.engine
        self.asked = []
        self.crowd = 0
        self.refuse = lambda _request: None

    @property
    def num_active(self):
        return self._engine.num_active + self.crowd

    def load(self):
        return self._engine.load()

    def submit(self, request):
        self.refuse(request)
        self.asked.append(request)
        return self._engine.submit(request)


@pytest.fixture
def session():
    with ToySession() as opened:
        yield opened


@pytest.fixture
def course(session):
    return Watch(session)


def a_duel(course, names=NAMES, sampling=GREEDY, repeats=1, patience_s=20.0):
    lanes = duel_lanes(names, "dspark")
    entries = [Entry(lane, GenerationRequest((1, 2), sampling, lane.schedule, lane.drafter)) for lane in lanes]
    return Duel(course, entries, repeats, threading.Lock(), patience_s)


def lap(tokens, speed=1.0, finish="length", repeat=0):
    summary = Summary(rounds=len(tokens), tokens=len(tokens), verify_s=len(tokens) / speed)
    run = Run(tuple(tokens), summary, 1.0)
    return Lap(
        repeat,
        run,
        tuple((0.1 * at, at + 1, str(token)) for at, token in enumerate(tokens)),
        "",
        finish,
        "",
        False,
        None,
    )


def test_lanes_run_one_after_the_other_in_rotating_order_after_a_warm_up_that_is_left_out(course):
    duel = a_duel(course, repeats=3)
    seen = {(now.phase, course.num_active > 1) for now in duel.run()}
    assert {phase for phase, _ in seen} == {"warm-up", "running"}
    assert not any(crowded for _, crowded in seen)
    drafters = [request.drafter for request in course.asked]
    a, b, c = drafters[:3]
    assert (a, b, c) == ("none", "dspark", "dflash")
    assert drafters[3:] == [a, b, c, b, c, a, c, a, b]
    assert {request.sampling.max_new_tokens for request in course.asked[:3]} == {WARM_UP_TOKENS}
    assert {request.sampling for request in course.asked[3:]} == {GREEDY}
    assert [[lap.repeat for lap in entry.laps] for entry in duel.entries] == [[0, 1, 2]] * 3
    assert {len(lap.run.token_ids) for entry in duel.entries for lap in entry.laps} == {24}


def test_the_report_has_telemetrys_figures_and_a_track_that_adds_up(course):
    duel = a_duel(course, repeats=2)
    list(duel.run())
    report = duel_report(duel)
    assert (report["reference"], report["repeats"], report["stopped"], report["disturbed"]) == (
        "plain",
        2,
        False,
        False,
    )
    plain, *others = report["lanes"]
    assert plain["ratio"] is None
    assert plain["sameness"] is None
    for told, entry in zip(report["lanes"], duel.entries, strict=True):
        shown = median_lap(entry.laps)
        summary = shown.run.summary
        assert told["figures"]["tau"] == summary.tau
        assert told["finish_s"] == pytest.approx(summary.prefill_s + summary.round_s)
        assert told["track"][-1][0] == pytest.approx(told["finish_s"], abs=1e-5)
        assert "".join(text for _, _, text in told["track"]) == told["text"] == shown.text
        assert told["track"] == sorted(told["track"])
        assert told["track"][-1][1] == summary.tokens == len(shown.run.token_ids)
        speeds = [lap.run.summary.tokens_per_s for lap in entry.laps]
        assert (told["speed"]["low"], told["speed"]["high"], told["speed"]["n"]) == (min(speeds), max(speeds), 2)
    for told, entry in zip(others, duel.entries[1:], strict=True):
        pairs = [
            ours.run.summary.tokens_per_s / theirs.run.summary.tokens_per_s
            for ours, theirs in zip(entry.laps, duel.entries[0].laps, strict=True)
        ]
        assert told["ratio"]["low"] == min(pairs)
        assert told["ratio"]["n"] == 2
        assert told["energy_j"] is None
    assert "track" not in duel_report(duel, tracks=False)["lanes"][0]


def test_greedy_answers_of_exact_arithmetic_are_the_same_token_for_token(course):
    duel = a_duel(course)
    list(duel.run())
    assert [entry.sameness and (entry.sameness.verdict, entry.sameness.tokens) for entry in duel.entries] == [
        None,
        ("same", 24),
        ("same", 24),
    ]


def test_sampled_answers_are_never_compared(course):
    duel = a_duel(course, sampling=replace(GREEDY, temperature=1.0))
    list(duel.run())
    assert all(entry.laps for entry in duel.entries)
    assert [entry.sameness for entry in duel.entries] == [None] * 3


def test_a_difference_is_told_with_its_place_both_tokens_and_the_targets_own_gap(session, course):
    duel = a_duel(course, ("plain", "fixed@2"))
    plain, other = duel.entries
    usual = session.engine.submit(plain.request)
    text = [*usual][-1].token_ids
    biased = replace(GREEDY, logit_bias=((text[5], -100.0),))
    other.request = replace(other.request, sampling=biased)
    list(duel.run())
    same = other.sameness
    assert same.verdict == "differs"
    assert same.tokens == text.index(text[5])
    assert (same.theirs, same.ours) == (text[same.tokens], other.laps[0].run.token_ids[same.tokens])
    logits = session.target.next_logits([1, 2, *text[: same.tokens]])
    assert other.gap.gap == pytest.approx(float(logits[same.theirs] - logits[same.ours]), abs=1e-5)
    assert not other.gap.at_least


def test_a_lane_that_fails_says_why_and_the_others_go_on(course):
    def refuse(request):
        if request.drafter == "dspark":
            raise ParameterError("no such drafter today")

    course.refuse = refuse
    duel = a_duel(course, repeats=2)
    list(duel.run())
    told = duel_report(duel)["lanes"]
    assert [(lane["error"], len(lane["laps"])) for lane in told] == [("", 2), ("no such drafter today", 0), ("", 2)]


def test_stopping_keeps_what_is_done_and_marks_what_was_cut(course):
    duel = a_duel(course, sampling=replace(GREEDY, max_new_tokens=400))
    for now in duel.run():
        if now.phase == "running" and now.lane == "fixed@2" and now.tokens > 3:
            duel.stop()
    plain, cut, never = duel.entries
    assert plain.laps[0].whole
    assert cut.laps[0].finish == "cancelled"
    assert cut.sameness.verdict == "so far"
    assert cut.sameness.tokens == len(cut.laps[0].run.token_ids)
    assert never.laps == []
    assert duel_report(duel)["stopped"]


@pytest.mark.parametrize("phase", ["waiting", "warm-up", "running"])
def test_closing_it_frees_the_engine_and_lets_the_next_duel_in(session, course, phase):
    duel = a_duel(course, sampling=replace(GREEDY, max_new_tokens=4000))
    if phase == "waiting":
        course.crowd = 1
    going = duel.run()
    while next(going).phase != phase:
        pass
    going.close()
    session.close()  # returns when what ran has ended
    assert session.engine.num_active == 0
    assert duel._gate.acquire(blocking=False)


def test_it_waits_for_an_idle_moment_and_marks_what_ran_beside_others_when_there_is_none(course):
    course.crowd = 1
    duel = a_duel(course, ("plain", "fixed@2"), patience_s=0.25)
    phases = [now.phase for now in duel.run()]
    assert phases[0] == "waiting"
    assert duel_report(duel)["disturbed"]
    assert all(lap.disturbed for entry in duel.entries for lap in entry.laps)
    course.crowd = 0
    calm = a_duel(course, ("plain", "fixed@2"))
    assert "waiting" not in [now.phase for now in calm.run()]
    assert not duel_report(calm)["disturbed"]


def test_two_duels_on_one_engine_take_turns(session):
    gate = threading.Lock()
    duels = [a_duel(Watch(session), repeats=2) for _ in range(2)]
    for duel in duels:
        duel._gate = gate
    threads = [threading.Thread(target=lambda duel=duel: list(duel.run())) for duel in duels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(duel_report(duel)["disturbed"] for duel in duels)
    assert all(len(entry.laps) == 2 for duel in duels for entry in duel.entries)


def test_sameness_is_claimed_of_whole_answers_only():
    whole = lap((1, 2, 3))
    assert sameness(lap((1, 2, 3)), whole).verdict == "same"
    assert sameness(lap((1, 2, 3), finish="cancelled"), whole).verdict == "so far"
    assert sameness(lap((1, 2), finish="cancelled"), whole) == sameness(whole, lap((1, 2), finish="cancelled"))
    short = sameness(lap((1, 2), finish="stop"), whole)
    assert (short.verdict, short.tokens, short.ours, short.theirs) == ("differs", 2, None, 3)
    other = sameness(lap((1, 9), finish="cancelled"), whole)
    assert (other.verdict, other.tokens, other.ours, other.theirs) == ("differs", 1, 9, 2)


def test_a_gap_is_a_difference_of_logits_and_says_when_it_is_only_a_bound():
    law = [
        Candidate(n, text, None, None, share, None) for n, text, share in ((0, "a", 0.6), (5, "b", 0.3), (7, "c", 0.1))
    ]
    known = gap_in(law, ours=5, theirs=0)
    assert (known.ours, known.theirs, known.at_least) == ("b", "a", False)
    assert known.gap == pytest.approx(math.log(2))
    bound = gap_in(law, ours=99, theirs=0)
    assert (bound.ours, bound.at_least) == ("", True)
    assert bound.gap == pytest.approx(math.log(6))
    assert gap_in(law, ours=None, theirs=0).gap is None
    assert gap_in((), ours=1, theirs=0).gap is None


def test_a_target_that_does_not_answer_leaves_the_gap_unknown(course):
    def refuse(_request):
        raise DSparkError("gone")

    course.refuse = refuse
    with pytest.raises(DSparkError, match="gone"):
        look_at(course, (1, 2), 0, 1)


def test_the_lap_that_is_shown_is_the_middle_one():
    laps = [lap((1, 2, 3), speed=speed, repeat=at) for at, speed in enumerate((30.0, 10.0, 20.0, 40.0))]
    assert median_lap(laps[:3]).repeat == 2
    assert median_lap(laps).repeat == 2
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert Spread.of([]) is None


def test_lanes_have_their_policys_own_bounds():
    fixed, weighed, doubtful = duel_lanes(("fixed@4", "prefix", "threshold@0.6"), "dspark")
    assert (fixed.schedule.l_min, fixed.schedule.l_max) == (1, 4)
    assert weighed.schedule.l_min == 0
    assert (doubtful.schedule.l_min, doubtful.schedule.threshold, doubtful.drafter) == (1, 0.6, "dspark")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("plain",), "1 lane is chosen"),
        (("plain", "fixed", "prefix", "banded", "delayed"), f"2 to {MAX_LANES}"),
        (("plain", " plain"), "chosen twice"),
        (("plain", "warp"), "no lane named 'warp'"),
    ],
)
def test_lanes_that_make_no_race_are_refused_by_name(names, words):
    with pytest.raises(ParameterError, match=words):
        duel_lanes(names, "dspark")


@pytest.mark.parametrize("repeats", [0, 6, 1.5, True, "3"])
def test_repeats_that_are_none_are_refused(course, repeats):
    with pytest.raises(ParameterError, match="repeats is"):
        Duel(course, [], repeats, threading.Lock())


def test_a_duel_loads_no_torch():
    check = "import sys, dspark_core.bench.duel_report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0
