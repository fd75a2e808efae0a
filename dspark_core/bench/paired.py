"""Paired runs: every lane answers every prompt, in turn and in rotating order, after a warm-up that does not count."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dspark_core.bench.bootstrap import interval_95, resamples
from dspark_core.bench.run import Run
from dspark_core.params import SamplingParams

if TYPE_CHECKING:
    from dspark_core.bench.lanes import Lane

WARM_UP_TOKENS = 16
Item = TypeVar("Item")
NUM_SEEDS = 2**63  # seeds run from 0 up to this


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt of the race.

    Attributes:
        kind: group in the report.
        prompt_ids: the whole prompt, template applied.
    """

    kind: str
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast as another lane: median over the prompts, with a 95 % bootstrap interval."""

    median: float
    low: float
    high: float
    n: int


def race(
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    sampling: SamplingParams,
    progress: Callable[[str, float], None] = lambda _stage, _fraction: None,
) -> dict[str, list[Run]]:
    """Runs by lane, in the order of the cases.

    The lane that goes first changes from prompt to prompt, so that a machine that slows down or heats up treats all
    lanes alike. With a temperature, prompt i has the seed ``sampling.seed + i`` in every lane; after the largest seed
    comes 0.
    """
    _warm_up(lanes, cases[0], sampling, progress)
    runs: dict[str, list[Run]] = {lane.name: [] for lane in lanes}
    for index, case in enumerate(cases):
        seeded = replace(sampling, seed=((sampling.seed or 0) + index) % NUM_SEEDS)
        for lane in rotated(lanes, index):
            progress(f"{case.kind} {index + 1}/{len(cases)}: {lane.name}", index / len(cases))
            runs[lane.name].append(lane.run(case.prompt_ids, seeded))
    progress("measured", 1.0)
    return runs


def rotated(lanes: Sequence[Item], by: int) -> list[Item]:
    """The lanes with another one in front."""
    start = by % len(lanes)
    return [*lanes[start:], *lanes[:start]]


def _warm_up(
    lanes: Sequence[Lane], case: Case, sampling: SamplingParams, progress: Callable[[str, float], None]
) -> None:
    short = replace(sampling, seed=0, max_new_tokens=min(WARM_UP_TOKENS, sampling.max_new_tokens))
    for lane in lanes:
        progress(f"warm-up (left out): {lane.name}", 0.0)
        lane.run(case.prompt_ids, short)


def speed_ratio(runs: Sequence[Run], baseline: Sequence[Run]) -> Ratio | None:
    """Tokens/s of ``runs`` over those of ``baseline``, prompt by prompt; None when no prompt has both."""
    pairs = speed_pairs(runs, baseline)
    if not pairs:
        return None
    low, high = interval_95(np.median(np.asarray(pairs)[resamples(len(pairs))], axis=1))
    return Ratio(statistics.median(pairs), low, high, len(pairs))


def speed_pairs(runs: Sequence[Run], baseline: Sequence[Run]) -> list[float]:
    """Tokens/s of each run over those of its partner; pairs of which one had no round are left out."""
    return [
        ours.summary.tokens_per_s / theirs.summary.tokens_per_s
        for ours, theirs in zip(runs, baseline, strict=True)
        if ours.summary.tokens_per_s > 0 and theirs.summary.tokens_per_s > 0
    ]


def same_answers(runs: Sequence[Run], baseline: Sequence[Run]) -> dict[str, int | None]:
    """How many answers equal the baseline's token for token, and where the first difference of all stands."""
    firsts = [first_difference(ours.token_ids, theirs.token_ids) for ours, theirs in zip(runs, baseline, strict=True)]
    different = [first for first in firsts if first is not None]
    return {
        "same": len(firsts) - len(different),
        "n": len(firsts),
        "earliest_difference": min(different) if different else None,
    }


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first place where the answers differ, or where one of them ends; None when they are equal."""
    for position, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return position
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def of_kind(runs: Mapping[str, Sequence[Run]], cases: Sequence[Case], kind: str) -> dict[str, list[Run]]:
    """The runs of one group of prompts."""
    return {
        lane: [run for run, case in zip(lane_runs, cases, strict=True) if case.kind == kind]
        for lane, lane_runs in runs.items()
    }
