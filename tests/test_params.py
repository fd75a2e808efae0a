"""Sampling parameters are checked where they enter, and each refusal names the value."""

import math

import pytest

from dspark_core.admission import Limits
from dspark_core.errors import DSparkError, ParameterError, shown
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1},
        {"temperature": 1e-6},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": "1"},
        {"temperature": True},
        {"top_k": -1},
        {"top_k": 2.5},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_p": math.nan},
        {"seed": -1},
        {"seed": 2**63},
        {"seed": 1.5},
        {"max_new_tokens": 0},
        {"max_new_tokens": 10**9},
        {"stop": ("",)},
        {"stop": ["a"]},
        {"stop": ("x",) * 17},
        {"stop": (1,)},
        {"min_p": -0.1},
        {"min_p": 1.01},
        {"min_p": math.nan},
        {"min_p": True},
        {"repetition_penalty": 0},
        {"repetition_penalty": math.inf},
        {"repetition_penalty": 11},
        {"presence_penalty": 2.5},
        {"presence_penalty": "1"},
        {"frequency_penalty": -2.5},
        {"frequency_penalty": math.nan},
        {"logit_bias": {1: 2.0}},
        {"logit_bias": [(1, 2.0)]},
        {"logit_bias": ((1, 2.0, 3),)},
    ],
)
def test_bad_sampling_is_refused_with_the_value(values):
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**values)
    name, value = next(iter(values.items()))
    assert name in str(caught.value)
    assert shown(value) in str(caught.value)
    assert isinstance(caught.value, DSparkError)


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        (((-1, 2.0),), "token id -1"),
        (((True, 2.0),), "token id True"),
        (((1.5, 2.0),), "token id 1.5"),
        (((7, 101),), "token 7 101"),
        (((7, math.inf),), "token 7 inf"),
        (((7, math.nan),), "token 7 nan"),
        (((7, None),), "token 7 None"),
        (((7, 1.0), (8, 1.0), (7, 2.0)), "token 7 twice"),
    ],
)
def test_a_bias_that_cannot_be_honoured_is_refused_with_its_token(bias, message):
    with pytest.raises(ParameterError, match=f"logit_bias.*{message}"):
        SamplingParams(logit_bias=bias)


@pytest.mark.parametrize("temperature", [0, 0.0, 0.01, 1, 10])
def test_zero_alone_is_greedy(temperature):
    assert SamplingParams(temperature=temperature).greedy == (temperature == 0)


@pytest.mark.parametrize("number", [10**400, 10**5000], ids=["beyond any float", "too long to write"])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: SamplingParams(temperature=n),
        lambda n: SamplingParams(top_p=n),
        lambda n: SamplingParams(min_p=n),
        lambda n: SamplingParams(repetition_penalty=n),
        lambda n: SamplingParams(seed=n),
        lambda n: SamplingParams(max_new_tokens=n),
        lambda n: SamplingParams(top_k=-n),
        lambda n: SamplingParams(logit_bias=((1, n),)),
        lambda n: SamplingParams(logit_bias=((-n, 1.0),)),
        lambda n: SamplingParams(logit_bias=((n, 1.0), (n, 1.0))),
        lambda n: ScheduleParams(l_max=n),
        lambda n: ScheduleParams(threshold=n),
        lambda n: ScheduleParams(simulated_load=n),
        lambda n: ScheduleParams(policy=n),
        lambda n: ScheduleParams(back_off=n),
        lambda n: Limits(max_active=-n),
        lambda n: Limits(max_wait_s=-n),
    ],
)
def test_a_number_beyond_all_bounds_is_refused_like_any_other_in_few_words(make, number):
    with pytest.raises(ParameterError) as refusal:
        make(number)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("ids", ["hello", ("1",), (1.0,), (True,), (None,), ((1,),), [1, 2.5]])
def test_a_prompt_that_is_not_of_token_ids_is_refused(ids):
    with pytest.raises(ParameterError, match="whole number"):
        GenerationRequest(ids)


def test_a_prompt_given_as_a_list_cannot_change_under_the_engine():
    ids = [1, 2]
    request = GenerationRequest(ids)
    ids.append(3)
    assert request.prompt_ids == (1, 2)


def test_empty_prompt_is_refused():
    with pytest.raises(ParameterError, match="empty"):
        GenerationRequest(())
