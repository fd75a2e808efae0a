"""The measured tables as Markdown, and their place in a README: between two markers."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.evaluate.wording import (
    ALL_SETS,
    confidence_cells,
    confidence_head,
    failure_lines,
    measured_on,
    notes,
    pooled,
    position_cells,
    rows,
    temperature_title,
    with_interval,
)
from dspark_core.files import write_whole_text
from dspark_core.telemetry import LATE_POSITION
from dspark_core.terminal import printable

BEGIN, END = "<!-- evaluate:begin -->\n", "<!-- evaluate:end -->\n"
_MARKUP = re.compile(r"([\\`*_\[\]|~])")


def check_readme(path: Path) -> str:
    """The README's text. Raises ParameterError when it cannot be read or does not have the two markers, once each."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path} cannot be read: {error}. Name the README with --write-readme FILE.") from error
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ParameterError(
            f"{path} has no place for the results. Write {BEGIN.strip()} and {END.strip()} where they belong, once "
            "each, on lines of their own; what stands between them is replaced."
        )
    return text


def write_readme(path: Path, report: Mapping[str, Any]) -> None:
    """Put the tables between the markers. Raises ParameterError as `check_readme`, ResourceError on a full disk."""
    text = check_readme(path)
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    write_whole_text(path, before + BEGIN + markdown(report) + END + after)


def markdown(report: Mapping[str, Any]) -> str:
    """How it was measured, then for each temperature a few small tables; the long ones are folded away."""
    blocks = [f"```sh\n{printable(report['settings']['command'])}\n```", escaped(measured_on(report))]
    for temperature in report["settings"]["temperatures"]:
        blocks += _of_temperature(report, temperature)
    blocks += [f"- {escaped(line)}" for line in [*notes(report), *failure_lines(report)]]
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Any text as plain text of one line: neither Markdown nor HTML takes it for markup."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(printable(text).split()), quote=False))


def _of_temperature(report: Mapping[str, Any], temperature: str) -> list[str]:
    title, baseline = temperature_title(temperature), report["settings"]["baseline"]
    cells = pooled(report, temperature)
    blocks = [f"**τ, {title}**: tokens per round, the target's own included, with 95 % intervals over the prompts"]
    blocks.append(_by_set(report, temperature, _tau))
    if baseline:
        blocks.append(f"The same over τ of {escaped(baseline)} on the same prompts, with paired 95 % intervals:")
        blocks.append(_by_set(report, temperature, _ratio))
    blocks.append(f"Accepted at position, given those before (n), {title}, all prompts:")
    blocks.append(_acceptance(cells, baseline))
    blocks += _confidences(cells, title)
    if "all_sets" in report:
        blocks.append(f"<details><summary>Accepted at position by prompt set, {title}</summary>")
        blocks += [_acceptance_by_set(report, temperature), "</details>"]
    return blocks


def _by_set(report: Mapping[str, Any], temperature: str, figure: Callable[[Mapping[str, Any]], str | None]) -> str:
    """A line a drafter, a column a set; drafters without the figure are left out."""
    asked = dict(report["settings"]["prompts"])
    if "all_sets" in report:
        asked[ALL_SETS] = sum(asked.values())
    lines: dict[str, list[str]] = {}
    for kind, drafter, cell in rows(report, temperature):
        shown = figure(cell)
        if shown is not None:
            missing = "" if cell["prompts"] == asked[kind] else f", n = {cell['prompts']}"
            lines.setdefault(drafter, []).append(shown + missing)
    head = [f"{kind} ({count})" for kind, count in asked.items()]
    return _table(["drafter", *head], [[drafter, *shown] for drafter, shown in lines.items()])


def _tau(cell: Mapping[str, Any]) -> str:
    return with_interval(cell["tau"], cell["tau_interval"])


def _ratio(cell: Mapping[str, Any]) -> str | None:
    compared = cell["over_baseline"]
    return compared and with_interval(compared["tau_ratio"], compared["tau_ratio_interval"])


def _acceptance(cells: Mapping[str, Mapping[str, Any]], baseline: str | None) -> str:
    """By position, then the suffix decay, and that over the baseline's."""
    count = max((len(cell["n_by_position"]) for cell in cells.values()), default=0)
    over = [f"that over {baseline}'s (95 %)"] if baseline else []
    lines = []
    for drafter, cell in cells.items():
        compared = cell["over_baseline"] or {"suffix_decay_ratio": None, "suffix_decay_ratio_interval": None}
        ratio = with_interval(compared["suffix_decay_ratio"], compared["suffix_decay_ratio_interval"])
        decay = with_interval(cell["suffix_decay"], cell["suffix_decay_interval"])
        lines.append([drafter, *position_cells(cell, count), decay, *([ratio] if baseline else [])])
    return _table(
        ["drafter", *(str(k + 1) for k in range(count)), f"position {LATE_POSITION} / 1 (95 %)", *over], lines
    )


def _acceptance_by_set(report: Mapping[str, Any], temperature: str) -> str:
    cells = [line for line in rows(report, temperature) if line[0] != ALL_SETS]
    count = max((len(cell["n_by_position"]) for _, _, cell in cells), default=0)
    head = ["set", "drafter", *(str(k + 1) for k in range(count))]
    return _table(head, [[kind, drafter, *position_cells(cell, count)] for kind, drafter, cell in cells])


def _confidences(cells: Mapping[str, Mapping[str, Any]], title: str) -> list[str]:
    lines = [[drafter, *confidence_cells(cell["confidence"])] for drafter, cell in cells.items() if cell["confidence"]]
    if not lines:
        return []
    words = f"Confidences, {title}, all prompts: AUC at positions (n), mean ECE of the survival over the positions:"
    return [words, _table(["drafter", *confidence_head()], lines)]


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(map(_row, [head, ["---"] * len(head), *lines]))


def _row(words: Sequence[str]) -> str:
    return "| " + " | ".join(map(escaped, words)) + " |"
