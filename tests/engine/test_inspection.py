"""What a round tells of its laws: the ones that decided, for every drafter; nothing else changes by looking."""

from dataclasses import replace
from functools import cache

import pytest

from dspark_core.decode_loop import DecodeLoop
from dspark_core.errors import ParameterError
from dspark_core.event_json import from_line, to_line
from dspark_core.events import DecodeRound, Fate
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.sampling import law
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import StepCurve
from tests.toy import FixedLoad, ToyTarget, ToyTokenizer, toy_drafters

DRAFTERS = sorted(set(toy_drafters(ToyTarget())) - {"none", "lm-short"})  # lm-short soon reads no more
PROMPT = (1, 2, 0, 1, 2)
DRAFTING = {"dspark": DraftingCurve.of([(2, 1, 0.001)], source="toy")}
CURVE = StepCurve((1, 2, 3, 8), (0.010, 0.014, 0.018, 0.04), "toy", DRAFTING)


@cache
def rounds_of(drafter, *, inspect=True, policy="fixed", seed=3, stop_early=False, **sampling):
    target, curve = ToyTarget(), CURVE if policy == "prefix" else None
    loop = DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad(), step_curve=curve)
    schedule = ScheduleParams(policy, 0, 8, 0.3, stop_early=stop_early, back_off=False)
    sampling = SamplingParams(**{"temperature": 1.0, "seed": seed, "max_new_tokens": 40, **sampling})
    events = loop.run(GenerationRequest(PROMPT, sampling, schedule, drafter, inspect=inspect))
    return [event for event in events if isinstance(event, DecodeRound)]


def positions(rounds):
    """(drafted token, its candidates) of every drafted position."""
    pairs = [pair for r in rounds for pair in zip(r.draft, r.inspection.candidates, strict=True)]
    assert pairs, "nothing was drafted: this shows nothing"
    return pairs


def own(token, candidates):
    (row,) = (candidate for candidate in candidates if candidate.id == token.id)
    return row


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7, "top_k": 2}, {"presence_penalty": 1.5}], ids=str)
def test_the_shown_laws_give_the_acceptance_probability_that_decided(drafter, sampling):
    verified = 0
    for token, candidates in positions(rounds_of(drafter, **sampling)):
        row = own(token, candidates)
        assert row.draft == pytest.approx(token.draft_prob, rel=1e-6)
        if token.fate is Fate.UNVERIFIED:
            assert {candidate.target for candidate in candidates} == {None}
            continue
        verified += 1
        assert row.target == pytest.approx(token.target_prob, rel=1e-6)
        assert token.accept_prob == pytest.approx(min(1, row.target / row.draft), rel=1e-5)
    assert verified > 5


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_shown_residual_is_what_the_draft_law_had_too_little_of(drafter):
    seen = 0
    for r in rounds_of(drafter, max_new_tokens=60):
        for token, candidates in zip(r.draft, r.inspection.candidates, strict=True):
            if token.fate is not Fate.REJECTED:
                assert {candidate.residual for candidate in candidates} == {None}
                continue
            seen += 1
            # the toy has three tokens, so all of each law is shown
            lacking = [max(0.0, candidate.target - candidate.draft) for candidate in candidates]
            shares = [share / sum(lacking) for share in lacking]
            assert [candidate.residual for candidate in candidates] == pytest.approx(shares, abs=1e-5)
            assert own(r.next, candidates).residual > 0
    assert seen > 3


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.5}], ids=str)
def test_the_base_law_is_the_one_without_the_sequential_head(sampling):
    with_head = rounds_of("dspark", **sampling)
    for _, candidates in positions(with_head):
        assert sum(candidate.base for candidate in candidates) == pytest.approx(1, abs=1e-5)
        assert sum(candidate.draft for candidate in candidates) == pytest.approx(1, abs=1e-5)
    changed = [abs(c.base - c.draft) for _, candidates in positions(with_head) for c in candidates]
    assert max(changed) > 0.05
    # the first drafts of both stand after the same text: dflash draws from what is dspark's base law
    first, plain = (rounds_of(name, **sampling)[0].inspection.candidates[0] for name in ("dspark", "dflash"))
    assert {c.id: c.base for c in first} == pytest.approx({c.id: c.draft for c in plain}, rel=1e-6)
    assert {candidate.base for candidate in plain} == {None}


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_laws_are_shown_at_temperature_1_and_the_residual_is_the_targets_choice(drafter):
    for r in rounds_of(drafter, temperature=0.0):
        assert r.inspection.temperature == 0
        for token, candidates in zip(r.draft, r.inspection.candidates, strict=True):
            row = own(token, candidates)
            assert row.draft == pytest.approx(token.draft_prob, rel=1e-5)
            if token.fate is Fate.UNVERIFIED:
                continue
            assert row.target == pytest.approx(token.target_prob, rel=1e-5)
            best = max(candidates, key=lambda candidate: candidate.target)
            assert token.accept_prob == float(best.id == token.id)
            if token.fate is Fate.REJECTED:
                assert {c.id: c.residual for c in candidates if c.residual} == {r.next.id: 1.0}


def test_the_bonus_tokens_law_is_the_targets_after_all_drafts():
    target, text, seen = ToyTarget(), list(PROMPT), 0
    for r in rounds_of("dspark"):
        text += [token.id for token in r.committed]
        if r.next is None or r.next.kind == "correction":
            assert r.inspection.bonus == ()
            continue
        seen += 1
        probs = law(target.next_logits(text[:-1])[None], SamplingParams(temperature=1.0))[0]
        assert {c.id: c.target for c in r.inspection.bonus} == pytest.approx(dict(enumerate(probs.tolist())))
        assert r.inspection.bonus[0].id == r.next.id
    assert seen > 2


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_who_does_not_ask_gets_the_same_rounds_without_their_laws(drafter, temperature):
    seen, unseen = (rounds_of(drafter, inspect=inspect, temperature=temperature) for inspect in (True, False))
    plain = [replace(r, inspection=None, timings=None, load=None) for r in seen]
    assert plain == [replace(r, timings=None, load=None) for r in unseen]
    assert all(r.inspection is None for r in unseen)
    assert all(r.inspection is not None for r in seen)


def test_prefix_tells_the_throughputs_that_it_weighed():
    lengths = set()
    for r in rounds_of("dspark", policy="prefix", stop_early=False):
        weighed = r.inspection.throughputs
        if not r.draft:
            continue
        lengths.add(r.verify_len)
        best = weighed.index(max(weighed))
        assert best == r.verify_len
        assert len(weighed) - r.verify_len in (1, 2)  # the last one is the first that did not rise, if one was met
        tokens = 1 + sum(token.survival for token in r.draft[: r.verify_len])
        seconds = CURVE.seconds(1 + r.verify_len) + CURVE.drafting_s({"dspark": [len(r.draft)]})
        assert weighed[r.verify_len] == pytest.approx(tokens / seconds)
    assert len(lengths) > 1, "the length never varied: this shows nothing"


def test_where_drafting_stopped_is_told():
    rounds = rounds_of("dspark", policy="threshold", stop_early=True)
    stopped = [r.inspection.stopped_at for r in rounds]
    assert any(at is not None and at < 0.3 for at in stopped)
    assert all(at is None or at < 0.3 for at in stopped)


def test_an_inspected_round_survives_its_record_and_a_torn_one_is_refused():
    r = rounds_of("dspark")[0]
    assert from_line(to_line(r)) == r
    torn = replace(r, inspection=replace(r.inspection, candidates=()))
    with pytest.raises(ParameterError, match="inspection has 0 positions for 2 drafts"):
        from_line(to_line(torn))


def test_only_yes_and_no_are_answers_to_whether_to_inspect():
    with pytest.raises(ParameterError, match="inspect is 1"):
        GenerationRequest((1,), inspect=1)


def test_looking_keeps_no_logits_where_nobody_asked(monkeypatch):
    kept = []
    monkeypatch.setattr("dspark_core.drafters.drawing.Drawing.keep", lambda _, logits: kept.append(logits))
    rounds_of.__wrapped__("dspark", inspect=False)
    assert kept == []
    rounds_of.__wrapped__("dspark")
    assert kept
