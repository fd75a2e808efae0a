"""`delayed` looks two rounds back: the law of texts long enough for that to decide, by exact enumeration."""

from collections import defaultdict

import pytest
import torch

from dspark_core.decode_loop import DecodeLoop
from dspark_core.events import DecodeRound
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import StepCurve
from tests.toy import FixedLoad, TableDrafter, ToyTarget, ToyTokenizer, every_branch, target_law

PROMPT, LENGTH = (0, 0), 5  # from the third round on there is room for drafts
FREE = {"table": DraftingCurve.of([(1, 1, 1e-9)], source="by hand")}
CURVE = StepCurve.of([1, 2, 3], [1.0, 1.65, 1.75], source="by hand").with_drafting(FREE)
OPTIONS = {
    "T=1": {"temperature": 1.0},
    "all": {
        "temperature": 1.2,
        "top_p": 0.97,
        "min_p": 0.02,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": -0.3,
        "logit_bias": ((0, 0.4),),
    },
}


def law_and_lengths(option):
    """How far the law is from plain sampling's; of rounds from the third on, lengths by what was drafted today."""
    drafter = TableDrafter(2, 2)
    drafter.confidence = [[0.6, 0.9], [0.95, 0.1]]  # after 0, two drafts pay or none, by x_1
    target, sampling = ToyTarget(vocab_size=2), SamplingParams(**OPTIONS[option], max_new_tokens=LENGTH)
    loop = DecodeLoop(target, ToyTokenizer(), {"table": drafter}, FixedLoad(), step_curve=CURVE)
    request = GenerationRequest(PROMPT, sampling, ScheduleParams("delayed", 0, 2), "table")
    lengths, emitted = defaultdict(set), defaultdict(float)

    def run(dice):
        events = loop.run(request, dice)
        rounds = [event for event in events if isinstance(event, DecodeRound)]
        for event in rounds[2:]:
            lengths[tuple(token.confidence for token in event.draft)].add(event.verify_len)
        return events[-1].token_ids

    with torch.inference_mode():
        for outcome, weight in every_branch(run):
            emitted[outcome] += weight
    wanted = target_law(target, PROMPT, LENGTH, sampling)
    assert set(emitted) <= set(wanted)
    return max(abs(emitted.get(tokens, 0.0) - p) for tokens, p in wanted.items()), lengths


@pytest.mark.parametrize("option", OPTIONS)
def test_a_number_settled_two_rounds_before_leaves_the_law(option):
    assert law_and_lengths(option)[0] < 1e-9


def test_the_past_does_decide():
    """Without this, the test above could be one of a policy without a memory."""
    _, lengths = law_and_lengths("T=1")
    assert any(len(seen) > 1 for drafted, seen in lengths.items() if drafted)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_number_settled_by_todays_drafts_would_bend_it(option, monkeypatch):
    monkeypatch.setattr("dspark_core.scheduling.delayed._earlier", lambda view: view.survivals[: view.upper])
    assert law_and_lengths(option)[0] > 1e-3
