"""Logits after bias and penalties: what the law owes to the request and to the text so far, before any temperature.

Symbols: n rows, V vocabulary, ℓ verified drafts. Sources: repetition penalty of CTRL (arXiv:1909.05858), presence and
frequency penalty of OpenAI's API; both apart from one another as transformers and vLLM have them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import torch

from dspark_core.params import SamplingParams


def adjusted(
    logits: torch.Tensor,
    params: SamplingParams,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    drafted: Sequence[int],
) -> torch.Tensor:
    """The logits with bias and penalties; ``logits`` itself where the request has neither.

    Row k is about the token after prompt, answer and x_1 … x_k, and its penalties count exactly those: where row k is
    used at all, they are the committed text. The answer's last token, the anchor, is part of ``answer_ids``.

    Args:
        logits: [ℓ+1, V], any float type; not changed.
        params: logit_bias, repetition_penalty, presence_penalty, frequency_penalty.
        prompt_ids: the whole prompt.
        answer_ids: the committed answer.
        drafted: x_1 … x_ℓ.

    Returns:
        [ℓ+1, V], float32 or wider.
    """
    if params.logit_bias:
        logits = biased(logits, params)
    if params.penalises:
        logits = _penalised(_widened(logits), params, prompt_ids, answer_ids, drafted)
    return logits


def biased(logits: torch.Tensor, params: SamplingParams, vocabulary: torch.Tensor | None = None) -> torch.Tensor:
    """The logits plus ``logit_bias``; ``logits`` itself where there is none.

    A row in which nothing is left would have no law. The target's is never such a row (`DecodeLoop.check`); a drafter
    that knows few tokens keeps it as it was, and has its drafts rejected.

    Args:
        logits: [n, V], or [n, K] over the K token ids of ``vocabulary``, in rising order.
        params: logit_bias.
        vocabulary: [K] token ids; None where column i is token i. Tokens that have no column are left out.
    """
    if not params.logit_bias:
        return logits
    columns, bias = _columns(params.logit_bias, logits.device)
    bias = bias.to(_widened(logits[:0]).dtype)
    known = columns < logits.shape[-1]
    if vocabulary is not None:
        places = torch.searchsorted(vocabulary, columns).clamp(max=len(vocabulary) - 1)
        columns, known = places, vocabulary[places] == columns
    moved = _widened(logits).index_add(-1, columns[known], bias[known].expand(len(logits), -1))
    nothing_left = (moved == float("-inf")).all(-1, keepdim=True)
    return torch.where(nothing_left, logits, moved)


@lru_cache(maxsize=64)  # asked for at each position of each draft, and there may be a bias for every token
def _columns(pairs: tuple[tuple[int, float], ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and their biases [n], float64."""
    ids, values = zip(*pairs, strict=True)
    return torch.tensor(ids, device=device), torch.tensor(values, dtype=torch.float64, device=device)


def _penalised(
    logits: torch.Tensor,
    params: SamplingParams,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    drafted: Sequence[int],
) -> torch.Tensor:
    """Only the columns of tokens that occur are touched: m of V."""
    in_answer = Counter(answer_ids)
    occurring = list({*prompt_ids, *in_answer, *drafted})
    column = {token_id: i for i, token_id in enumerate(occurring)}
    counts = torch.tensor([[in_answer[t] for t in occurring]], dtype=logits.dtype).repeat(len(logits), 1)
    before = in_answer.keys() | set(prompt_ids)
    seen = torch.tensor([[t in before for t in occurring]]).repeat(len(logits), 1)
    for k, token_id in enumerate(drafted, 1):  # x_k is part of what comes before row k and all later ones
        counts[k:, column[token_id]] += 1
        seen[k:, column[token_id]] = True
    counts, seen = counts.to(logits.device), seen.to(logits.device)
    at = torch.tensor(occurring, device=logits.device)
    values = logits[:, at]
    rate = params.repetition_penalty
    values = torch.where(seen, torch.where(values > 0, values / rate, values * rate), values)
    values = values - params.frequency_penalty * counts - params.presence_penalty * counts.clamp(max=1)
    return logits.index_copy(-1, at, values)


def _widened(logits: torch.Tensor) -> torch.Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
