"""Verdicts of a whole round: each request's is the one that it gets alone, whoever is beside it."""

from dataclasses import replace

import pytest
import torch

from dspark_core import verification
from dspark_core.drafters.base import EMPTY_BLOCK, DraftBlock
from dspark_core.errors import NumericsError
from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice, law
from dspark_core.verification import Case, judge_all
from dspark_core.verify import verify

VOCAB = 50
LAWS = [SamplingParams(), SamplingParams(temperature=1.0), SamplingParams(temperature=0.6, top_p=0.8, top_k=9)]


def a_case(seed, sampling, drafts, *, inspect=False):
    """Drafts drawn from a law of their own, and logits that often agree with them; the dice are fresh."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(drafts + 1, VOCAB, generator=generator) * 2
    block = EMPTY_BLOCK
    if drafts:
        ids = torch.arange(VOCAB).expand(drafts, -1)
        probs = law(logits[:-1] + 0.5 * torch.randn(drafts, VOCAB, generator=generator), sampling)
        drawn = tuple(torch.multinomial(probs, 1, generator=generator)[:, 0].tolist())
        block = DraftBlock(drawn, None, ids, probs, (0.5,) * drafts)
    return Case(logits, sampling, block, SeededDice(seed), inspect)


def the_cases(**options):
    return [a_case(seed, LAWS[seed % 3], (4, 0, 2, 7)[seed % 4], **options) for seed in range(24)]


def told(judged):
    verdict = judged.verdict
    return replace(verdict, residual=None), judged.target_probs_shown


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_a_request_gets_the_verdict_that_it_gets_alone_whoever_is_beside_it(monkeypatch, rows):
    alone = [judge_all([case])[0] for case in the_cases()]
    monkeypatch.setattr(verification, "ROWS_TOGETHER", rows)
    together = judge_all(the_cases())
    assert {judged.verdict.kind for judged in together} == {"correction", "bonus"}
    for ours, theirs in zip(together, alone, strict=True):
        assert told(ours) == (told(theirs)[0], pytest.approx(told(theirs)[1]))


def test_a_verdict_is_that_of_the_whole_law_and_looking_at_the_laws_changes_none():
    plain, inspected = judge_all(the_cases()), judge_all(the_cases(inspect=True))
    for case, ours, looked in zip(the_cases(), plain, inspected, strict=True):
        probs = law(case.logits, case.sampling)
        expected = verify(probs, case.block, len(case.verified), case.dice)
        assert replace(ours.verdict, residual=None) == replace(expected, residual=None)
        assert told(looked) == told(ours)
        assert ours.laws is None
        assert torch.equal(looked.laws.probs, probs)
        assert torch.equal(looked.laws.logits, case.logits)
        if expected.residual is not None:
            assert torch.equal(looked.verdict.residual, expected.residual)


@pytest.mark.parametrize("sampling", LAWS)
def test_logits_that_are_no_numbers_fail_their_own_request_alone(sampling):
    cases = [a_case(seed, sampling, 2) for seed in range(3)]
    cases[1].logits[0, 5] = float("nan")
    first, broken, last = judge_all(cases)
    assert isinstance(broken, NumericsError)
    for seed, judged in ((0, first), (2, last)):
        assert told(judged) == told(judge_all([a_case(seed, sampling, 2)])[0])


def test_dice_that_fail_fail_their_own_request_alone():
    cases = [a_case(seed, LAWS[1], 2) for seed in range(3)]

    class Lost(SeededDice):
        def choose(self, probs):  # noqa: ARG002 - as the dice that it stands for
            raise RuntimeError("no dice")

    judged = judge_all([cases[0], replace(cases[1], dice=Lost(1)), cases[2]])
    assert [isinstance(outcome, Exception) for outcome in judged] == [False, True, False]
    assert told(judged[2]) == told(judge_all([a_case(2, LAWS[1], 2)])[0])
