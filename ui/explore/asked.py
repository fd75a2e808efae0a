"""What a visitor asks of Explore, from a script's JSON: checked or refused. Direct calls come here too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from dspark_core.bench.prompts import Prompt, packaged
from dspark_core.errors import ParameterError, shown, so_many
from dspark_core.fields import Fields
from dspark_core.sweep.grid import Grid, Point, grid_of
from dspark_core.sweep.plan import Settings, steps
from dspark_core.sweep.values import AXES
from ui.inputs import MAX_CHARACTERS, read_text
from ui.ports import InfoPort, SessionPort

MAX_PROMPTS = 24
MAX_TOKENS = 512
MAX_REPEATS = 10
MAX_ANSWERS = 3000
_WAY_OUT = "Reload the page and try again."
OWN = "own prompts"


@dataclass(frozen=True, slots=True)
class Asked:
    """A sweep that may begin."""

    grid: Grid
    settings: Settings


def read_object(text: object, longest: int = MAX_CHARACTERS) -> Fields:
    """The JSON object that a script has sent. Raises ParameterError."""
    try:
        values = json.loads(read_text("What was asked", text, longest))
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"What was asked is not valid JSON. {_WAY_OUT}") from error
    if not isinstance(values, dict):
        raise ParameterError(f"What was asked is no object. {_WAY_OUT}")
    return Fields(values, "What was asked", ParameterError, _WAY_OUT)


def read_sweep(session: SessionPort, text: object) -> Asked:
    """Grid and settings of a sweep that a script asks for. Raises ParameterError."""
    fields = read_object(text)
    limit = fields.whole("limit", 1, MAX_PROMPTS, default=2)
    prompts = own_prompts(fields.text("prompts", "").splitlines()) or built_in(fields.texts("sets", ()), limit)
    return asked_of(
        session,
        fields.section("axes"),
        prompts,
        fields.whole("tokens", 1, MAX_TOKENS, default=48),
        fields.whole("repeats", 1, MAX_REPEATS, default=1),
    )


def asked_of(
    session: SessionPort, axes: Mapping[str, Any], prompts: tuple[Prompt, ...], tokens: int, repeats: int
) -> Asked:
    """Grid and settings within the page's bounds: one engine serves all visitors. Raises ParameterError."""
    known = [axis.name for axis in AXES]
    if not isinstance(axes, Mapping) or not all(name in known and isinstance(axes[name], str) for name in axes):
        raise ParameterError(
            f'The axes are {", ".join(known)}, each with a text: give them as in {{"threshold": "0:0.9:0.3"}}.'
        )
    if len(prompts) > MAX_PROMPTS:
        raise ParameterError(f"{len(prompts)} prompts are asked for; the page takes {MAX_PROMPTS}. Leave some out.")
    grid = grid_of(session, {name: read_text(name, value)[:1000] for name, value in axes.items()})
    settings = Settings(prompts, tokens, repeats)
    answers = len(steps(grid.points, settings))
    if answers > MAX_ANSWERS:
        raise ParameterError(
            f"The sweep has {answers:,} answers ({so_many(len(grid.points), 'setting')}, "
            f"{so_many(len(prompts), 'prompt')}, {so_many(repeats, 'repeat')}, and plain decoding "
            f"beside them); the page takes {MAX_ANSWERS:,}. Take fewer, or use the command: "
            "python -m dspark_core sweep."
        )
    return Asked(grid, settings)


def own_prompts(texts: Iterable[str]) -> tuple[Prompt, ...]:
    """A visitor's own prompts, without the empty ones. Raises ParameterError."""
    return tuple(Prompt(OWN, (read_text("A prompt", text).strip(),)) for text in texts if text.strip())


def built_in(sets: tuple[str, ...], limit: int) -> tuple[Prompt, ...]:
    """The first ``limit`` prompts of each set, in turn. Raises ParameterError."""
    groups = [packaged(name)[:limit] for name in dict.fromkeys(sets)]
    return tuple(prompt for prompt in chain.from_iterable(zip_longest(*groups)) if prompt is not None)


def read_point(info: InfoPort, text: object) -> Point:
    """A row's setting, for the controls of Chat. Raises ParameterError for what this session does not have."""
    fields = read_object(text)
    top = max(1, info.num_draft_tokens)
    point = Point(
        fields.text("drafter"),
        fields.text("policy"),
        fields.whole("gamma", 1, 64),
        fields.whole("l_min", 0, 64),
        fields.whole("l_max", 0, 64),
        fields.number("threshold", 0, 1),
        fields.number("temperature", 0, 2),
    )
    if point.drafter not in info.drafters:
        known = ", ".join(info.drafters)
        raise ParameterError(f"The drafter {shown(point.drafter)} is not here; this page has {known}.")
    if point.policy not in info.policies:
        known = ", ".join(info.policies)
        raise ParameterError(f"The policy {shown(point.policy)} cannot serve here; these can: {known}.")
    if point.l_max > top:
        raise ParameterError(f"L_max is {point.l_max}; the drafters of this page draft at most {top}.")
    point.schedule  # noqa: B018 - raises where the bounds exclude each other
    return point
