"""A change of drafter while an answer runs: the new one knows the whole text, the law stays, nothing leaks."""

from collections import defaultdict
from dataclasses import replace
from itertools import cycle

import pytest
import torch

from dspark_core.decode_loop import PREFILL_CHUNK, DecodeLoop
from dspark_core.errors import ParameterError
from dspark_core.events import DecodeRound, DrafterChanged, Finished, Prefilled
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.engine.counting import CountingDrafter, ask, held, open_engine, wait_until
from tests.toy import FixedLoad, TableDrafter, ToyTarget, ToyTokenizer, every_branch, target_law, toy_drafters

PROMPT = (1, 2, 0)
ALL = ScheduleParams("fixed", 0, 2, 0.0)


def run_switching(loop, request, names, dice=None):
    """The events of a generation that takes the next of the drafters ``names`` after each of its rounds."""
    answer = loop.open(request, dice)
    events, later = [], iter(names)
    while answer.ending is None:
        if not answer.ready:
            events.append(loop.prefill_chunk(answer))
            continue
        events += loop.step([answer])
        if answer.ending is None:
            loop.steer(answer, replace(request, drafter=next(later, request.drafter)))
    return [*[event for event in events if event], answer.finish(answer.ending)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "names", [("none", "table"), ("table", "dspark"), ("ngram", "lm"), ("dspark", "none"), ("lm", "dflash")]
)
def test_the_law_is_the_targets_when_the_drafter_changes_after_the_first_round(names, temperature):
    target = ToyTarget()
    loop = DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad())
    sampling = SamplingParams(temperature=temperature, max_new_tokens=3)
    request = GenerationRequest(PROMPT, sampling, ALL, names[0])
    emitted = defaultdict(float)
    with torch.inference_mode():
        for tokens, weight in every_branch(
            lambda dice: run_switching(loop, request, names[1:] * 3, dice)[-1].token_ids
        ):
            emitted[tokens] += weight
    for tokens, probability in target_law(target, PROMPT, 3, sampling).items():
        assert emitted.get(tokens, 0.0) == pytest.approx(probability, abs=1e-6), tokens


@pytest.mark.parametrize("seed", range(5))
def test_a_new_drafter_has_observed_exactly_the_tokens_of_the_targets_cache(seed):
    target = ToyTarget(vocab_size=5)
    drafters = {name: TableDrafter(5, 4, name=name) for name in ("one", "two")}
    drafters["two"].tapped_layers = (1,)
    loop = DecodeLoop(target, ToyTokenizer(), drafters, FixedLoad())
    sampling = SamplingParams(temperature=1.0, seed=seed, max_new_tokens=40)
    request = GenerationRequest((1, 2, 3), sampling, ScheduleParams("fixed", 0, 4, 0), "one")
    answer = loop.open(request)
    while answer.ending is None:
        if answer.ready:
            loop.step([answer])
            if answer.ending is None:
                loop.steer(answer, replace(request, drafter="two" if answer.rounds % 4 == 2 else "one"))
        elif (event := loop.prefill_chunk(answer)) is not None:
            assert event.drafter == answer.drafter.name
            expected = [1, 2, 3, *answer.token_ids][:-1]
            assert answer.slot.tokens == answer.drafter_state.seen == expected
    assert {len(drafter.states) > 1 for drafter in drafters.values()} == {True}


def test_a_greedy_text_is_the_same_however_often_its_drafter_changes():
    target = ToyTarget()
    loop = DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad())
    request = GenerationRequest(PROMPT, SamplingParams(max_new_tokens=50), ALL, "dspark")
    names = list(toy_drafters(target)) * 2
    events = run_switching(loop, request, names)
    assert events[-1].token_ids == loop.run(replace(request, drafter="none"))[-1].token_ids
    changed = [event for event in events if isinstance(event, DrafterChanged)]
    assert len(changed) >= 10
    assert len([event for event in events if isinstance(event, Prefilled)]) == 1


@pytest.fixture
def engine():
    engine = open_engine(max_active=3)
    engine._loop.drafters["other"] = CountingDrafter(9, 3)
    yield engine
    engine.close()
    assert held(engine) == (0, 0)
    assert engine._loop.drafters["other"].num_held == 0


def test_a_running_answer_changes_its_drafter_and_the_stream_tells_when(engine):
    generation = engine.submit(ask(200, temperature=0.0))
    events = []
    for event in generation:
        if isinstance(event, DecodeRound) and event.index == 3:
            generation.update_drafter("other")
        events.append(event)
    kinds = [type(event) for event in events]
    at = kinds.index(DrafterChanged)
    assert (events[0].num_draft_tokens, events[at].num_draft_tokens) == (4, 3)
    assert {len(event.draft) for event in events[1 : at - 1]} == {4}
    assert max(len(event.draft) for event in events[at + 1 : -1]) == 3
    assert [event.index for event in events if isinstance(event, DecodeRound)] == list(range(events[-1].rounds))
    assert events[-1].token_ids == list(engine.submit(ask(200, temperature=0.0)))[-1].token_ids


def test_the_text_is_read_again_in_chunks_between_the_others_rounds(engine):
    target = engine._loop.target
    other, changing = engine.submit(ask(3000, name=1)), engine.submit(ask(3000, name=3, prompt_tokens=900))
    wait_until(lambda: changing._answer is not None and changing._answer.rounds > 3)
    before = len(target.passes)
    changing.update_drafter("none")
    while not isinstance(changing.next_event(30), DrafterChanged):
        pass
    chunks = [one for one in target.passes[before:] if one.get(3, 0) > 5]
    assert len(chunks) == 4
    assert all(len(one) == 1 and one[3] <= PREFILL_CHUNK for one in chunks)
    assert sum(1 in one for one in target.passes[before:]) >= 3
    for generation in (other, changing):
        generation.cancel()


def test_whoever_changes_its_drafter_over_and_over_holds_up_nobody_elses_prompt(engine):
    fickle = engine.submit(ask(3000, name=3, prompt_tokens=900))
    wait_until(lambda: fickle._answer is not None and fickle._answer.rounds > 0)
    steer, names = engine._loop.steer, cycle(["table", "other"])

    def steering(answer, request):  # it asks for another one each turn
        return steer(answer, replace(request, drafter=next(names)) if answer is fickle._answer else request)

    engine._loop.steer = steering
    assert list(engine.submit(ask(5, name=1, prompt_tokens=900)))[-1].finish_reason == "length"
    fickle.cancel()


def test_what_cannot_be_honoured_is_refused_and_changes_nothing(engine):
    unsure = TableDrafter(9, 4, name="unsure")
    unsure.has_confidence = False
    engine._loop.drafters["unsure"] = unsure
    with engine.submit(ask(3000, schedule=ScheduleParams("threshold"))) as generation:
        with pytest.raises(ParameterError, match="drafter named 'medusa'"):
            generation.update_drafter("medusa")
        with pytest.raises(ParameterError, match="no confidence head"):
            generation.update_drafter("unsure")
        assert generation.request.drafter == "table"
        generation.update_schedule(ScheduleParams("fixed", 0, 2, 0))
        generation.update_drafter("unsure")
        with pytest.raises(ParameterError, match="no confidence head"):
            generation.update_schedule(ScheduleParams("threshold"))


def test_a_drafter_set_while_waiting_is_the_one_that_begins(engine):
    running = [engine.submit(ask(3000)) for _ in range(3)]
    waits = engine.submit(ask(5))
    waits.update_drafter("none")
    running[0].cancel()
    events = list(waits)
    assert [event.drafter for event in events if isinstance(event, Prefilled)] == ["none"]
    assert not any(isinstance(event, DrafterChanged) for event in events)
    for generation in running:
        generation.cancel()


def test_where_the_new_drafter_has_no_room_the_answer_ends_with_the_reason(engine):
    def broken(_):
        raise MemoryError("no room for its state")

    engine._loop.drafters["other"].open = broken
    generation = engine.submit(ask(3000))
    while not isinstance(generation.next_event(30), DecodeRound):
        pass
    generation.update_drafter("other")
    *_, end = generation
    assert isinstance(end, Finished)
    assert (end.finish_reason, "no room for its state" in end.detail, bool(end.text)) == ("error", True, True)


OTHER = {"temperature": 0.6, "top_k": 2, "repetition_penalty": 1.3, "logit_bias": ((1, 0.5),)}


@pytest.mark.parametrize("drafter", ["none", "table", "dspark", "lm"])
@pytest.mark.parametrize("change", [OTHER, {"temperature": 0.0}], ids=["another law", "greedy"])
def test_after_a_change_of_sampling_the_text_follows_the_new_law(drafter, change):
    """Given what the first round committed, the rest has exactly the law of a request that began with that text."""
    target = ToyTarget()
    loop = DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad())
    first = SamplingParams(temperature=1.0, max_new_tokens=3)
    later = replace(first, **change)
    emitted, begun = defaultdict(lambda: defaultdict(float)), defaultdict(float)

    def run(dice):
        request = GenerationRequest(PROMPT, first, ALL, drafter)
        answer = loop.open(request, dice)
        assert loop.prefill_chunk(answer) is not None
        loop.step([answer])
        start = tuple(answer.token_ids)
        loop.steer(answer, replace(request, sampling=later))
        while answer.ending is None:
            loop.step([answer])
        return start, tuple(answer.token_ids)

    with torch.inference_mode():
        for (start, tokens), weight in every_branch(run):
            begun[start] += weight
            emitted[start][tokens[len(start) :]] += weight
    short = {
        start: weight for start, weight in begun.items() if len(start) < 3 and target.stop_token_ids.isdisjoint(start)
    }
    assert short
    for start, weight in short.items():
        for tokens, probability in target_law(target, PROMPT, 3, later, start).items():
            assert emitted[start].get(tokens[len(start) :], 0.0) / weight == pytest.approx(probability, abs=1e-6)


def test_a_running_answer_obeys_another_sampling_from_the_next_round_on(engine):
    greedy = list(engine.submit(ask(60, temperature=0.0)))[-1].token_ids
    with engine.submit(ask(60, temperature=1.0)) as generation:
        generation.update_sampling(replace(generation.request.sampling, temperature=0.0))
        assert generation.request.sampling.temperature == 0
        assert len(list(generation)[-1].token_ids) == 60
    waits = [engine.submit(ask(3000)) for _ in range(3)]
    late = engine.submit(ask(60, temperature=1.0))
    late.update_sampling(replace(late.request.sampling, temperature=0.0, max_new_tokens=50))
    late.update_sampling(replace(late.request.sampling, max_new_tokens=60))
    for generation in waits:
        generation.cancel()
    assert list(late)[-1].token_ids == greedy, "changed before it began, and its limit back again"


def test_a_token_limit_below_what_is_there_ends_the_answer_with_what_it_has(engine):
    with engine.submit(ask(3000)) as generation:
        for event in generation:
            if isinstance(event, DecodeRound) and event.index == 5:
                generation.update_sampling(replace(generation.request.sampling, max_new_tokens=2))
        assert (event.finish_reason, event.detail) == ("length", "token limit 2")
        assert len(event.token_ids) >= 6


@pytest.mark.parametrize("name", [[], {}, None, "x"])
def test_what_is_no_drafters_name_is_refused(engine, name):
    with engine.submit(ask(3000)) as generation, pytest.raises(ParameterError, match="There is no drafter named"):
        generation.update_drafter(name)


def test_sampling_that_cannot_change_is_refused_by_name_and_changes_nothing(engine):
    with engine.submit(ask(3000)) as generation:
        before = generation.request
        for change, words in (
            ({"seed": 12345}, "seed cannot change"),
            ({"stop": ("x",)}, "stop cannot change"),
            ({"max_new_tokens": 3001}, "memory was set aside for 3000"),
            ({"logit_bias": ((10**6, 1.0),)}, "not in this model's vocabulary"),
        ):
            with pytest.raises(ParameterError, match=words):
                generation.update_sampling(replace(before.sampling, **change))
        assert generation.request == before
