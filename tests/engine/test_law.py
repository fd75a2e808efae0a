"""The output's law is the target's: exact enumeration of every random branch, through the real decode loop."""

import math
from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.base import EMPTY_BLOCK
from dspark_core.events import Finished
from dspark_core.lab import appendix_a
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.penalties import adjusted
from dspark_core.scheduling import POLICIES, Plan
from dspark_core.scheduling.back_off import BackOff
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.evidence import BackOffRule
from dspark_core.scheduling.step_curve import StepCurve
from tests.toy import (
    FixedLoad,
    TableDrafter,
    TableState,
    ToyTarget,
    ToyTokenizer,
    every_branch,
    target_law,
    toy_drafters,
)

LENGTH = 3
PROMPT = (1, 1, 0)  # one token of three does not occur, one twice
SCHEDULES = {
    "fixed": ScheduleParams("fixed", 0, 2),
    "threshold": ScheduleParams("threshold", 0, 2, 0.5),
    "banded": ScheduleParams("banded", 0, 2, band_low=0.3, band_high=0.7),
    "simulated": ScheduleParams("banded", 0, 2, band_low=0.3, load_signal="simulated", simulated_load=0.4),
    "prefix": ScheduleParams("prefix", 0, 2),
    "delayed": ScheduleParams("delayed", 0, 2),
}
VARIANTS = {
    "fixed-1": ScheduleParams("fixed", 1, 1),
    "threshold-min1": ScheduleParams("threshold", 1, 2, 0.6),
    "threshold-all": ScheduleParams("threshold", 0, 2, 0.5, stop_early=False),
    "banded-all": ScheduleParams("banded", 0, 2, band_low=0.3, band_high=0.7, stop_early=False),
    "prefix-min1": ScheduleParams("prefix", 1, 2),
}
DRAFTERS = ["none", "table", "ngram", "dspark", "dflash", "dspark-part", "dspark-gated", "dspark-rnn", "dspark-conv"]
DRAFTERS += ["dspark-copy", "dspark-law"]
DRAFTERS += ["calibrated", "lm", "lm-part", "lm-padded", "lm-short", "lm-calibrated"]
FREE = {name: DraftingCurve.of([(1, 1, 1e-9)], source="by hand") for name in DRAFTERS}
CURVE = StepCurve.of([1, 2, 3], [1.0, 1.35, 1.6], source="by hand").with_drafting(FREE)  # two drafts pay at times only
CALIBRATED_CUT = ScheduleParams("threshold", 0, 2, 0.44)  # amid the calibrated confidences, above most raw ones
EXACT = 1e-9
BANNED = ((1, -math.inf), (2, 0.8))
OPTIONS = {
    "greedy": {"temperature": 0.0},
    "T=1": {"temperature": 1.0},
    "top_k=2": {"temperature": 1.0, "top_k": 2},
    "top_p=0.8": {"temperature": 1.3, "top_p": 0.8},
    "min_p=0.2": {"temperature": 1.0, "min_p": 0.2},
    "repetition": {"temperature": 1.0, "repetition_penalty": 1.8, "min_p": 0.2},
    "presence": {"temperature": 1.0, "presence_penalty": 1.1, "top_k": 2},
    "frequency": {"temperature": 0.9, "frequency_penalty": -0.9, "top_p": 0.9},
    "bias": {"temperature": 1.0, "logit_bias": BANNED},
    "greedy, adjusted": {"repetition_penalty": 1.3, "frequency_penalty": 0.7, "logit_bias": ((0, 0.5),)},
    "all": {
        "temperature": 0.8,
        "top_k": 2,
        "top_p": 0.95,
        "min_p": 0.05,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "logit_bias": ((0, 0.4), (1, -0.6)),
    },
}


def emitted_law(
    drafter: str, schedule: ScheduleParams, sampling: SamplingParams, **options
) -> dict[tuple[int, ...], float]:
    target = ToyTarget()
    options = {"step_curve": CURVE, "full_batch": 3} | options
    loop = DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad(), **options)
    request = GenerationRequest(PROMPT, sampling, schedule, drafter)

    def run(dice) -> tuple[int, ...]:
        finished = loop.run(request, dice)[-1]
        assert isinstance(finished, Finished)
        return finished.token_ids

    emitted: dict[tuple[int, ...], float] = defaultdict(float)
    with torch.inference_mode():
        for outcome, weight in every_branch(run):
            emitted[outcome] += weight
    return emitted


def distance(drafter: str, schedule: ScheduleParams, option: str, **options) -> float:
    """How far the law of the emitted texts is from plain sampling's, where it is farthest."""
    sampling = SamplingParams(**OPTIONS[option], max_new_tokens=LENGTH)
    emitted = emitted_law(drafter, schedule, sampling, **options)
    wanted = target_law(ToyTarget(), PROMPT, LENGTH, sampling)
    assert set(emitted) <= set(wanted)
    assert sum(emitted.values()) == pytest.approx(1, abs=EXACT)
    return max(abs(emitted.get(tokens, 0.0) - probability) for tokens, probability in wanted.items())


@pytest.mark.parametrize("option", [name for name in OPTIONS if name != "T=1"])  # "all" and others contain it
@pytest.mark.parametrize("policy", SCHEDULES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_emitted_law_equals_the_targets(drafter, policy, option):
    assert distance(drafter, SCHEDULES[policy], option) < EXACT


@pytest.mark.parametrize("option", [name for name, options in OPTIONS.items() if options.get("temperature")])
def test_with_every_option_the_enumeration_finds_the_biased_policy(option):
    curve = StepCurve.of([1, 2, 3], [1.0, 1.6, 1.7], source="by hand").with_drafting(FREE)
    assert distance("table", ScheduleParams("retrospective", 0, 2), option, step_curve=curve, lab=True) > 1e-3


@pytest.mark.parametrize("option", ["repetition", "presence", "frequency", "all"])
def test_the_enumeration_finds_penalties_that_forget_the_drafts_of_the_block(option, monkeypatch):
    def forgetful(logits, params, prompt_ids, answer_ids, drafted):
        return adjusted(logits, params, prompt_ids, answer_ids, drafted[:0])

    monkeypatch.setattr("dspark_core.decode_loop.adjusted", forgetful)
    assert distance("table", SCHEDULES["fixed"], option) > 1e-3


def test_every_policy_is_enumerated():
    assert {schedule.policy for schedule in SCHEDULES.values()} == set(POLICIES)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_bounds_and_drafting_beyond_the_cut_leave_the_law(drafter, variant):
    assert distance(drafter, VARIANTS[variant], "all") < EXACT


@pytest.mark.parametrize("option", ["T=1", "all"])
@pytest.mark.parametrize("drafter", ["calibrated", "lm-calibrated"])
@pytest.mark.parametrize("stop_early", [True, False], ids=["stop early", "draft all"])
def test_calibrated_confidences_that_decide_the_cut_leave_the_law(drafter, option, stop_early):
    assert distance(drafter, replace(CALIBRATED_CUT, stop_early=stop_early), option) < EXACT


def test_the_calibration_does_decide_the_cut():
    """Without this, the test above could be one of the plain drafter in disguise."""
    sampling = SamplingParams(temperature=1.0, max_new_tokens=LENGTH)

    def lengths(drafter: str) -> set[tuple[int, ...]]:
        target = ToyTarget()
        loop = DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad())
        request = GenerationRequest(PROMPT, sampling, CALIBRATED_CUT, drafter)
        with torch.inference_mode():
            return {
                outcome
                for outcome, _ in every_branch(
                    lambda dice: tuple(event.verify_len for event in loop.run(request, dice) if event.type == "round")
                )
            }

    calibrated = lengths("calibrated")
    assert calibrated != lengths("dspark")
    assert {length for run in calibrated for length in run} == {0, 1, 2}


PAIRS = {  # two answers in one batch, and the lengths that their first round has
    ("prefix", "prefix"): {(0, 2), (1, 1)},
    ("delayed", "delayed"): {(0, 2), (1, 1)},
    ("banded", "prefix"): {(1, 1)},
}
PAIR_PROMPTS, PAIR_LENGTHS = ((1, 0), (0, 1)), (2, 3)
PAIR_SECONDS = (1.0, 1.0, 1.05, 1.1, 1.5)  # room for two drafts in all
HINDSIGHT_SECONDS = (1.0, 1.0, 1.4, 1.65, 1.7)  # one draft does not pay, three may


def law_of_two(policies, seconds, *, lab: bool = False, rule: BackOffRule | None = None, stop_early: bool = True):
    """How far the joint law of two answers in one batch is from two that know nothing of each other; first lengths."""
    drafter = TableDrafter(2, 2)
    drafter.confidence = [[0.5, 0.6], [0.95, 0.1]]  # c_1 by the anchor, c_2 by x_1: a_2 beats the other's a_1, or not
    curve = StepCurve.of(range(1, 6), seconds, source="by hand").with_drafting(FREE)
    target, options = ToyTarget(vocab_size=2), {"step_curve": curve, "full_batch": 4, "lab": lab}
    samplings = [SamplingParams(temperature=1.0, max_new_tokens=length) for length in PAIR_LENGTHS]
    schedules = [ScheduleParams(policy, 0, 2, band_low=0.2, stop_early=stop_early) for policy in policies]
    lengths, emitted = set(), defaultdict(float)

    def run(dice) -> tuple[tuple[int, ...], ...]:
        back_off = BackOff(rule)  # anew: it remembers batches
        loop = DecodeLoop(target, ToyTokenizer(), {"table": drafter}, FixedLoad(), back_off=back_off, **options)
        answers = [
            loop.open(GenerationRequest(prompt, sampling, schedule, "table"), dice)
            for prompt, sampling, schedule in zip(PAIR_PROMPTS, samplings, schedules, strict=True)
        ]
        for answer in answers:
            assert loop.prefill_chunk(answer) is not None
        lengths.add(tuple(event.verify_len for event in loop.step(answers)))
        while running := [answer for answer in answers if answer.ending is None]:
            loop.step(running)
        return tuple(tuple(answer.token_ids) for answer in answers)

    with torch.inference_mode():
        for outcome, weight in every_branch(run):
            emitted[outcome] += weight
    one, two = map(target_law, [target] * 2, PAIR_PROMPTS, PAIR_LENGTHS, samplings)
    assert sum(emitted.values()) == pytest.approx(1, abs=1e-9)
    return max(abs(emitted.get((a, b), 0.0) - one[a] * two[b]) for a in one for b in two), lengths


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_two_answers_in_one_batch_keep_their_laws_and_stay_independent(pair):
    distance, lengths = law_of_two(pair, PAIR_SECONDS, stop_early=False)
    assert distance < 1e-6
    assert lengths == PAIRS[pair]


def test_two_answers_whose_drafting_stops_by_what_each_expects_of_the_other_keep_their_laws():
    """What x_2 is worth depends on x_1 here, so drafting stops before it, or not."""
    distance, lengths = law_of_two(("prefix", "prefix"), (1.0, 1.0, 1.05, 1.1, 1.2))
    assert distance < 1e-6
    assert lengths == {(1, 1), (1, 2)}


def test_the_enumeration_of_two_can_fail():
    distance, lengths = law_of_two(("retrospective", "retrospective"), HINDSIGHT_SECONDS, lab=True)
    assert distance > 1e-3
    assert lengths == {(0, 0), (1, 2)}


class Coin(ToyTarget):
    """Appendix A's target, whatever came before."""

    def __init__(self):
        super().__init__(vocab_size=2)
        self.table = torch.tensor(appendix_a.TARGET, dtype=self.dtype).log().expand(3, 2, 2)


@pytest.mark.parametrize("policy", appendix_a.SCHEDULES)
def test_appendix_a_in_the_engines_loop_has_the_law_that_the_lab_tells(policy):
    drafter = TableDrafter(2, 2)
    drafter.logits = torch.tensor(appendix_a.DRAFT, dtype=torch.float64).log().expand(2, 2, 2)
    drafter.confidence = [[appendix_a.FIRST_CONFIDENCE] * 2, list(appendix_a.SECOND_CONFIDENCE)]
    curve = appendix_a.CURVE.with_drafting(FREE)
    loop = DecodeLoop(Coin(), ToyTokenizer(), {"table": drafter}, FixedLoad(), step_curve=curve, lab=True)
    sampling = SamplingParams(temperature=1.0, max_new_tokens=3)
    request = GenerationRequest((0, 1), sampling, appendix_a.SCHEDULES[policy], "table")
    with torch.inference_mode():
        outcomes = list(every_branch(lambda dice: loop.run(request, dice)[-1].token_ids))
    told = appendix_a.exact_law(policy)
    assert sum(weight for ids, weight in outcomes if ids[0] == 0) == pytest.approx(told[0], abs=1e-9)


def test_the_enumeration_can_fail():
    """A policy that looks at the confidence after its own token bends the law, and this method shows it."""

    class Anticipating:
        name = "anticipating"
        needs_confidence = True
        needs_curve = False

        def plan(self, views, around):  # noqa: ARG002
            # Verifies x_1 only if c_2, which depends on x_1, is high: the fault the paper warns of.
            return [
                Plan(view.upper if view.confidences and view.confidences[-1] > 0.5 else 0, "biased") for view in views
            ]

        def goes_on(self, confidences, schedule, around):  # noqa: ARG002
            return True

    POLICIES["anticipating"] = Anticipating()
    try:
        assert distance("table", ScheduleParams("anticipating", 0, 2, 0.5), "T=1") > 1e-3
    finally:
        del POLICIES["anticipating"]


def test_the_enumeration_can_fail_on_drafting_that_stops_too_late(monkeypatch):
    """A drafter that asks about c_{k+1} and then takes x_k back bends the law, and this method shows it."""

    def draft_then_ask(state, anchor, count, sampling, dice, goes_on=None):
        block = draft(state, anchor, count, sampling, dice)
        known = block.confidences or ()
        if goes_on is None or all(goes_on(known[: k + 1]) for k in range(len(known))):
            return block
        return EMPTY_BLOCK

    draft = TableState.draft
    monkeypatch.setattr(TableState, "draft", draft_then_ask)
    assert distance("table", ScheduleParams("threshold", 1, 2, 0.5), "T=1") > 1e-3
