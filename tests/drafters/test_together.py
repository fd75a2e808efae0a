"""Drafting for several requests at once: each gets what it gets alone, whatever the others are, and fails alone."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch

from dspark_core.checkpoint import LoadedDrafter
from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.base import DraftAsk, DraftBlock, Observation
from dspark_core.drafters.dspark import DSparkDrafter
from dspark_core.drafters.lm import LmDrafter
from dspark_core.drafters.ngram import NgramDrafter
from dspark_core.drafters.none import NoneDrafter
from dspark_core.errors import NumericsError
from dspark_core.modules.sequential import HEADS
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.sampling import SeededDice
from dspark_core.target.llama import LlamaTarget
from tests.conftest import TINY_CONFIG, make_tiny_state
from tests.modules.tiny import tiny_drafter
from tests.toy import FixedLoad, ToyTokenizer, toy_calibration

SAMPLINGS = [
    SamplingParams(),
    SamplingParams(temperature=1.0, seed=3),
    SamplingParams(temperature=0.7, top_k=9),
    SamplingParams(temperature=1.0, seed=8, max_new_tokens=9),
    SamplingParams(temperature=1.3, top_p=0.6),
    SamplingParams(temperature=0.8, min_p=0.02, logit_bias=((4, 3.0), (6, float("-inf")))),
]
VOCABULARY = tuple(range(0, 97, 2))


def part_of(target, head="vanilla", **options):
    """A drafter for the tiny target, in float32."""
    rank = 0 if head == "none" else 6
    model = tiny_drafter(
        hidden_size=target.hidden_size,
        num_target_layers=target.num_layers,
        vocab_size=target.vocab_size,
        markov_rank=rank,
        markov_head_type="vanilla" if head == "none" else head,
        confidence_head_with_markov=rank > 0,
    )
    return DSparkDrafter(LoadedDrafter(model.config, model, None, None), target, **{"candidates": 16} | options)


def small_lm():
    return LlamaTarget.from_state(TINY_CONFIG, make_tiny_state(TINY_CONFIG, 4), torch.float32, poison=True)


DRAFTERS = {
    **{head: partial(part_of, head=head) for head in (*HEADS, "none")},
    "dflash": lambda target: part_of(target).without_head(),
    "gathered": partial(part_of, candidates=1),  # so few candidates that W2's rows are gathered
    "all candidates": partial(part_of, candidates=97),
    "part": partial(part_of, draft_vocabulary=VOCABULARY),
    "calibrated": lambda target: part_of(target, calibration=toy_calibration(num_draft_tokens=5)),
    "lm": lambda target: LmDrafter(small_lm(), target, candidates=16),
    "lm part": lambda target: LmDrafter(small_lm(), target, draft_vocabulary=VOCABULARY),
    "lm calibrated": lambda target: LmDrafter(small_lm(), target, calibration=toy_calibration(num_draft_tokens=8)),
    "ngram": lambda _: NgramDrafter(),
    "plain": lambda _: NoneDrafter(),
}


class Asking:
    """States of one drafter over texts of several lengths, and what each asks: always the same."""

    def __init__(self, name, target):
        self.drafter = DRAFTERS[name](target)
        self.states = []
        for length in (1, 30, 0, 4, 11, 4, 2):
            state = self.drafter.open(60)
            text = tuple((7 * i + length) % 97 for i in range(length))
            if text:
                slot = target.open_slot(len(text))
                output = target.forward([slot], [text], tapped_layers=self.drafter.tapped_layers)[0]
                state.observe(text, output.features)
            self.states.append(state)

    def asks(self):
        gamma = self.drafter.num_draft_tokens
        counts = [min(count, gamma) for count in (5, 2, 5, 0, 1, 4, 5)]
        bars = [None, 0.02, 0.5, None, None, 0.1, 0.3]
        return [
            DraftAsk(state, 3 + i, counts[i], SAMPLINGS[i % len(SAMPLINGS)], SeededDice(i), above(bars[i]))
            for i, state in enumerate(self.states)
        ]


def above(bar):
    return None if bar is None else lambda confidences: confidences[-1] >= bar


def assert_same(ours, theirs):
    assert isinstance(ours, DraftBlock)
    assert isinstance(theirs, DraftBlock)
    assert ours.token_ids == theirs.token_ids
    for ours_are, theirs_are in (
        (ours.known_confidences, theirs.known_confidences),
        (ours.raw_confidences, theirs.raw_confidences),
        (ours.shown_probs, theirs.shown_probs),
    ):
        assert (ours_are is None) == (theirs_are is None)
        assert ours_are is None or ours_are == pytest.approx(theirs_are, rel=1e-4)
    for mine, other in zip(laws_of(ours), laws_of(theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def laws_of(block):
    """Each position's law, by token id."""
    for ids, probs in zip(block.candidate_ids, block.candidate_probs, strict=True):
        yield torch.zeros(97).scatter_(0, ids, probs.float())


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_request_drafts_in_a_batch_what_it_drafts_alone(name, tiny_target):
    asking = Asking(name, tiny_target)
    alone = [asking.drafter.draft_all([ask])[0] for ask in asking.asks()]
    for order in (range(7), reversed(range(7)), random.Random(name).sample(range(7), 7), (5, 1)):
        places = list(order)
        asks = asking.asks()
        together = asking.drafter.draft_all([asks[place] for place in places])
        for place, block in zip(places, together, strict=True):
            assert_same(block, alone[place])


@pytest.mark.parametrize("name", ["vanilla", "lm", "calibrated"])
def test_the_requests_of_that_test_do_end_at_different_lengths(name, tiny_target):
    """Otherwise none would ever leave the batch while others go on."""
    asking = Asking(name, tiny_target)
    blocks = asking.drafter.draft_all(asking.asks())
    assert len({len(block.token_ids) for block in blocks}) > 2
    assert any(block.stopped_at is not None for block in blocks)


@pytest.mark.parametrize("name", ["vanilla", "conv", "dflash", "lm", "ngram"])
@pytest.mark.parametrize("fault", ["released", "dice", "policy", "anchor"])
def test_one_that_fails_takes_nobody_with_it(name, fault, tiny_target):
    asking = Asking(name, tiny_target)
    alone = [asking.drafter.draft_all([ask])[0] for ask in asking.asks()]
    asks = asking.asks()
    broken = {
        "dice": {"dice": BrokenDice(), "sampling": SAMPLINGS[1]},
        "policy": {"goes_on": lambda _: 1 / 0},
        "anchor": {"anchor": None},
    }
    if fault == "released":
        asking.states[1].release()
        asking.states[1] = asks[1].state
    asks[1] = replace(asks[1], **broken.get(fault, {}))
    outcomes = asking.drafter.draft_all(asks)
    assert name == "ngram" or isinstance(outcomes[1], Exception)
    for place in (0, 2, 3, 4, 5, 6):
        assert_same(outcomes[place], alone[place])


@pytest.mark.parametrize("name", ["vanilla", "calibrated", "lm", "ngram", "plain"])
def test_what_several_are_told_together_is_what_each_is_told_alone(name, tiny_target):
    blocks = []
    for together in (True, False):
        asking = Asking(name, tiny_target)
        told = [told_of(asking, tiny_target, place) for place in range(7)]
        for group in [told] if together else [[one] for one in told]:
            assert asking.drafter.observe_all(group) == [None] * len(group)
        blocks.append(asking.drafter.draft_all(asking.asks()))
    for ours, theirs in zip(*blocks, strict=True):
        assert_same(ours, theirs)


def told_of(asking, target, place):
    text = tuple((5 * i + place) % 97 for i in range(1 + place % 3))
    output = target.forward([target.open_slot(len(text))], [text], tapped_layers=asking.drafter.tapped_layers)[0]
    return Observation(asking.states[place], text, output.features)


@pytest.mark.parametrize("fault", ["released", "no room"])
def test_one_that_cannot_be_told_takes_nobody_with_it(fault, tiny_target):
    blocks = []
    for broken in (True, False):
        asking = Asking("vanilla", tiny_target)
        told = [told_of(asking, tiny_target, place) for place in range(7)]
        if broken and fault == "released":
            asking.states[3].release()
        elif broken:
            told[3] = replace(told[3], token_ids=(1,) * 61, features=told[3].features[:1].expand(61, -1))
        failures = asking.drafter.observe_all(told)
        assert [failure is not None for failure in failures] == [broken and place == 3 for place in range(7)]
        blocks.append(asking.drafter.draft_all(asking.asks()))
    for place in (0, 1, 2, 4, 5, 6):
        assert_same(blocks[0][place], blocks[1][place])


class BrokenDice:
    def choose(self, probs):  # noqa: ARG002
        raise RuntimeError("fallen off the table")


@pytest.mark.parametrize("head", ["none", "vanilla"])
def test_features_that_are_no_numbers_are_one_requests_failure(head, tiny_target):
    asking = Asking(head, tiny_target)
    alone = [asking.drafter.draft_all([ask])[0] for ask in asking.asks()]
    width = len(asking.drafter.tapped_layers) * tiny_target.hidden_size
    asking.states[4].observe((9,), torch.full((1, width), float("nan")))
    outcomes = asking.drafter.draft_all(asking.asks())
    assert isinstance(outcomes[4], NumericsError)
    for place in (0, 1, 2, 3, 5, 6):
        assert_same(outcomes[place], alone[place])


def test_requests_that_agree_on_the_law_share_it_though_seeds_and_lengths_differ(tiny_target, monkeypatch):
    from dspark_core.drafters import drawing

    asking, calls, law = Asking("vanilla", tiny_target), [], drawing.law
    monkeypatch.setattr(drawing, "law", lambda logits, params: calls.append(len(logits)) or law(logits, params))
    asks = [
        replace(ask, count=1, goes_on=None, sampling=SAMPLINGS[1 + 2 * (i % 2)]) for i, ask in enumerate(asking.asks())
    ]
    asking.drafter.draft_all(asks)
    assert calls == [7]


def test_a_round_asks_each_drafter_once_for_all_its_requests(tiny_target):
    drafters = {"dspark": part_of(tiny_target), "lm": DRAFTERS["lm"](tiny_target), "ngram": NgramDrafter()}
    asked = {name: [] for name in drafters}
    for name, drafter in drafters.items():
        drafter.draft_all = watched(drafter.draft_all, asked[name])
    loop = DecodeLoop(tiny_target, ToyTokenizer(dict.fromkeys(range(97), b"x")), drafters, FixedLoad())
    answers = [
        opened(loop, name, seed) for seed, name in enumerate(["dspark", "lm", "dspark", "ngram", "lm", "dspark"])
    ]
    loop.step(answers)
    assert asked == {"dspark": [3], "lm": [2], "ngram": [1]}


def watched(draft_all, sizes):
    def watching(asks):
        sizes.append(len(asks))
        return draft_all(asks)

    return watching


def test_a_drafters_shared_failure_leaves_the_other_drafters_answers(tiny_target):
    drafters = {"dspark": part_of(tiny_target), "ngram": NgramDrafter()}

    def broken(_):
        raise RuntimeError("out of ink")

    drafters["dspark"].draft_all = broken
    loop = DecodeLoop(tiny_target, ToyTokenizer(dict.fromkeys(range(97), b"x")), drafters, FixedLoad())
    answers = [opened(loop, name, 0) for name in ("dspark", "ngram", "dspark")]
    events = loop.step(answers)
    assert [event is None for event in events] == [True, False, True]
    assert [str(answer.failure) for answer in answers] == ["out of ink", "None", "out of ink"]


def opened(loop, drafter, seed, **sampling):
    prompt = tuple((11 * i + seed) % 97 for i in range(1 + 9 * seed % 23))
    sampling = SamplingParams(**{"max_new_tokens": 30, "seed": seed} | sampling)
    answer = loop.open(GenerationRequest(prompt, sampling, ScheduleParams("threshold", 1, 8, 0.2), drafter))
    while loop.prefill_chunk(answer) is None:
        pass
    return answer


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_texts_of_a_batch_with_all_drafters_are_those_of_each_alone(temperature, tiny_target):
    drafters = {name: make(tiny_target) for name, make in DRAFTERS.items()}
    loop = DecodeLoop(tiny_target, ToyTokenizer(dict.fromkeys(range(97), b"x")), drafters, FixedLoad())
    names = [name for name in DRAFTERS for _ in range(2)]

    def texts(together):
        answers = [opened(loop, name, seed, temperature=temperature) for seed, name in enumerate(names)]
        groups = [answers] if together else [[answer] for answer in answers]
        for group in groups:
            while running := [answer for answer in group if answer.ending is None]:
                loop.step(running)
        assert not any(answer.failure for answer in answers)
        return [answer.token_ids for answer in answers]

    assert texts(together=True) == texts(together=False)
