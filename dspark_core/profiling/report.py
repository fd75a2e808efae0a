"""A profile as a table for a terminal, as one JSON object, and as a line for the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dspark_core.profiling.profile import DraftProbe, StepProbe, StepProfile

JUMPY = 0.2  # of a time: smoothing that moves one further is told


def line(profile: StepProfile, lacking: Sequence[str] = ()) -> str:
    """What the screen says of a session's step curve; ``lacking``: its drafters that were not measured as they are."""
    curve = profile.curve()
    first, last = curve.tokens[0], curve.tokens[-1]
    return (
        f"profiled: {profile.source}; a pass of {first} token takes {_ms(curve.seconds(first))} ms, of {last} tokens "
        f"{_ms(curve.seconds(last))} ms{_drafting_line(profile)}"
        f"{'; the times jump' if profile.largest_smoothing > JUMPY else ''}"
        f"{'; not profiled: the drafting of ' + ', '.join(lacking) if lacking else ''}"
    )


def _drafting_line(profile: StepProfile) -> str:
    """The first drafter's whole blocks, for as many requests as were measured."""
    for name in profile.drafters[:1]:
        last = [probe for probe in profile.drafting if probe.drafter == name][-1]
        drafting = profile.curve().drafting[name]
        one, all_of_them = (_ms(drafting.seconds(requests, last.drafts)) for requests in (1, last.requests))
        return f"; {name} drafts {last.drafts} in {one} ms, for {last.requests} answers in {all_of_them} ms"
    return ""


def table(profile: StepProfile) -> str:
    """B, milliseconds and SPS by context length, then the curve in use; then the drafting."""
    curve, contexts = profile.curve(), profile.contexts
    by_place = {(probe.tokens, probe.context): probe for probe in profile.steps}
    rows = [["B", "requests", *(f"ms at {c}" for c in contexts), *(f"SPS at {c}" for c in contexts), "curve ms", "SPS"]]
    for tokens, used_s in zip(curve.tokens, curve.smoothed_s, strict=True):
        probes = [by_place[tokens, context] for context in contexts]
        rows.append(
            [
                str(tokens),
                str(probes[0].requests),
                *(_ms(probe.seconds) for probe in probes),
                *(f"{1 / probe.seconds:.1f}" for probe in probes),
                _ms(used_s),
                f"{1 / used_s:.1f}",
            ]
        )
    key = profile.key
    return "\n".join(
        [
            f"{key.model}, {key.dtype}, torch {key.torch}, CPU threads: {key.threads}, taps {list(key.taps)}: "
            f"{profile.source}, medians of {profile.repeats}",
            "B tokens in one pass of the target and its verdicts, with so many tokens of context; SPS: passes a second",
            *_aligned(rows),
            "curve: at each B the median over the contexts, made never falling; verification lengths are planned by it",
            *_warning(profile.largest_smoothing),
            "",
            *_spread(profile.spread),
            *_drafting(profile.drafting),
        ]
    )


def report(profile: StepProfile) -> dict[str, Any]:
    """The profile's own values; ``curve``: tokens, measured_s, seconds (as used) and per_second.

    ``largest_smoothing`` is the largest share by which a time of the curve was moved to make it never fall.
    """
    curve = profile.curve()
    return {
        **asdict(profile),
        "source": profile.source,
        "largest_smoothing": profile.largest_smoothing,
        "curve": {
            "tokens": list(curve.tokens),
            "measured_s": list(curve.measured_s),
            "seconds": list(curve.smoothed_s),
            "per_second": [curve.per_second(tokens) for tokens in curve.tokens],
        },
    }


def _warning(largest_smoothing: float) -> list[str]:
    if largest_smoothing <= JUMPY:
        return []
    return [
        f"The times jump: one was moved by {100 * largest_smoothing:.0f} % to make the curve never fall. Either "
        "something else was running (measure again with --force, on an idle machine), or some sizes are slow here."
    ]


def _spread(probes: tuple[StepProbe, ...]) -> list[str]:
    if not probes:
        return []
    shares = list(dict.fromkeys(probe.tokens // probe.requests for probe in probes))
    rows = [["requests", *(f"ms of {share} each" for share in shares)]]
    for requests in dict.fromkeys(probe.requests for probe in probes):
        rows.append([str(requests), *(_ms(probe.seconds) for probe in probes if probe.requests == requests)])
    about = (
        f"the same by requests and tokens of each, at {probes[0].context} tokens of context; rounds are planned by it"
    )
    return [about, *_aligned(rows), ""]


def _drafting(probes: tuple[DraftProbe, ...]) -> list[str]:
    if not probes:
        return ["no drafter, so no drafting cost"]
    rows = [["drafter", "γ", "drafts each", "context", "requests", "ms", "ms a request"]]
    for probe in probes:
        numbers = (probe.num_draft_tokens, probe.drafts, probe.context, probe.requests)
        rows.append([probe.drafter, *map(str, numbers), _ms(probe.seconds), _ms(probe.seconds / probe.requests)])
    return ["drafting, greedily: what a round costs before the pass", *_aligned(rows)]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}" if seconds >= 0.001 else f"{1000 * seconds:.3f}"
