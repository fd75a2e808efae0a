"""What a duel came to, as one JSON-able dict: figures by telemetry's definitions, and the tracks to replay."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dspark_core.bench.duel import Duel, Entry
from dspark_core.bench.lap import Lap
from dspark_core.bench.paired import speed_pairs

_FIGURES = (
    "rounds", "tokens", "drafted", "verified", "accepted", "wasted", "tau", "tokens_per_s", "acceptance_rate",
    "prompt_tokens", "prefill_s", "draft_s", "schedule_s", "verify_s", "round_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the repeats: the middle one, the lowest and the highest. With n = 1 all three are the same."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None when there is no value."""
        return cls(statistics.median(values), min(values), max(values), len(values)) if values else None


def duel_report(duel: Duel, *, tracks: bool = True) -> dict[str, Any]:
    """The duel so far.

    Keys: ``repeats``, ``stopped``, ``disturbed`` (whether any lap was), ``reference`` (name of the lane that the others
    are compared with, or None), and ``lanes``, each with

    - ``name``, ``drafter``, ``policy``, ``error``,
    - ``laps``: repeat, tokens_per_s, finish_s, tokens, finish, disturbed of each,
    - ``speed``: tokens/s over the repeats (median, low, high, n), or None,
    - ``ratio``: the same of tokens/s over plain decoding's of the same repeat; None for plain itself and without it,
    - of the lap whose tokens/s is the median: ``repeat``, ``figures`` (`Summary`), ``finish_s``, ``wall_s``,
      ``energy_j`` (None: not measured here), ``finish``, ``detail``, ``text``, and with ``tracks`` its ``track``,
    - ``sameness`` and ``gap`` as in `Entry`.
    """
    reference = duel.reference
    plain = reference if reference is not None and reference.lane.drafter == "none" else None
    return {
        "repeats": duel.repeats,
        "stopped": duel.stopped,
        "disturbed": any(lap.disturbed for entry in duel.entries for lap in entry.laps),
        "reference": None if reference is None else reference.lane.name,
        "lanes": [_lane(entry, plain, tracks) for entry in duel.entries],
    }


def _lane(entry: Entry, plain: Entry | None, tracks: bool) -> dict[str, Any]:
    speed = Spread.of([lap.run.summary.tokens_per_s for lap in entry.laps])
    ratio = None if plain is None or plain is entry else Spread.of(_ratios(entry.laps, plain.laps))
    return {
        "name": entry.lane.name,
        "drafter": entry.lane.drafter,
        "policy": entry.lane.schedule.policy,
        "error": entry.error,
        "laps": [_lap(lap) for lap in entry.laps],
        "speed": speed and asdict(speed),
        "ratio": ratio and asdict(ratio),
        "sameness": entry.sameness and asdict(entry.sameness),
        "gap": entry.gap and asdict(entry.gap),
        **(_shown(median_lap(entry.laps), tracks) if entry.laps else {}),
    }


def _ratios(laps: Sequence[Lap], plain: Sequence[Lap]) -> list[float]:
    """Speeds over plain decoding's in the same repeat."""
    by_repeat = {lap.repeat: lap for lap in plain}
    both = [(lap.run, by_repeat[lap.repeat].run) for lap in laps if lap.repeat in by_repeat]
    return speed_pairs([ours for ours, _ in both], [theirs for _, theirs in both])


def median_lap(laps: Sequence[Lap]) -> Lap:
    """The lap whose speed is the middle one; of two middle ones, the slower."""
    ordered = sorted(laps, key=lambda lap: lap.run.summary.tokens_per_s)
    return ordered[(len(ordered) - 1) // 2]


def _lap(lap: Lap) -> dict[str, Any]:
    return {
        "repeat": lap.repeat,
        "tokens_per_s": lap.run.summary.tokens_per_s,
        "finish_s": lap.finish_s,
        "tokens": lap.run.summary.tokens,
        "finish": lap.finish,
        "disturbed": lap.disturbed,
    }


def _shown(lap: Lap, tracks: bool) -> dict[str, Any]:
    track = [[round(at, 6), tokens, text] for at, tokens, text in lap.track]
    return {
        "repeat": lap.repeat,
        "figures": {name: getattr(lap.run.summary, name) for name in _FIGURES},
        "finish_s": lap.finish_s,
        "wall_s": lap.run.wall_s,
        "energy_j": lap.energy_j,
        "finish": lap.finish,
        "detail": lap.detail,
        "text": lap.text,
        **({"track": track} if tracks else {}),
    }
