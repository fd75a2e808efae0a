"""The law of a token in plain Python, from the definition in `SamplingParams`: what every other way must equal."""

import math
from collections.abc import Sequence

from dspark_core.params import SamplingParams


def logits_by_hand(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int], answer: Sequence[int]
) -> list[float]:
    """Logits of the token after prompt and answer, with bias and penalties: steps 1 to 3."""
    bias = dict(params.logit_bias)
    adjusted = []
    for token, logit in enumerate(logits):
        value = logit + bias.get(token, 0.0)
        if token in prompt or token in answer:
            value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        times = list(answer).count(token)
        adjusted.append(value - params.frequency_penalty * times - params.presence_penalty * (times > 0))
    return adjusted


def law_by_hand(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int] = (), answer: Sequence[int] = ()
) -> list[float]:
    """Law of the token after prompt and answer; no two logits may tie."""
    logits = logits_by_hand(logits, params, prompt, answer)
    order = sorted(range(len(logits)), key=lambda i: -logits[i])
    if params.greedy:
        return [1.0 if i == order[0] else 0.0 for i in range(len(logits))]
    kept = order[: params.top_k] if params.top_k else order
    weights = {i: math.exp((logits[i] - logits[order[0]]) / params.temperature) for i in kept}
    total = sum(weights.values())
    nucleus, mass = [], 0.0
    for i in kept:
        nucleus.append(i)
        mass += weights[i] / total
        if mass >= params.top_p:
            break
    nucleus = [i for i in nucleus if weights[i] >= params.min_p]  # the most likely one has weight 1
    total = sum(weights[i] for i in nucleus)
    return [weights[i] / total if i in nucleus else 0.0 for i in range(len(logits))]
