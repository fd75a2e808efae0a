"""Ends, limits, fates and counters of the decode loop, on the toy."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.none import NoneDrafter
from dspark_core.errors import ParameterError
from dspark_core.events import DecodeRound, Fate
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.text import TextStream
from tests.toy import FixedLoad, TableDrafter, ToyTarget, ToyTokenizer

FIXED = ScheduleParams("fixed", 0, 8, 0.0)


def make_loop(*, gamma=4, stop=frozenset(), max_context=64, pieces=None) -> DecodeLoop:
    target = ToyTarget(vocab_size=5, stop_token_ids=stop, max_context=max_context)
    drafters = {"none": NoneDrafter(), "table": TableDrafter(5, gamma)}
    return DecodeLoop(target, ToyTokenizer(pieces), drafters, FixedLoad())


def generate(loop, *, drafter="table", schedule=FIXED, prompt=(1, 2, 3), **sampling):
    request = GenerationRequest(prompt, SamplingParams(**sampling), schedule, drafter)
    events = loop.run(request)
    rounds = [event for event in events if isinstance(event, DecodeRound)]
    return rounds, events[-1]


def check_counters(rounds, finished):
    """Counters, ids and text of rounds and end agree; fates follow the verification."""
    assert tuple(token.id for r in rounds for token in r.committed) == finished.token_ids
    assert "".join(token.text for r in rounds for token in r.committed) + finished.text_delta == finished.text
    assert finished.rounds == len(rounds) == rounds[-1].index + 1
    assert finished.tau == pytest.approx(len(finished.token_ids) / len(rounds))
    for r in rounds:
        fates = [token.fate for token in r.draft]
        assert fates.count(Fate.ACCEPTED) == r.num_accepted
        assert len(r.committed) == r.num_accepted + (r.next is not None)
        assert fates[r.verify_len :] == [Fate.UNVERIFIED] * (len(fates) - r.verify_len)
        assert all((token.target_prob is None) == (token.fate is Fate.UNVERIFIED) for token in r.draft)
        if r.next is not None:
            assert r.next.id == r.committed[-1].id
            assert (r.next.kind == "bonus") == (Fate.REJECTED not in fates)


@pytest.mark.parametrize("seed", range(20))
def test_counters_and_fates_agree(seed):
    rounds, finished = generate(make_loop(), temperature=1.0, seed=seed, max_new_tokens=13)
    check_counters(rounds, finished)
    assert finished.finish_reason == "length"
    assert len(finished.token_ids) == 13


def test_a_bias_on_a_token_that_is_none_of_the_models_is_refused():
    with pytest.raises(ParameterError, match=r"logit_bias names the token 5, .*0 to 4"):
        generate(make_loop(), logit_bias=((1, 2.0), (5, 1.0)))


def test_a_bias_that_bans_every_token_is_refused_and_one_that_leaves_one_is_not():
    banned = tuple((token, -math.inf) for token in (0, 1, 2, 4))
    with pytest.raises(ParameterError, match="bans all 5 tokens"):
        generate(make_loop(), logit_bias=(*banned, (3, -math.inf)))
    for temperature in (0, 1):
        _, finished = generate(make_loop(), temperature=temperature, seed=1, logit_bias=banned, max_new_tokens=9)
        assert finished.token_ids == (3,) * 9


def test_all_fates_occur():
    seen = set()
    for seed in range(20):
        schedule = ScheduleParams("fixed", 0, 3, 0, stop_early=False)
        rounds, _ = generate(make_loop(), schedule=schedule, temperature=1.0, seed=seed, max_new_tokens=12)
        seen |= {token.fate for r in rounds for token in r.draft}
        seen |= {r.next.kind for r in rounds if r.next}
    assert seen == {*Fate, "correction", "bonus"}


@pytest.mark.parametrize("drafter", ["none", "table"])
@pytest.mark.parametrize("seed", range(10))
def test_stop_token_inside_a_block_ends_the_text_there(drafter, seed):
    loop = make_loop(stop=frozenset({4}))
    rounds, finished = generate(loop, drafter=drafter, temperature=1.0, seed=seed, max_new_tokens=60)
    check_counters(rounds, finished)
    assert finished.finish_reason == "stop"
    assert finished.token_ids.index(4) == len(finished.token_ids) - 1
    assert "e" not in finished.text


@pytest.mark.parametrize("seed", range(10))
def test_greedy_text_and_end_equal_plain_decoding(seed):
    for stop, limit in itertools.product((frozenset(), frozenset({4})), (1, 2, 3, 9)):
        prompt = (seed % 5, (seed * 3) % 5)
        ends = [
            generate(make_loop(stop=stop), drafter=d, prompt=prompt, max_new_tokens=limit)[1] for d in ("none", "table")
        ]
        assert ends[0].token_ids == ends[1].token_ids
        assert ends[0].finish_reason == ends[1].finish_reason
        assert ends[0].text == ends[1].text


def test_stop_string_is_cut_before_it_and_never_shown():
    rounds, plain = generate(make_loop(), temperature=1.0, seed=3, max_new_tokens=40)
    stop = plain.text[7:10]
    rounds, finished = generate(make_loop(), temperature=1.0, seed=3, max_new_tokens=40, stop=(stop,))
    check_counters(rounds, finished)
    assert finished.finish_reason == "stop"
    assert finished.text == plain.text[: plain.text.index(stop)]
    assert len(finished.token_ids) == plain.text.index(stop) + 3  # one letter a token, up to the stop's last


@pytest.mark.parametrize("max_context", [4, 5, 8, 11])
@pytest.mark.parametrize("drafter", ["none", "table"])
def test_context_end_is_a_clean_length_finish(max_context, drafter):
    loop = make_loop(max_context=max_context)
    rounds, finished = generate(loop, drafter=drafter, temperature=1.0, seed=1, max_new_tokens=100)
    check_counters(rounds, finished)
    assert finished.finish_reason == "length"
    assert len(finished.token_ids) == max_context - 3
    assert "context" in finished.detail


def test_split_characters_are_held_back_until_whole():
    fire, half = "火".encode(), 2
    pieces = {0: fire[:half], 1: fire[half:], 2: b"x", 3: b"y", 4: b"z"}
    stream = TextStream(ToyTokenizer(pieces).token_bytes)
    assert [stream.push(0), stream.push(1), stream.push(2), stream.push(0)] == ["", "火", "x", ""]
    assert stream.finish() == "\ufffd"
    assert stream.text == "火x\ufffd"


def test_stop_string_across_tokens_and_its_false_start():
    stream = TextStream(ToyTokenizer().token_bytes, ("bcd", "ca"))
    given = [stream.push(ord(letter) - 97) for letter in "abcebcd"]
    assert given == ["a", "", "", "bce", "", "", ""]
    assert stream.stopped_by == "bcd"
    assert stream.finish() == ""
    assert stream.text == "abce"


def test_prompt_of_one_token_needs_no_prefill():
    rounds, finished = generate(make_loop(), prompt=(2,), max_new_tokens=4)
    check_counters(rounds, finished)
    assert rounds[0].anchor.id == 2


@pytest.mark.parametrize("seed", range(5))
def test_target_cache_and_drafter_context_hold_the_same_tokens(seed):
    loop = make_loop()
    request = GenerationRequest(
        (1, 2, 3), SamplingParams(temperature=1.0, seed=seed, max_new_tokens=30), FIXED, "table"
    )
    answer = loop.open(request)
    while loop.prefill_chunk(answer) is None:
        pass
    while answer.ending is None:
        loop.step([answer])
        if answer.ending is None:
            expected = [1, 2, 3, *answer.token_ids][:-1]
            assert answer.slot.tokens == expected
            assert answer.drafter_state.seen == expected


def test_several_answers_in_one_pass_equal_each_alone():
    def requests():
        for i, drafter in enumerate(("none", "table", "table", "none", "table")):
            sampling = SamplingParams(temperature=0.7 * (i % 3), seed=i, max_new_tokens=5 + 3 * i)
            yield GenerationRequest((i % 5, 2, 1)[: 1 + i % 3], sampling, FIXED, drafter)

    alone = [make_loop().run(request)[-1].token_ids for request in requests()]
    loop = make_loop()
    answers = [loop.open(request) for request in requests()]
    for answer in answers:
        while loop.prefill_chunk(answer) is None:
            pass
    while running := [answer for answer in answers if answer.ending is None]:
        loop.step(running)
    assert [tuple(answer.token_ids) for answer in answers] == alone


@pytest.mark.parametrize(
    ("prompt", "drafter", "policy", "says"),
    [
        ((1, 99), "table", "fixed", "vocabulary"),
        ((1, -1), "table", "fixed", "vocabulary"),
        ((1,), "medusa", "fixed", "drafter named 'medusa'"),
        ((1,), "table", "psychic", "policy named 'psychic'"),
        ((1,) * 64, "table", "fixed", "context holds 64"),
    ],
)
def test_bad_requests_are_refused_by_name(prompt, drafter, policy, says):
    request = GenerationRequest(prompt, schedule=ScheduleParams(policy), drafter=drafter)
    with pytest.raises(ParameterError, match=says):
        make_loop().open(request)


def test_memory_is_given_back_when_a_round_fails():
    loop = make_loop()
    loop.target.forward = None
    with pytest.raises(TypeError):
        loop.run(GenerationRequest((1, 2), drafter="none"))
    assert all(slot.released for slot in loop.target.slots)


@pytest.mark.parametrize("schedule", [ScheduleParams("threshold", 2, 3, 1.0), ScheduleParams("fixed", 0, 3, 0)])
def test_lengths_obey_the_bounds_in_force(schedule):
    rounds, _ = generate(make_loop(), schedule=schedule, temperature=1.0, seed=2, max_new_tokens=40)
    for r in rounds[:-2]:
        assert r.verify_len == (2 if schedule.policy == "threshold" else 3)
        assert r.reason


CUTTING = ScheduleParams("threshold", 1, 3, 0.5)
DRAFT_ALL = replace(CUTTING, stop_early=False)


def test_drafting_stops_where_nothing_more_can_be_verified():
    early, _ = generate(make_loop(), schedule=CUTTING, temperature=1.0, seed=3, max_new_tokens=40)
    whole, _ = generate(make_loop(), schedule=DRAFT_ALL, temperature=1.0, seed=3, max_new_tokens=40)
    assert {len(r.draft) - r.verify_len for r in early} == {0}
    assert {len(r.draft) for r in whole[:-4]} == {4}
    assert len({len(r.draft) for r in early}) == 3
    assert {r.stop_early for r in early} == {True}
    assert {r.stop_early for r in whole} == {False}


@pytest.mark.parametrize("schedule", [CUTTING, replace(CUTTING, l_min=0), replace(CUTTING, l_min=2), FIXED])
def test_stopping_early_leaves_greedy_rounds_as_they_are_but_for_the_unverified_drafts(schedule):
    early, whole = (
        generate(make_loop(), schedule=replace(schedule, stop_early=stop), prompt=(1, 4, 2), max_new_tokens=30)[0]
        for stop in (True, False)
    )
    assert len(early) == len(whole)
    for a, b in zip(early, whole, strict=True):
        assert (a.verify_len, a.reason, a.committed, a.next) == (b.verify_len, b.reason, b.committed, b.next)
        assert a.draft == tuple(token for token in b.draft if token.fate is not Fate.UNVERIFIED)
    assert (schedule is not FIXED) == any(len(b.draft) > len(a.draft) for a, b in zip(early, whole, strict=True))


def test_a_changed_mind_about_stopping_binds_the_next_round():
    loop = make_loop()
    answer = loop.open(GenerationRequest((1, 2, 3), SamplingParams(max_new_tokens=30), CUTTING, "table"))
    while loop.prefill_chunk(answer) is None:
        pass
    rounds = []
    for schedule in (CUTTING, DRAFT_ALL, CUTTING):
        answer.schedule = schedule
        rounds += loop.step([answer])
    assert [r.stop_early for r in rounds] == [True, False, True]
    assert len(rounds[1].draft) == 4 > len(rounds[0].draft)


def test_seed_decides_the_text_and_is_reported():
    texts = {generate(make_loop(), temperature=1.0, seed=9, max_new_tokens=20)[1].text for _ in range(3)}
    assert len(texts) == 1
    request = GenerationRequest((1, 2), SamplingParams(temperature=1.0, max_new_tokens=20), drafter="table")
    first = make_loop().run(request)
    again = replace(request, sampling=replace(request.sampling, seed=first[0].seed))
    assert make_loop().run(again)[-1].token_ids == first[-1].token_ids


def test_inference_mode_is_not_needed():
    with torch.inference_mode():
        a = generate(make_loop(), temperature=1.0, seed=1, max_new_tokens=9)[1]
    assert a.token_ids == generate(make_loop(), temperature=1.0, seed=1, max_new_tokens=9)[1].token_ids
