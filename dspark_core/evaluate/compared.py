"""One drafter against another on the same prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from dspark_core.evaluate.resampled import resampled
from dspark_core.telemetry import Summary, merge

Key = TypeVar("Key")


def over_baseline(ours: Mapping[Key, Summary], baseline: Mapping[Key, Summary]) -> dict[str, Any]:
    """Ratios of τ and of the suffix decay, ours over the baseline's, on the prompts that both finished.

    A ratio of τ above 1: more tokens a round. A ratio of the suffix decay above 1: acceptance falls off less along the
    block. The intervals are 95 % paired bootstrap intervals: each resample of the prompts is the same for both. A
    figure that either lacks is None.

    Args:
        ours, baseline: one summary a prompt, by a key of that prompt.
    """
    both = [key for key in baseline if key in ours]
    mine, theirs = tuple(ours[key] for key in both), tuple(baseline[key] for key in both)
    total, base = merge(mine), merge(theirs)
    draws, base_draws = resampled(mine), resampled(theirs)
    return {
        "prompts": len(both),
        "tau_ratio": _ratio(total.tau, base.tau),
        "tau_ratio_interval": draws.interval_over(base_draws, lambda summary: summary.tau),
        "suffix_decay_ratio": _ratio(total.suffix_decay, base.suffix_decay),
        "suffix_decay_ratio_interval": draws.interval_over(base_draws, lambda summary: summary.suffix_decay),
    }


def _ratio(ours: float | None, baseline: float | None) -> float | None:
    return ours / baseline if ours is not None and baseline else None
