"""What the target says of a round's drafts: the laws of like requests in one go, then each request's own verdict.

One request by itself is a round of one. Symbols: ℓ verified drafts of a request, n rows of several requests, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from dspark_core.drafters.base import DraftBlock
from dspark_core.inspection import TargetLaws
from dspark_core.params import SamplingParams
from dspark_core.sampling import Dice, law, law_on_support, law_params, shown_probs
from dspark_core.verify import Verdict, verify

ROWS_TOGETHER = 32  # of V float32 numbers each: larger blocks are slower, as the system gives them anew each time


@dataclass(frozen=True, slots=True)
class Case:
    """One request's drafts before the target.

    Attributes:
        logits: [ℓ+1, V], bias and penalties in them.
        sampling: what makes them a law.
        block: the drafts, of which the first ℓ are verified.
        dice: the request's chance.
        inspect: whether the laws are to be kept.
    """

    logits: torch.Tensor
    sampling: SamplingParams
    block: DraftBlock
    dice: Dice
    inspect: bool

    @property
    def verified(self) -> tuple[int, ...]:
        """x_1 … x_ℓ."""
        return self.block.token_ids[: len(self.logits) - 1]


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a case: the verdict, p_t(x_k) of the ℓ verified drafts for the screen, the laws where kept."""

    verdict: Verdict
    target_probs_shown: list[float]
    laws: TargetLaws | None


def judge_all(cases: Sequence[Case]) -> list[Judged | Exception]:
    """Judge every case; one that fails takes nobody with it."""
    judged: dict[int, Judged | Exception] = {}
    for places in _together(cases):
        judged.update(zip(places, _judge_alike([cases[place] for place in places]), strict=True))
    return [judged[place] for place in range(len(cases))]


def _together(cases: Sequence[Case]) -> Iterator[list[int]]:
    """Places of cases whose rows make their law alike, about `ROWS_TOGETHER` rows at a time."""
    alike: dict[tuple[SamplingParams, bool], list[int]] = {}
    for place, case in enumerate(cases):
        alike.setdefault((law_params(case.sampling), case.inspect), []).append(place)
    for places in alike.values():
        part: list[int] = []
        rows = 0
        for place in places:
            if part and rows + len(cases[place].logits) > ROWS_TOGETHER:
                yield part
                part, rows = [], 0
            part.append(place)
            rows += len(cases[place].logits)
        yield part


def _judge_alike(cases: Sequence[Case]) -> list[Judged | Exception]:
    try:
        rows = _Rows(cases)
    except Exception as error:  # no dice has been thrown yet: each alone shows whose failure it is
        return [error] if len(cases) == 1 else [outcome for case in cases for outcome in _judge_alike([case])]
    judged: list[Judged | Exception] = []
    for place in range(len(cases)):
        try:
            judged.append(rows.judge(place))
        except Exception as error:  # this request's failure alone
            judged.append(error)
    return judged


class _Rows:
    """The rows of several cases with like laws, one below the other."""

    def __init__(self, cases: Sequence[Case]) -> None:
        """Make the law of all rows. Raises NumericsError as `law` does."""
        self._cases = cases
        self._sampling, self._inspect = cases[0].sampling, cases[0].inspect
        self._counts = [len(case.logits) for case in cases]
        self._logits = _widened([case.logits for case in cases])
        if self._inspect:
            self._probs, self._ids = law(self._logits, self._sampling), None
        else:
            self._probs, self._ids = law_on_support(self._logits, self._sampling)
        self._shown = iter(self._shown_probs())

    def judge(self, place: int) -> Judged:
        """The verdict of one case; each is to be asked for once, in their order."""
        case, first = self._cases[place], sum(self._counts[:place])
        rows = slice(first, first + self._counts[place])
        verify_len = self._counts[place] - 1
        shown = [next(self._shown) for _ in range(verify_len)]
        probs, ids = self._probs[rows], None if self._ids is None else self._ids[rows]
        verdict = verify(probs, case.block, verify_len, case.dice, ids)
        return Judged(verdict, shown, TargetLaws(self._logits[rows], probs) if self._inspect else None)

    def _shown_probs(self) -> list[float]:
        drafted = [token_id for case in self._cases for token_id in case.verified]
        if not drafted:
            return []
        last = torch.tensor(self._counts).cumsum(0) - 1
        at = torch.ones(len(self._logits), dtype=torch.bool).index_fill_(0, last, False)
        rows, ids = at.nonzero()[:, 0].to(self._logits.device), torch.tensor(drafted, device=self._logits.device)
        return shown_probs(self._logits, self._probs, rows, ids, self._sampling)


def _widened(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The rows one below the other, float32 or wider."""
    rows = sum(map(len, parts))
    dtype = torch.float64 if any(part.dtype == torch.float64 for part in parts) else torch.float32
    wide = torch.empty(rows, parts[0].shape[-1], dtype=dtype, device=parts[0].device)
    first = 0
    for part in parts:  # converts and puts into place in one go
        wide[first : first + len(part)] = part
        first += len(part)
    return wide
