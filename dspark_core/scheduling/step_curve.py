"""SPS(B): how many engine steps a second fit when the target's pass has B tokens, from measured probes.

Source: DSpark, Algorithm 1. Plain numbers; `dspark_core/profiling` measures them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dspark_core.errors import ParameterError
from dspark_core.scheduling.step_table import StepTable

if TYPE_CHECKING:
    from dspark_core.scheduling.drafting_curve import DraftingCurve

LEAST_S, LARGEST_S = 1e-9, 1e6  # of one step: beyond, a clock was wrong


@dataclass(frozen=True, slots=True)
class StepCurve:
    """Seconds of one step by the tokens B in the pass, never falling in B.

    A pass over more tokens cannot be cheaper, so a probe that says so is noise, or a kernel's step that other mixes of
    the same B do not share. Such neighbours are pooled into their mean (isotonic regression by pool-adjacent-violators,
    the nearest rising curve in least squares). A running maximum would let one slow outlier raise everything after it.

    Attributes:
        tokens: B of the probes, rising.
        measured_s: seconds of each probe, as measured.
        source: where the numbers come from, for the screen.
        drafting: by the drafter's name, what drafting costs before the pass; the curve's own seconds leave it out.
        table: steps by their requests too; None where that was not measured, and `among` changes nothing.
        smoothed_s: the seconds that the curve goes through, at the same B.
    """

    tokens: tuple[int, ...]
    measured_s: tuple[float, ...]
    source: str
    drafting: Mapping[str, DraftingCurve] = field(default_factory=dict)
    table: StepTable | None = None
    smoothed_s: tuple[float, ...] = field(init=False, repr=False)
    _known: dict[int, float] = field(init=False, repr=False, compare=False, default_factory=dict)
    _among: dict[int, StepCurve] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.tokens, self.measured_s)
        object.__setattr__(self, "smoothed_s", _isotonic(self.measured_s))

    @classmethod
    def of(cls, tokens: Sequence[int], seconds: Sequence[float], *, source: str) -> StepCurve:
        """The curve through probes: ``seconds[i]`` for a pass of ``tokens[i]``.

        Raises:
            ParameterError: fewer than two probes, not as many seconds as tokens, tokens that are not whole, positive
                and rising, seconds that are not finite and positive.
        """
        return cls(tuple(tokens), tuple(seconds), source)

    def seconds(self, tokens: int) -> float:
        """Seconds of a step with B = ``tokens``.

        Exact at the probes and linear between them; below the first, the first; beyond the last, on with its slope.
        """
        known = self._known.get(tokens)  # a plan asks hundreds of times a round, for the same few hundred B
        if known is None:
            known = self._known[tokens] = self._interpolated(tokens)
        return known

    def _interpolated(self, tokens: int) -> float:
        at = bisect_left(self.tokens, tokens)
        if at == len(self.tokens):
            return self.smoothed_s[-1] + (tokens - self.tokens[-1]) * self._last_slope
        if at == 0 or tokens == self.tokens[at]:
            return self.smoothed_s[at]
        low, high = self.smoothed_s[at - 1], self.smoothed_s[at]
        share = (tokens - self.tokens[at - 1]) / (self.tokens[at] - self.tokens[at - 1])
        return min(high, low + share * (high - low))  # rounding must not lift it above the next probe

    def per_second(self, tokens: int) -> float:
        """SPS(B): steps a second with B = ``tokens``."""
        return 1 / self.seconds(tokens)

    def with_drafting(self, drafting: Mapping[str, DraftingCurve]) -> StepCurve:
        """The same passes with the cost of these drafters."""
        return replace(self, drafting=drafting)

    def with_table(self, table: StepTable | None) -> StepCurve:
        """The same curve, which knows steps by their requests too."""
        return replace(self, table=table)

    def among(self, requests: int) -> StepCurve:
        """T(B) for steps of so many requests, as if they shared B evenly."""
        if self.table is None:
            return self
        known = self._among.get(requests)
        if known is None:
            tokens = tuple(requests * share for share in self.table.shares)
            seconds = tuple(min(LARGEST_S, count) for count in self.table.seconds(requests))  # far beyond the last row
            known = replace(self, tokens=tokens, measured_s=seconds, table=None)
            self._among[requests] = known
        return known

    def drafting_s(self, wanted: Mapping[str, Sequence[float]]) -> float:
        """Seconds in which a round drafts: of each drafter's name, the drafts that each of its requests asks for.

        A drafter that was not measured counts nothing: only policies that do not weigh costs may use it.
        """
        return sum(
            self.drafting_of(name, len(counts), sum(counts) / len(counts)) for name, counts in wanted.items() if counts
        )

    def drafting_of(self, name: str, requests: int, drafts: float) -> float:
        """Seconds in which so many requests draft so many tokens each with one drafter; 0 where it was not measured."""
        return self.drafting[name].seconds(requests, drafts) if name in self.drafting else 0.0

    def one_more_draft_s(self, name: str, requests: int) -> float:
        """Seconds that one more draft costs a request, when so many draft together; 0 where it was not measured."""
        return self.drafting[name].one_more_s(requests) if name in self.drafting else 0.0

    @property
    def _last_slope(self) -> float:
        """Seconds a token at the end, from the last probe outside of the last pool: a pool by itself looks flat."""
        last = self.smoothed_s[-1]
        for tokens, seconds in zip(reversed(self.tokens), reversed(self.smoothed_s), strict=True):
            if seconds < last:
                return (last - seconds) / (self.tokens[-1] - tokens)
        return 0.0


def _check(tokens: Sequence[int], seconds: Sequence[float]) -> None:
    if len(tokens) != len(seconds) or len(tokens) < 2:
        raise ParameterError(
            f"A step curve was given {len(tokens)} token counts and {len(seconds)} times; it needs as many of each, "
            "and two or more, or nothing is known about its slope. "
            "Measure again: python -m dspark_core profile --force."
        )
    whole = all(isinstance(count, int) and not isinstance(count, bool) and count >= 1 for count in tokens)
    if not whole or any(later <= earlier for earlier, later in pairwise(tokens)):
        raise ParameterError(
            f"A step curve was given the token counts {list(tokens)!r:.80}; they must be whole numbers from 1 on, each "
            "larger than the one before."
        )
    for count, value in zip(tokens, seconds, strict=True):
        plain = isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST_S <= value <= LARGEST_S
        if not plain:  # NaN and infinities fail the comparison
            raise ParameterError(
                f"A step curve was given {value!r:.40} seconds for {count} tokens; a time must be a finite number from "
                f"{LEAST_S:g} to {LARGEST_S:g}. Measure again: python -m dspark_core profile --force."
            )


def _isotonic(values: Sequence[float]) -> tuple[float, ...]:
    """The nearest non-decreasing sequence in least squares: neighbours that fall are pooled into their mean."""
    pools: list[tuple[float, int]] = []  # mean, number of values
    for value in values:
        mean, size = float(value), 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), size + count
        pools.append((mean, size))
    return tuple(mean for mean, size in pools for _ in range(size))
