"""Sampling parameters are checked where they enter, and each refusal names the value."""

import math

import pytest

from dspark_core.errors import DSparkError, ParameterError
from dspark_core.params import GenerationRequest, SamplingParams


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
    assert repr(value) in str(caught.value)
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


def test_empty_prompt_is_refused():
    with pytest.raises(ParameterError, match="empty"):
        GenerationRequest(())
