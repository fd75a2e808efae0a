"""On the real model at temperature 1, thousands of sampled answers follow the target's own law: a chi-square test.

The law of the first two tokens is known exactly, from plain passes of the target. `DSPARK_TEST_SAMPLES=5000` is the
full size; by default fewer are drawn. A broken acceptance rule judges the same rounds as well and must be noticed.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest
import torch

from dspark_core.decode_loop import DecodeLoop
from dspark_core.lab.chi_square import LEAST_EXPECTED, against_law
from dspark_core.loading import find_model, load_drafters
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.sampling import SeededDice, law
from dspark_core.verify import verify
from tests.toy import FixedLoad

SAMPLES = int(os.environ.get("DSPARK_TEST_SAMPLES", "600"))
BATCH = 50  # answers side by side
ALPHA = 1e-4  # a right engine fails one time in so many seeds, and this seed is fixed
WARM = SamplingParams(temperature=1.0)
ENDED = -1  # in place of the second token of a text that ended with its first


def next_law(target, tokens) -> list[float]:
    slot = target.open_slot(len(tokens))
    try:
        logits = target.forward([slot], [tokens], tapped_layers=())[0].logits[-1:, : target.vocab_size]
        return law(logits.double(), WARM)[0].tolist()
    finally:
        slot.release()


class Judges:
    """The acceptance rule, which the loop goes on with; of first rounds also what a broken one would have emitted."""

    def __init__(self):
        self.first_round = False
        self.broken = Counter()

    def __call__(self, target_probs, block, verify_len, dice, target_ids=None):
        verdict = verify(target_probs, block, verify_len, dice, target_ids)
        if self.first_round:
            own = SeededDice(self.broken.total())
            kept, _ = own.accept(verdict.accept_probs[0])
            # The fault: a rejected draft is replaced by a draw from the target's law instead of the residual.
            self.broken[block.token_ids[0] if kept else own.choose(target_probs[0])] += 1
        return verdict


class Sampled:
    """The first two tokens of many answers to one prompt, through the decode loop."""

    def __init__(self, target, tokenizer, prompt, judges):
        self.pairs, self.accepted, self.prompt = Counter(), Counter(), prompt
        drafters = load_drafters(find_model("smollm2-135m"), "auto", target)
        self._judges = judges
        self._loop = DecodeLoop(target, tokenizer, drafters, FixedLoad())
        self._read = target.open_slot(len(prompt))
        taps = self._loop.drafters["dspark"].tapped_layers
        output = target.forward([self._read], [prompt[:-1]], tapped_layers=taps, want_logits=False)[0]
        self._features = output.features
        for first in range(0, SAMPLES, BATCH):
            self._answer(range(first, min(first + BATCH, SAMPLES)))
        self._read.release()

    def _answer(self, seeds):
        answers = [self._open(seed) for seed in seeds]
        self._judges.first_round = True
        while running := [answer for answer in answers if answer.ending is None and len(answer.token_ids) < 2]:
            for answer, event in zip(running, self._loop.step(running), strict=True):
                assert event is not None, answer.failure
                self.accepted[event.num_accepted] += 1
            self._judges.first_round = False
        for answer in answers:
            first, second = (*answer.token_ids, ENDED)[:2]
            self.pairs[first, second] += 1
            answer.release()

    def _open(self, seed):
        """An answer whose prompt was read once for all."""
        sampling, schedule = replace(WARM, seed=seed, max_new_tokens=3), ScheduleParams("threshold", 1, 2, 0.3)
        answer = self._loop.open(GenerationRequest(self.prompt, sampling, schedule, "dspark"))
        answer.slot.copy_from(self._read, len(self.prompt) - 1)
        answer.drafter_state.observe(self.prompt[:-1], self._features)
        assert self._loop.prefill_chunk(answer) is not None
        return answer


@pytest.fixture(scope="module")
def sampled(smollm2, smollm2_tokenizer):
    prompt = smollm2_tokenizer.encode_chat([{"role": "user", "content": "Tell me a story about the sea."}])
    judges = Judges()
    with pytest.MonkeyPatch.context() as patched, torch.inference_mode():
        patched.setattr("dspark_core.verification.verify", judges)
        return Sampled(smollm2, smollm2_tokenizer, prompt, judges)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_first_two_tokens_of_sampled_answers_follow_the_targets_law(sampled, smollm2):
    with torch.inference_mode():
        first_law = next_law(smollm2, sampled.prompt)
        expected = {None: 0.0}
        for first, p_first in enumerate(first_law):
            if p_first * SAMPLES < LEAST_EXPECTED:
                expected[None] += p_first * SAMPLES
            elif first in smollm2.stop_token_ids:
                expected[first, ENDED] = p_first * SAMPLES
            else:
                after = next_law(smollm2, (*sampled.prompt, first))
                expected |= {(first, second): p_first * p * SAMPLES for second, p in enumerate(after)}
    assert sum(count >= LEAST_EXPECTED for count in expected.values()) > 10, "too few cells to tell anything"
    assert {0, 1, 2} <= set(sampled.accepted), "acceptances of every length, or this shows little"
    assert against_law(sampled.pairs, expected).p_value > ALPHA


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_as_many_samples_find_an_acceptance_rule_that_draws_anew_from_the_targets_law(sampled, smollm2):
    """Both rules are compared by the first token alone, which is all that the broken one is asked for."""
    with torch.inference_mode():
        expected = {first: p * SAMPLES for first, p in enumerate(next_law(smollm2, sampled.prompt))}
    right = Counter()
    for (first, _), count in sampled.pairs.items():
        right[first] += count
    assert right.total() == sampled._judges.broken.total() == SAMPLES
    assert against_law(right, expected).p_value > ALPHA
    assert against_law(sampled._judges.broken, expected).p_value < ALPHA
