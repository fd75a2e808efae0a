"""Requests of every kind side by side, and the loops that answer them: what a batch holds in tests of equality."""

import random

import torch

from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.dspark import DSparkDrafter
from dspark_core.drafters.lm import LmDrafter
from dspark_core.drafters.ngram import NgramDrafter
from dspark_core.drafters.none import NoneDrafter
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import StepCurve
from dspark_core.target.llama import LlamaTarget
from tests.conftest import TINY_CONFIG, make_tiny_state
from tests.toy import FixedLoad, ToyTokenizer, toy_draft_model

DRAFTING = DraftingCurve.of([(3, 1, 0.05), (3, 8, 0.15)], source="by hand")
CURVE = StepCurve.of([1, 8, 64, 512], [1.0, 1.2, 2.5, 12.0], source="by hand").with_drafting(
    dict.fromkeys(("ngram", "lm", "dspark", "dflash"), DRAFTING)
)
CONTEXT = 1200

# Lengths that depend on the own confidences alone: a sampled answer draws the same numbers in any company.
OWN_LENGTHS = (
    ScheduleParams("fixed", 0, 3, 0.0),
    ScheduleParams("fixed", 1, 1, 0.0),
    ScheduleParams("threshold", 0, 3, 0.3),
    ScheduleParams("threshold", 1, 3, 0.6, stop_early=False),
    ScheduleParams("banded", 0, 3, load_signal="simulated", simulated_load=0.4),
)
# Lengths that depend on the company: the law stays, the draws do not.
JOINT_LENGTHS = (
    ScheduleParams("prefix", 0, 3),
    ScheduleParams("prefix", 1, 3),
    ScheduleParams("delayed", 0, 3),
    ScheduleParams("banded", 0, 3, load_signal="occupancy"),
    ScheduleParams("banded", 0, 3, load_signal="engine"),
)


class TextTokenizer(ToyTokenizer):
    """Token i is two letters of its own, whatever the vocabulary's size."""

    def token_bytes(self, token_id):
        return bytes([97 + token_id // 26, 97 + token_id % 26])


def tiny_llama(seed=0, layers=4):
    """A random Llama of 97 tokens in float32; its unused cache memory holds NaN, so that a stray read shows."""
    config = TINY_CONFIG | {"max_position_embeddings": CONTEXT, "num_hidden_layers": layers}
    return LlamaTarget.from_state(config, make_tiny_state(config, seed), torch.float32, poison=True)


def tiny_loop():
    """A loop over the tiny Llama with every kind of drafter; the second Llama shares its weights' beginning."""
    target = tiny_llama()
    model = toy_draft_model(hidden_size=target.hidden_size, vocab_size=target.vocab_size, num_draft_tokens=3)
    dspark = DSparkDrafter(model, target)
    drafters = {
        "none": NoneDrafter(),
        "ngram": NgramDrafter(num_draft_tokens=3),
        "lm": LmDrafter(tiny_llama(layers=3), target, num_draft_tokens=3),
        "dspark": dspark,
        "dflash": dspark.without_head(),
    }
    return DecodeLoop(target, TextTokenizer(), drafters, FixedLoad(), step_curve=CURVE)


def schedules_for(loop, drafter, *, greedy):
    """Those that leave the text as it is alone: under greedy decoding all that the drafter can serve."""
    among = (*OWN_LENGTHS, *JOINT_LENGTHS) if greedy else OWN_LENGTHS
    source = loop.drafters[drafter]
    confident = source.has_confidence or source.num_draft_tokens == 0
    return among if confident else tuple(schedule for schedule in among if schedule.policy == "fixed")


def mixed_request(loop, dice: random.Random, *, longest_prompt=40, longest_answer=40):
    """A request of any kind; its text must not depend on what runs beside it."""
    greedy = dice.random() < 0.5
    drafter = dice.choice(list(loop.drafters))
    schedule = dice.choice(schedules_for(loop, drafter, greedy=greedy))
    sampling = SamplingParams(
        temperature=0.0 if greedy else dice.choice([0.4, 0.8, 1.0]),
        top_k=dice.choice([0, 5]),
        top_p=dice.choice([1.0, 0.9]),
        min_p=dice.choice([0.0, 0.0, 0.05]),
        repetition_penalty=dice.choice([1.0, 1.0, 1.2]),
        presence_penalty=dice.choice([0.0, 0.0, 0.5]),
        logit_bias=dice.choice([(), ((7, 1.5), (9, -2.0))]),
        seed=dice.randrange(2**31),
        max_new_tokens=dice.randint(1, longest_answer),
    )
    period = [dice.randrange(3, loop.target.vocab_size) for _ in range(dice.randint(1, 9))]
    length = dice.randint(1, longest_prompt)
    return GenerationRequest(tuple((period * length)[:length]), sampling, schedule, drafter)
