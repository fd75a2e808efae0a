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
    ],
)
def test_bad_sampling_is_refused_with_the_value(values):
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**values)
    name, value = next(iter(values.items()))
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert isinstance(caught.value, DSparkError)


@pytest.mark.parametrize("temperature", [0, 0.0, 0.01, 1, 10])
def test_zero_alone_is_greedy(temperature):
    assert SamplingParams(temperature=temperature).greedy == (temperature == 0)


def test_empty_prompt_is_refused():
    with pytest.raises(ParameterError, match="empty"):
        GenerationRequest(())
