"""What decided in a round, as plain values: the most likely tokens of every law at every drafted position.

It reads the laws that the round was drawn from and makes none anew, but for the base law, which nothing was drawn from.
Symbols: n drafts, ℓ verified drafts, K candidates a position, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from dspark_core.drafters.base import DraftBlock, DraftLogits
from dspark_core.events import Candidate, Inspection
from dspark_core.params import SamplingParams
from dspark_core.sampling import law
from dspark_core.scheduling import Plan
from dspark_core.text import TokenText
from dspark_core.verify import Verdict

TOP = 5  # tokens of each law that are told


@dataclass(frozen=True, slots=True)
class TargetLaws:
    """The target's laws of a round: the logits [ℓ+1, V] and the law [ℓ+1, V] that was made from them."""

    logits: torch.Tensor
    probs: torch.Tensor


class Inspector:
    """Looks at one request's round when it is over.

    Args:
        block: what was drafted, with the logits kept.
        laws: the target's.
        sampling: the request's.
        tokenizer: ids to text.
    """

    def __init__(self, block: DraftBlock, laws: TargetLaws, sampling: SamplingParams, tokenizer: TokenText) -> None:
        self._block, self._sampling, self._tokenizer = block, sampling, tokenizer
        shown = _at_temperature_1(laws.logits) if sampling.greedy else laws.probs
        self._target = [row.cpu() for row in shown]

    def inspection(self, plan: Plan, own: Verdict | None) -> Inspection:
        """The round's inspection; ``own`` is its verdict, where a token of the target's own joined the text."""
        bonus = () if own is None or own.kind == "correction" else self._bonus(plan.verify_len, own.next_id)
        return Inspection(
            candidates=tuple(self._position(k, plan.verify_len, own) for k in range(len(self._block.token_ids))),
            bonus=bonus,
            throughputs=plan.throughputs,
            stopped_at=self._block.stopped_at,
            temperature=self._sampling.temperature,
        )

    def _position(self, k: int, verify_len: int, own: Verdict | None) -> tuple[Candidate, ...]:
        ids = self._block.candidate_ids[k].cpu()
        draft, base = self._draft_laws(k)
        laws = _Laws(_Cut(ids, draft), None if base is None else _Cut(ids, base))
        named = [self._block.token_ids[k]]
        if k < verify_len:
            laws.target = self._target[k]
        if own is not None and own.residual is not None and k == own.num_accepted:
            laws.residual = (own.residual / own.residual.sum()).cpu()
            named.append(own.next_id)
        return laws.candidates(named, self._tokenizer)

    def _bonus(self, verify_len: int, next_id: int) -> tuple[Candidate, ...]:
        return _Laws(target=self._target[verify_len]).candidates([next_id], self._tokenizer)

    def _draft_laws(self, k: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The draft law [K] that is shown at position k + 1, and that without the sequential head."""
        drawn = self._block.candidate_probs[k].cpu()
        if not self._block.kept:
            return drawn, None
        kept = self._block.kept[k]
        if self._sampling.greedy:
            return _shown(kept), None if kept.base is None else _at_temperature_1(kept.base)
        return drawn, None if kept.base is None else law(kept.base[None], self._sampling)[0]


class _Cut:
    """A law [K] over some token ids [K]; no other token has any probability."""

    def __init__(self, ids: torch.Tensor, probs: torch.Tensor) -> None:
        self._ids, self._probs = ids, probs

    def top(self) -> list[int]:
        return [int(token_id) for token_id in self._ids[torch.tensor(_likeliest(self._probs))].tolist()]

    def of(self, wanted: torch.Tensor) -> list[float]:
        hits = self._ids[None, :] == wanted[:, None]
        return [float(p) for p in (hits * self._probs).sum(-1).tolist()]


@dataclass(slots=True)
class _Laws:
    """The laws at one position, as far as there are any."""

    draft: _Cut | None = None
    base: _Cut | None = None
    target: torch.Tensor | None = None
    residual: torch.Tensor | None = None

    def candidates(self, named: Sequence[int], tokenizer: TokenText) -> tuple[Candidate, ...]:
        """The ``named`` tokens, then the most likely of each law, each once."""
        ids = list(dict.fromkeys([*named, *self._tops()]))
        wanted = torch.tensor(ids)  # indexing by a list is slow
        columns = [
            [None] * len(ids) if values is None else values
            for values in (
                None if self.base is None else self.base.of(wanted),
                None if self.draft is None else self.draft.of(wanted),
                None if self.target is None else self.target[wanted].tolist(),
                None if self.residual is None else self.residual[wanted].tolist(),
            )
        ]
        rows = zip(ids, *columns, strict=True)
        return tuple(Candidate(token_id, tokenizer.token_text(token_id), *probs) for token_id, *probs in rows)

    def _tops(self) -> Iterator[int]:
        for cut in (self.draft, self.base):
            yield from () if cut is None else cut.top()
        for whole in (self.target, self.residual):
            yield from () if whole is None else _likeliest(whole)


def _likeliest(probs: torch.Tensor) -> list[int]:
    """Places of the `TOP` largest probabilities, those of none left out."""
    best = probs.topk(min(TOP, len(probs)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [int(place) for place, probability in pairs if probability > 0]


def _at_temperature_1(logits: torch.Tensor) -> torch.Tensor:
    wide = logits.float()
    return (wide - wide.logsumexp(-1, keepdim=True)).exp()


def _shown(kept: DraftLogits) -> torch.Tensor:
    """As `DraftBlock.shown_probs` has it under greedy decoding."""
    total = kept.logits.logsumexp(-1) if kept.total is None else kept.total
    return (kept.logits - total).exp().clamp(max=1)
