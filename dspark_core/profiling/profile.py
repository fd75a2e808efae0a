"""The values of a profile: seconds of the target's pass and of drafting, and what they belong to. No torch here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from statistics import median

from dspark_core.errors import ParameterError
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import LARGEST_S, LEAST_S, StepCurve
from dspark_core.scheduling.step_table import StepTable


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """All that step times depend on: those of another key say nothing.

    Attributes:
        model: the target's name.
        weights: what `profiling.file.weights_id` says of its files.
        dtype: what it computes in.
        device: the hardware's name, as on the screen.
        threads: CPU threads of torch.
        torch: its version.
        taps: layers whose outputs the session's drafters read, in rising order.
    """

    model: str
    weights: str
    dtype: str
    device: str
    threads: int
    torch: str
    taps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepProbe:
    """The median time of one ragged pass and the verdicts on it: ``requests`` of ``context`` tokens get ``tokens``."""

    context: int
    tokens: int
    requests: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DraftProbe:
    """The median time in which ``requests`` of ``context`` tokens drafted ``drafts`` tokens each, of γ."""

    drafter: str
    num_draft_tokens: int
    drafts: int
    context: int
    requests: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One measurement.

    Attributes:
        key: what was measured, and where.
        measured_on: the day, as 2026-11-30.
        repeats: how many times the medians are of.
        steps: the passes, for each context length the same B in rising order.
        spread: passes of R = 2 and more requests that have t tokens each, in rising order of R and t, every t for every
            R, at one context length; none where only one request was measured, or nothing drafts.
        drafting: the drafters.
    """

    key: ProfileKey
    measured_on: str
    repeats: int
    steps: tuple[StepProbe, ...]
    spread: tuple[StepProbe, ...]
    drafting: tuple[DraftProbe, ...]

    @property
    def contexts(self) -> tuple[int, ...]:
        """The context lengths that were measured, rising."""
        return tuple(sorted({probe.context for probe in self.steps}))

    @property
    def source(self) -> str:
        """Where and when, for the screen."""
        return f"measured on {self.key.device}, {self.measured_on}"

    def curve(self) -> StepCurve:
        """What a scheduler reads: at each B the median over the context lengths, which it is not told; the drafting."""
        by_tokens: dict[int, list[float]] = {}
        for probe in self.steps:
            by_tokens.setdefault(probe.tokens, []).append(probe.seconds)
        curve = StepCurve.of(list(by_tokens), [median(times) for times in by_tokens.values()], source=self.source)
        return curve.with_table(self._table()).with_drafting(
            {name: self._drafting_curve(name) for name in self.drafters}
        )

    def _table(self) -> StepTable | None:
        """`spread` by requests and tokens of each, below it a row of one request, from `steps`."""
        if not self.spread:
            return None
        rows: dict[int, list[StepProbe]] = {}
        for probe in self.spread:
            rows.setdefault(probe.requests, []).append(probe)
        context = self.spread[0].context
        one = [probe for probe in self.steps if probe.context == context and probe.requests == 1]
        alone = StepCurve.of([probe.tokens for probe in one], [probe.seconds for probe in one], source=self.source)
        shares = tuple(probe.tokens // probe.requests for probe in next(iter(rows.values())))
        first = (1, tuple(alone.seconds(share) for share in shares))
        return StepTable(shares, (first, *((r, tuple(probe.seconds for probe in row)) for r, row in rows.items())))

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of those whose drafting was measured."""
        return tuple(dict.fromkeys(probe.drafter for probe in self.drafting))

    @property
    def largest_smoothing(self) -> float:
        """The largest share of its time by which smoothing moved a probe of `curve`: how far the times jump."""
        curve = self.curve()
        pairs = zip(curve.measured_s, curve.smoothed_s, strict=True)
        return max(abs(smoothed - measured) / measured for measured, smoothed in pairs)

    def curve_at(self, context: int) -> StepCurve:
        """The curve of one of `contexts`."""
        probes = [probe for probe in self.steps if probe.context == context]
        return StepCurve.of(
            [probe.tokens for probe in probes],
            [probe.seconds for probe in probes],
            source=f"{self.source}, context {context}",
        )

    def _drafting_curve(self, drafter: str) -> DraftingCurve:
        probes = [probe for probe in self.drafting if probe.drafter == drafter]
        return DraftingCurve.of(
            ((probe.drafts, probe.requests, probe.seconds) for probe in probes),
            source=f"{self.source}, drafting of {drafter}",
        )

    def lacks(self, drafters: Iterable[tuple[str, int]]) -> list[str]:
        """Names among (name, γ) whose drafting was not measured; γ = 0 costs nothing and needs none."""
        known = {(probe.drafter, probe.num_draft_tokens) for probe in self.drafting}
        return [name for name, gamma in drafters if gamma and (name, gamma) not in known]

    def curve_for(self, drafters: Iterable[tuple[str, int]]) -> StepCurve:
        """`curve` without the drafting of those among (name, γ) that were measured with another γ: it costs else."""
        curve, lacking = self.curve(), self.lacks(drafters)
        return curve.with_drafting({name: cost for name, cost in curve.drafting.items() if name not in lacking})


def check_profile(profile: StepProfile) -> None:
    """Ranges and order, where the values came from a file. Raises ParameterError."""
    _check_day(profile.measured_on)
    if profile.repeats < 1 or not profile.steps:
        raise ParameterError("A profile needs one repeat or more, and probes of the target's pass.")
    counts = {
        context: [probe.tokens for probe in profile.steps if probe.context == context] for context in profile.contexts
    }
    if len({tuple(tokens) for tokens in counts.values()}) > 1:
        raise ParameterError("The context lengths were measured with different token counts.")
    for context in profile.contexts:
        profile.curve_at(context)
    _check_spread(profile)
    probes: tuple[StepProbe | DraftProbe, ...] = (*profile.steps, *profile.spread, *profile.drafting)
    for probe in probes:
        if probe.context < 1 or probe.requests < 1 or not LEAST_S <= probe.seconds <= LARGEST_S:
            raise ParameterError(f"A probe is out of range: {probe!r:.160}.")
    for name in profile.drafters:
        drafting = [probe for probe in profile.drafting if probe.drafter == name]
        places = [(probe.drafts, probe.requests) for probe in drafting]
        if {probe.num_draft_tokens for probe in drafting} != {places[-1][0]}:
            raise ParameterError(f"The drafter {name!r:.40} needs one γ, and its last probes draft so many.")
        if any(later <= earlier for earlier, later in pairwise(places)) or places[0][0] < 1:
            raise ParameterError(f"The drafts and requests of {name!r:.40} must rise; they are {places!r:.80}.")
    profile.curve()


def _check_spread(profile: StepProfile) -> None:
    places = [(probe.requests, probe.tokens // max(1, probe.requests)) for probe in profile.spread]
    shares = sorted({share for _, share in places})
    whole = all(
        probe.tokens == requests * share for probe, (requests, share) in zip(profile.spread, places, strict=True)
    )
    grid = [(requests, share) for requests in sorted({requests for requests, _ in places}) for share in shares]
    contexts = {probe.context for probe in profile.spread}
    if places and (places != grid or not whole or len(shares) < 2 or places[0][0] < 2 or len(contexts) > 1):
        raise ParameterError(
            "The spread passes must be of 2 requests and more with the same tokens each, all of these for every number "
            f"of requests, in rising order, at one context length; they are {places!r:.80}."
        )


def _check_day(text: str) -> None:
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError("another form")
        date.fromisoformat(text)
    except ValueError as error:
        raise ParameterError(f"measured_on is {text!r:.40}; it must be a day such as 2026-11-30.") from error


def token_counts(most: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, … below ``most``, and ``most``: close where a curve bends, few where it is long."""
    sizes = [2**power for power in range(most.bit_length())]
    between = [3 * size // 2 for size in sizes if size > 1]
    return tuple(sorted({count for count in (*sizes, *between) if count < most} | {1, most}))


def mix(tokens: int, max_requests: int, block: int) -> tuple[int, ...]:
    """How ``tokens`` are shared out among requests of 1 … ``block`` tokens each: a round as it comes up.

    What one request can verify alone, it does. Beyond, the number of requests lies midway (geometric mean) between the
    fewest that can hold so many and the most that may run.
    """
    fewest = -(-tokens // block)
    most = min(tokens, max_requests)
    requests = 1 if fewest == 1 else max(fewest, min(most, round(math.sqrt(fewest * most))))
    return shared_out(tokens, requests)


def shared_out(tokens: int, requests: int) -> tuple[int, ...]:
    """``tokens`` among ``requests``, as evenly as whole numbers allow."""
    return tuple(tokens // requests + (index < tokens % requests) for index in range(requests))


def spread_counts(max_requests: int, block: int) -> tuple[tuple[int, int], ...]:
    """(B, R) of passes in which R = 2, 4, 8, … ``max_requests`` have 1, 2, 3, 4, 8, … ``block`` tokens each."""
    if block == 1:
        return ()  # nothing drafts, so nothing is weighed
    shares = sorted({1, 2, 3, block, *(2**power for power in range(block.bit_length()))})
    counts = sorted({2**power for power in range(1, max_requests.bit_length())} | {max_requests})
    return tuple(
        (requests * share, requests) for requests in counts if requests > 1 for share in shares if share <= block
    )
