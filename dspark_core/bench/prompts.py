"""Benchmark prompts: packaged sets, or a file in DeepSpec's format, one ``{"turns": ["…"]}`` a line.

The packaged prompts were written for measuring only; no drafter was trained on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, zip_longest
from pathlib import Path

from dspark_core.errors import ParameterError, shown

SETS = ("chat", "maths", "code", "chinese")
DEFAULT_SETS = ("chat", "maths", "code")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        kind: the set it belongs to, or the file's name.
        turns: what the user says, in order; at least one.
    """

    kind: str
    turns: tuple[str, ...]

    @property
    def text(self) -> str:
        """The first turn, which is all that ``bench`` asks."""
        return self.turns[0]

    @property
    def more_turns(self) -> int:
        """How many turns ``bench`` leaves out."""
        return len(self.turns) - 1


def packaged(name: str) -> list[Prompt]:
    """The packaged set of that name. Raises ParameterError."""
    if name not in SETS:
        raise ParameterError(f"There is no prompt set named {shown(name)}. Choose one of: {', '.join(SETS)}.")
    text = (files("dspark_core.bench") / "prompts" / f"{name}.jsonl").read_text(encoding="utf-8")
    return _parse(text.splitlines(), name, f"{name}.jsonl")


def chosen(paths: Sequence[Path], sets: Sequence[str], limit: int | None) -> dict[str, list[Prompt]]:
    """The prompts that a command was asked for, by set: the first ``limit`` of each, None for all.

    Raises:
        ParameterError: both files and sets, two files of one name, or as `from_file` and `packaged`.
    """
    if paths and sets:
        raise ParameterError("Give either --prompts or --set, not both.")
    groups: dict[str, list[Prompt]] = {}
    for path in paths:
        if path.stem in groups:
            raise ParameterError(
                f"Two of the prompt files are named {path.stem!r}, which is the set's name in the report. Rename one."
            )
        groups[path.stem] = from_file(path)
    if not paths:
        groups = {name: packaged(name) for name in dict.fromkeys(sets or DEFAULT_SETS)}
    return {kind: group[:limit] for kind, group in groups.items()}


def in_turn(groups: Iterable[Sequence[Prompt]]) -> list[Prompt]:
    """Of each set the first, then of each the second …: so every part of the list has something of all sets."""
    return [prompt for prompt in chain.from_iterable(zip_longest(*groups)) if prompt is not None]


def from_file(path: Path) -> list[Prompt]:
    """The prompts of a file. Raises ParameterError when it cannot be read or a line is no prompt."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ParameterError(f"The prompts in {path} cannot be read: {error}.") from error
    prompts = _parse(text.split("\n"), path.stem, str(path))
    if not prompts:
        raise ParameterError(f'{path} has no prompts. Write one {{"turns": ["…"]}} a line.')
    return prompts


def _parse(lines: Iterable[str], kind: str, source: str) -> list[Prompt]:
    prompts = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            prompts.append(Prompt(kind, tuple(_turns(line, f"{source}, line {number}"))))
    return prompts


def _turns(line: str, where: str) -> list[str]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{where} is not JSON ({error}).") from error
    turns = data.get("turns") if isinstance(data, dict) else None
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ParameterError(f'{where} must look like {{"turns": ["first prompt", …]}} with non-empty texts.')
    return turns
