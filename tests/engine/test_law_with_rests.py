"""Requests that rest from drafts keep the target's law: enumeration with a back-off that switches all the time."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from dspark_core.decode_loop import DecodeLoop
from dspark_core.params import GenerationRequest, SamplingParams
from dspark_core.scheduling.back_off import BackOff
from dspark_core.scheduling.evidence import BackOffRule
from tests.engine.test_law import CURVE, EXACT, PAIRS, PROMPT, SCHEDULES, VARIANTS, law_of_two
from tests.toy import FixedLoad, ToyTarget, ToyTokenizer, every_branch, target_law, toy_drafters

RESTLESS = BackOffRule(window=1, batch_window=1, least=1, trials=1.0, doubt=0.0)  # judged by one round, tries soon
LENGTH = 4


@pytest.mark.parametrize("variant", ["fixed-1", "prefix-min1", "threshold-min1"])
@pytest.mark.parametrize("drafter", ["table", "dspark", "lm"])
def test_whether_a_round_drafts_may_depend_on_what_the_one_before_had_accepted(drafter, variant):
    target = ToyTarget()
    loop = DecodeLoop(
        target, ToyTokenizer(), toy_drafters(target), FixedLoad(), step_curve=CURVE, back_off=BackOff(RESTLESS)
    )
    sampling = SamplingParams(temperature=1.0, max_new_tokens=LENGTH)
    request = GenerationRequest(PROMPT, sampling, replace(VARIANTS[variant], back_off=True), drafter)
    seen, emitted = set(), defaultdict(float)

    def run(dice):
        *events, finished = loop.run(request, dice)
        rounds = [event for event in events if event.type == "round"]
        for event in rounds:
            assert not event.resting or (event.gain < 1 and not event.draft)
        seen.add(tuple(event.resting for event in rounds))
        return finished.token_ids

    with torch.inference_mode():
        for outcome, weight in every_branch(run):
            emitted[outcome] += weight
    for tokens, probability in target_law(target, PROMPT, LENGTH, sampling).items():
        assert emitted.get(tokens, 0.0) == pytest.approx(probability, abs=EXACT), tokens
    assert any(any(rests) for rests in seen), "some rest"
    assert any(len(rests) > 1 and not any(rests) for rests in seen), "others go on"


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_two_answers_that_rest_by_what_both_had_accepted_stay_independent(pair):
    distance, _ = law_of_two(pair, (1.0, 1.3, 1.6, 1.9, 2.2), rule=RESTLESS)
    assert distance < EXACT


def test_without_the_option_the_policies_that_need_no_profile_never_rest():
    target = ToyTarget()
    loop = DecodeLoop(
        target, ToyTokenizer(), toy_drafters(target), FixedLoad(), step_curve=CURVE, back_off=BackOff(RESTLESS)
    )
    for name in ("fixed", "threshold", "banded"):
        request = GenerationRequest(PROMPT, SamplingParams(max_new_tokens=30), SCHEDULES[name], "table")
        rounds = [event for event in loop.run(request) if event.type == "round"]
        assert not any(event.resting or event.gain is not None for event in rounds)
