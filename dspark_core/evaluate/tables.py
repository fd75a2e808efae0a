"""A report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dspark_core.evaluate.wording import (
    confidence_cells,
    confidence_head,
    failure_lines,
    measured_on,
    notes,
    number,
    percent,
    position_cells,
    rows,
    span,
    temperature_title,
)
from dspark_core.telemetry import LATE_POSITION

Line = tuple[str, str, Mapping[str, Any]]


def tables(report: Mapping[str, Any]) -> str:
    """For each temperature τ, suffix decay, acceptance by position, accepted lengths, confidences; then what failed."""
    lines = [measured_on(report), report["settings"]["command"]]
    baseline = report["settings"]["baseline"]
    for temperature in report["settings"]["temperatures"]:
        of_temperature = list(rows(report, temperature))
        lines += ["", temperature_title(temperature), *_taus(of_temperature, baseline)]
        lines += ["", f"acceptance at position {LATE_POSITION} over that at position 1:"]
        lines += _decays(of_temperature, baseline)
        lines += ["", "accepted at position, given those before (n):", *_by_position(of_temperature)]
        lines += ["", "rounds by number of accepted drafts:", *_lengths(of_temperature)]
        lines += _confidences(of_temperature)
    lines += ["", *notes(report), *failure_lines(report)]
    return "\n".join(lines).rstrip() + "\n"


def _taus(cells: Sequence[Line], baseline: str | None) -> list[str]:
    over = [f"τ / {baseline}'s", "95 %", "on prompts"] if baseline else []
    head = ["prompts", "τ", "95 %", "accepted", "T_draft/T_verify", *over]

    def figures(cell: Mapping[str, Any]) -> list[str]:
        shown = [
            str(cell["prompts"]),
            number(cell["tau"]),
            span(cell["tau_interval"]),
            percent(cell["acceptance_rate"]),
            number(cell["draft_to_verify"]),
        ]
        return shown + (_over(cell, "tau_ratio", with_n=True) if baseline else [])

    return _aligned(head, cells, figures)


def _decays(cells: Sequence[Line], baseline: str | None) -> list[str]:
    over = [f"over {baseline}'s", "95 %"] if baseline else []
    head = ["ratio", "95 %", "n at 1", f"n at {LATE_POSITION}", *over]

    def figures(cell: Mapping[str, Any]) -> list[str]:
        shown = [
            number(cell["suffix_decay"]),
            span(cell["suffix_decay_interval"]),
            *map(str, cell["suffix_decay_n"]),
        ]
        return shown + (_over(cell, "suffix_decay_ratio") if baseline else [])

    return _aligned(head, cells, figures)


def _over(cell: Mapping[str, Any], figure: str, *, with_n: bool = False) -> list[str]:
    """A comparison's columns, dashes in the baseline's own line."""
    compared = cell["over_baseline"]
    if compared is None:
        return ["–"] * (2 + with_n)
    n = [str(compared["prompts"])] if with_n else []
    return [number(compared[figure]), span(compared[f"{figure}_interval"]), *n]


def _by_position(cells: Sequence[Line]) -> list[str]:
    count = max((len(cell["n_by_position"]) for _, _, cell in cells), default=0)
    if not count:
        return ["nothing was verified"]
    return _aligned([str(k + 1) for k in range(count)], cells, lambda cell: position_cells(cell, count))


def _lengths(cells: Sequence[Line]) -> list[str]:
    count = max((len(cell["accepted_lengths"]) for _, _, cell in cells), default=0)

    def figures(cell: Mapping[str, Any]) -> list[str]:
        counts = cell["accepted_lengths"]
        return [*map(str, counts), *["–"] * (count - len(counts))]

    return _aligned([str(accepted) for accepted in range(count)], cells, figures)


def _confidences(cells: Sequence[Line]) -> list[str]:
    known = [line for line in cells if line[2]["confidence"]]
    if not known:
        return []
    title = "confidences: AUC of c_k at position k (n), mean ECE of the survival over the positions:"
    return ["", title, *_aligned(confidence_head(), known, lambda cell: confidence_cells(cell["confidence"]))]


def _aligned(
    head: Sequence[str], cells: Iterable[Line], figures: Callable[[Mapping[str, Any]], Sequence[str]]
) -> list[str]:
    """Set, drafter and figures, each column as wide as it must be: names to the left, figures to the right."""
    table = [["set", "drafter", *head], *([kind, drafter, *figures(cell)] for kind, drafter, cell in cells)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(_padded(line, widths)).rstrip() for line in table]


def _padded(line: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    for place, (word, width) in enumerate(zip(line, widths, strict=True)):
        yield word.ljust(width) if place < 2 else word.rjust(width)
