"""A batch equals its requests one by one, in fp32, whatever they are and whoever comes, goes or changes beside them.

Policies that look at the company (prefix, delayed, banded by most loads) choose other lengths in it. A sampled text
then draws other numbers: its law is the same (test_law.py), its tokens need not be. So equality is claimed for greedy
decoding under every policy, and for sampling with each request's own seed where the lengths are the request's own.
"""

import random
from itertools import zip_longest

import pytest

from dspark_core.admission import Limits
from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.none import NoneDrafter
from dspark_core.engine import Engine
from dspark_core.events import DecodeRound, Finished
from dspark_core.loading import find_model, load_drafters
from dspark_core.params import GenerationRequest, SamplingParams
from tests.engine.mixed import JOINT_LENGTHS, OWN_LENGTHS, mixed_request, tiny_loop
from tests.engine.stress import Stress
from tests.toy import FixedLoad


@pytest.fixture(scope="module")
def loop():
    return tiny_loop()


def together(loop, requests, **limits):
    """The last event of each request, all submitted at once."""
    engine = Engine(loop, Limits(**limits))
    try:
        return [list(generation)[-1] for generation in [engine.submit(request) for request in requests]]
    finally:
        engine.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_of_mixed_requests_equals_each_alone_in_any_order_of_arrival(loop, seed):
    dice = random.Random(seed)
    requests = [mixed_request(loop, dice, longest_prompt=300) for _ in range(14)]
    alone = {request: loop.run(request)[-1] for request in requests}
    for limits in ({}, {"max_active": 5}):
        dice.shuffle(requests)
        for request, finished in zip(requests, together(loop, requests, **limits), strict=True):
            assert (finished.token_ids, finished.text) == (alone[request].token_ids, alone[request].text), request
            assert finished.finish_reason == alone[request].finish_reason
    drafted = {request.drafter for request in requests}
    assert len(drafted) >= 4
    assert {request.sampling.greedy for request in requests} == {True, False}


def test_under_every_policy_and_drafter_a_greedy_batch_is_plain_decoding(loop):
    requests = [
        GenerationRequest((5, 6, 7, 5, 6), SamplingParams(max_new_tokens=20), schedule, drafter)
        for schedule in (*OWN_LENGTHS, *JOINT_LENGTHS)
        for drafter in loop.drafters
        if drafter != "dflash" or schedule.policy == "fixed"
    ]
    plain = loop.run(GenerationRequest((5, 6, 7, 5, 6), SamplingParams(max_new_tokens=20), OWN_LENGTHS[0], "none"))[-1]
    assert {finished.token_ids for finished in together(loop, requests)} == {plain.token_ids}


@pytest.mark.parametrize("seed", range(2))
def test_whoever_joins_leaves_or_changes_at_random_survivors_write_what_they_write_alone(seed):
    stress = Stress(tiny_loop, Limits(max_active=6, max_waiting=3), seed=seed, longest_prompt=300, longest_answer=30)
    report = stress.run(actions=200)
    assert report.compared >= 5
    assert min(report.cancels, report.schedule_changes, report.drafter_changes) >= 1


@pytest.mark.slow
def test_on_the_real_model_a_mixed_batch_equals_each_alone(smollm2, smollm2_tokenizer):
    drafters = {"none": NoneDrafter(), **load_drafters(find_model("smollm2-135m"), "auto", smollm2)}
    loop = DecodeLoop(smollm2, smollm2_tokenizer, drafters, FixedLoad())
    prompts = ["Why do cats purr?", "List the first five prime numbers.", "你好。", "Write a for loop in C. " * 20]
    requests = []
    for number, (drafter, prompt) in enumerate(zip_longest(drafters, prompts, fillvalue=None)):
        ids = smollm2_tokenizer.encode_chat([{"role": "user", "content": prompt or prompts[0]}])
        for temperature in (0.0, 0.8):
            sampling = SamplingParams(temperature, top_p=0.95, seed=number, max_new_tokens=6 + 3 * (number % 3))
            schedule = OWN_LENGTHS[0 if drafter == "dflash" else number % len(OWN_LENGTHS)]
            requests.append(GenerationRequest(ids, sampling, schedule, drafter or "none"))
    ends = together(loop, requests[::-1])[::-1]
    accepted = 0
    for request, finished in zip(requests, ends, strict=True):
        events = loop.run(request)
        assert isinstance(events[-1], Finished)
        assert (finished.token_ids, finished.text) == (events[-1].token_ids, events[-1].text), request
        accepted += sum(event.num_accepted for event in events if isinstance(event, DecodeRound))
    assert accepted > 0, "no draft was ever accepted, so this proves little"
