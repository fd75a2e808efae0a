"""What the charts show, as plain values; `png` and `page` draw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dspark_core.evaluate.wording import measured_on, temperature_title

COLOURS = ("#3b5bdb", "#e8590c", "#2b8a3e", "#9c36b5", "#0b7285", "#5c4a00")


@dataclass(frozen=True, slots=True)
class Series:
    """One drafter's points.

    Attributes:
        name: the drafter.
        x, y: the points; a y of None was not observed.
        intervals: 95 % bounds of each y, None where unknown.
        labels: what each y was counted from.
    """

    name: str
    x: tuple[str, ...]
    y: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture.

    Attributes:
        name: stem of its file.
        title, x_label, y_label: in words.
        kind: how the series are drawn.
        counts_below: labels stand under the axis (beside points with intervals they would hide one another).
        columns: panels side by side.
        panels: row by row.
        caption: where, when and how it was measured.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    kind: Literal["bars", "lines"]
    counts_below: bool
    columns: int
    panels: tuple[Panel, ...]
    caption: str


def charts(report: Mapping[str, Any]) -> list[Chart]:
    """τ by set, acceptance by position and accepted lengths, drafter beside drafter."""
    sets, temperatures = list(report["settings"]["prompts"]), report["settings"]["temperatures"]
    grid = [(kind, temperature) for temperature in temperatures for kind in sets]

    def by_set(figure: Callable[[str, Mapping[str, Any]], Series]) -> tuple[Panel, ...]:
        return tuple(
            Panel(
                f"{kind}, {temperature_title(temperature)}",
                tuple(figure(name, of[kind][temperature]) for name, of in report["results"].items()),
            )
            for kind, temperature in grid
        )

    def of_temperature(temperature: str) -> Panel:
        series = (_taus(name, {kind: of[kind][temperature] for kind in sets}) for name, of in report["results"].items())
        return Panel(temperature_title(temperature), tuple(series))

    caption = f"{measured_on(report)} {report['settings']['command']}"
    return [
        Chart(
            "tau",
            "Tokens per round, the target's own included (τ), with 95 % intervals over prompts",
            "prompt set, with n prompts",
            "τ",
            "bars",
            True,
            len(temperatures),
            tuple(map(of_temperature, temperatures)),
            caption,
        ),
        Chart(
            "acceptance_by_position",
            "Acceptance by position, given that all before were accepted, with n and 95 % intervals",
            "position in the draft block",
            "share accepted",
            "lines",
            True,
            len(sets),
            by_set(_acceptance),
            caption,
        ),
        Chart(
            "accepted_lengths",
            "Rounds by number of accepted drafts, with how many they were",
            "accepted drafts in the round",
            "share of rounds",
            "bars",
            False,
            len(sets),
            by_set(_lengths),
            caption,
        ),
    ]


def _taus(name: str, cells: Mapping[str, Mapping[str, Any]]) -> Series:
    return Series(
        name,
        tuple(cells),
        tuple(cell["tau"] for cell in cells.values()),
        tuple(cell["tau_interval"] for cell in cells.values()),
        tuple(f"n={cell['prompts']}" for cell in cells.values()),
    )


def _acceptance(name: str, cell: Mapping[str, Any]) -> Series:
    return Series(
        name,
        tuple(str(k + 1) for k in range(len(cell["n_by_position"]))),
        tuple(cell["acceptance_by_position"]),
        tuple(cell["acceptance_intervals"]),
        tuple(f"n={n}" for n in cell["n_by_position"]),
    )


def _lengths(name: str, cell: Mapping[str, Any]) -> Series:
    counts = cell["accepted_lengths"]
    return Series(
        name,
        tuple(str(accepted) for accepted in range(len(counts))),
        tuple(count / cell["rounds"] for count in counts),
        (None,) * len(counts),
        tuple(str(count) for count in counts),
    )
