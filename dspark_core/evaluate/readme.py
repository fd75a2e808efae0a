"""The measured tables as Markdown, and their place in a README: between two markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.evaluate.report import (
    failure_lines,
    measured_on,
    number,
    rows,
    temperature_title,
    with_interval,
)
from dspark_core.telemetry import LATE_POSITION
from dspark_core.terminal import printable

BEGIN, END = "<!-- evaluate:begin -->\n", "<!-- evaluate:end -->\n"


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
    """Put the tables between the markers. Raises ParameterError as `check_readme`, and OSError."""
    text = check_readme(path)
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    path.write_text(before + BEGIN + markdown(report) + END + after, encoding="utf-8", newline="\n")


def markdown(report: Mapping[str, Any]) -> str:
    """A table a temperature, with acceptance by position below it."""
    blocks = [[measured_on(report)]]
    for temperature in report["settings"]["temperatures"]:
        of_temperature = list(rows(report, temperature))
        blocks += [[f"**{temperature_title(temperature)}**"], _table(of_temperature)]
        blocks += [["Accepted at position, given those before:"], _by_position(of_temperature)]
    blocks += [[line] for line in failure_lines(report)]
    return "\n\n".join(printable("\n".join(block)) for block in blocks) + "\n"


def _table(cells: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[str]:
    late = f"position {LATE_POSITION} / position 1 (95 %)"
    head = ["set", "drafter", "prompts", "τ (95 %)", late, "T_draft / T_verify"]
    return [_row(head), _row(["---"] * len(head)), *(_row(_figures(*cell)) for cell in cells)]


def _figures(kind: str, drafter: str, cell: Mapping[str, Any]) -> list[str]:
    return [
        kind,
        drafter,
        str(cell["prompts"]),
        with_interval(cell["tau"], cell["tau_interval"]),
        with_interval(cell["suffix_decay"], cell["suffix_decay_interval"]),
        number(cell["draft_to_verify"]),
    ]


def _by_position(cells: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[str]:
    positions = range(max((len(cell["n_by_position"]) for _, _, cell in cells), default=0))
    head = ["set", "drafter", *(str(k + 1) for k in positions)]
    lines = [_row(head), _row(["---"] * len(head))]
    for kind, drafter, cell in cells:
        shares, n = cell["acceptance_by_position"], cell["n_by_position"]
        shown = [f"{number(shares[k])} ({n[k]})" if k < len(n) else "–" for k in positions]
        lines.append(_row([kind, drafter, *shown]))
    return [*lines, "", "In brackets: n, the rounds that verified the position and accepted all before it."]


def _row(words: Sequence[str]) -> str:
    return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |"
