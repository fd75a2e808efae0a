"""Logits → law → token. The only home of temperature, top-k, top-p and min-p, and of chance.

What the law owes to the text so far is in the logits already: see `dspark_core.penalties`.

Symbols: n rows, V vocabulary (or K candidates: the functions do not care).
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

import torch

from dspark_core.errors import NumericsError
from dspark_core.params import SamplingParams

_NUCLEUS_CANDIDATES = (64, 1024)  # sorting all 49,152 entries costs far more than taking the top ones first


class Dice(Protocol):
    """Every random decision of a request goes through here, so that tests can enumerate them all."""

    def choose(self, probs: torch.Tensor) -> int:
        """An index drawn with probability proportional to ``probs`` [K] (non-negative, not all zero)."""

    def accept(self, probability: float) -> tuple[bool, float | None]:
        """Whether an event of this probability happens, and the uniform number drawn (None if it was certain)."""


class SeededDice:
    """A request's own generator: the same seed gives the same decisions whatever else the engine does."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, probs: torch.Tensor) -> int:
        """Inverse CDF in float64: the first index whose cumulative mass exceeds the uniform share of the total."""
        cumulative = probs.detach().to("cpu", torch.float64).cumsum(0)
        total = cumulative[-1]
        if not 0 < total < torch.inf:
            raise NumericsError(f"A law of total mass {float(total)} cannot be drawn from; the weights are damaged.")
        point = self._random.random() * total
        index = int(torch.searchsorted(cumulative, point, right=True))
        # Rounding can lift the point to the total itself: the last index that carries mass is meant then.
        return min(index, int(torch.searchsorted(cumulative, total)))

    def accept(self, probability: float) -> tuple[bool, float | None]:
        """Compare one uniform number in [0, 1) with ``probability``; nothing is drawn for 0 and 1."""
        if math.isnan(probability):
            raise NumericsError("An acceptance probability is not a number; the drafter's law is damaged.")
        if probability <= 0.0:
            return False, None
        if probability >= 1.0:
            return True, None
        uniform = self._random.random()
        return uniform < probability, uniform


def law(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """The distribution that tokens are drawn from.

    Args:
        logits: [n, V], any float type; computed in float32, or float64 if that is what comes.
        params: temperature, top_k, top_p, min_p. Entries that tie with the last one kept are kept too.

    Returns:
        [n, V] probabilities, each row summing to 1; one-hot rows on the first most likely token when greedy.

    Raises:
        NumericsError: a row's largest logit is not a finite number, so there is no law to draw from.
    """
    probs, ids = law_on_support(logits, params)
    return probs if ids is None else probs.new_zeros(logits.shape).scatter_(-1, ids, probs)


def law_on_support(logits: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`law` [n, K] over the token ids [n, K] that have any probability, where these are known: when greedy, K = 1.

    Otherwise K = V, and None stands for the ids: column i is token i. Arguments and errors as of `law`.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    if params.greedy:
        largest, most_likely = wide.max(-1, keepdim=True)
        _check_finite(largest)
        return torch.ones_like(largest), most_likely
    _check_finite(wide.amax(-1))
    scaled = wide / params.temperature
    if 0 < params.top_k < scaled.shape[-1]:
        last_kept = scaled.topk(params.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < last_kept, float("-inf"))
    probs = scaled.softmax(-1)
    if params.top_p < 1:
        probs = _floored(probs, _nucleus_floor(probs, params.top_p))
    if params.min_p > 0:
        probs = _floored(probs, params.min_p * probs.amax(-1, keepdim=True))
    return probs, None


def _check_finite(largest: torch.Tensor) -> None:
    """Of each row's largest logit: a NaN anywhere in a row makes its maximum NaN."""
    if not bool(largest.isfinite().all()):
        raise NumericsError(
            "The logits hold values that are not finite numbers, so no token can be drawn from them. "
            "Use dtype float32 or bfloat16; if that does not help, the weights are damaged: fetch them again."
        )


def _floored(probs: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """The law without what is less likely than ``floor`` [n, 1]."""
    probs = probs.masked_fill(probs < floor, 0.0)
    return probs / probs.sum(-1, keepdim=True)


@lru_cache(maxsize=256)  # asked for in each round of each request, and a bias may name every token
def law_params(params: SamplingParams) -> SamplingParams:
    """What of the parameters makes the law: requests for which this is equal may share a call of `law`."""
    return replace(params, seed=None, max_new_tokens=1, stop=())


def _nucleus_floor(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Probability [n, 1] of the least likely token in the smallest most-likely set that reaches ``top_p``."""
    floor = probs.new_empty(len(probs), 1)
    unsure = torch.arange(len(probs), device=probs.device)
    for wanted in (*_NUCLEUS_CANDIDATES, probs.shape[-1]):
        count = min(wanted, probs.shape[-1])
        ordered = probs[unsure].topk(count, dim=-1).values
        cumulative = ordered.cumsum(-1)
        last_kept = (cumulative < top_p).sum(-1, keepdim=True).clamp(max=count - 1)
        floor[unsure] = ordered.gather(-1, last_kept)
        unsure = unsure[cumulative[:, -1] < top_p]
        if count == probs.shape[-1] or not len(unsure):
            break
    return floor


def shown_probs(
    logits: torch.Tensor, probs: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, params: SamplingParams
) -> list[float]:
    """Probability of the token ``ids[i]`` in row ``rows[i]`` for the screen, each [m].

    It is that of the law ``probs``, or at temperature 1 under greedy decoding. Either way of the ``logits`` [n, V] that
    the law was made from: with bias and penalties, where the request has any.
    """
    if params.greedy:  # log_softmax is one kernel, logsumexp five
        wanted = logits[rows].float().log_softmax(-1).gather(-1, ids[:, None])[:, 0].exp()
    else:
        wanted = probs[rows, ids]
    return [float(p) for p in wanted.tolist()]
