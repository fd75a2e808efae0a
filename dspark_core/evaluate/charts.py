"""What the charts show, as plain values; `png` and `page` draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dspark_core.evaluate.wording import ALL_SETS, measured_on, rows, temperature_title

# One a drafter. Each stands out from white and from near black: 3.7 to 1 or more.
COLOURS = ("#4c6ef5", "#d9480f", "#37923f", "#ae3ec9", "#0c8599", "#966f00", "#d6336c", "#6b7280")
_HEADROOM = 1.05  # of an axis, above the highest mark


@dataclass(frozen=True, slots=True)
class Series:
    """One drafter's points.

    Attributes:
        name: the drafter.
        x, y: the points; a y of None was not observed.
        intervals: 95 % bounds of each y, None where unknown.
        n: what each y was counted from.
        at: where the points lie on an axis of numbers; None where the places of x stand side by side.
    """

    name: str
    x: tuple[str, ...]
    y: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    n: tuple[int, ...]
    at: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    series: tuple[Series, ...]

    @property
    def ticks(self) -> tuple[str, ...]:
        """The places on the x axis; the drafters' points differ only in how many of them there are."""
        return max((series.x for series in self.series), key=len, default=())


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture.

    Attributes:
        name: stem of its file.
        title, x_label, y_label: in words.
        kind: how the series are drawn; in a "curve" the x axis has numbers, and x names the points.
        columns: panels side by side.
        panels: row by row.
        caption: where, when and how it was measured.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    kind: Literal["bars", "lines", "curve"]
    columns: int
    panels: tuple[Panel, ...]
    caption: str

    @property
    def top(self) -> float:
        """Where every panel's y axis ends, so that panels can be compared."""
        marks = [0.0]
        for panel in self.panels:
            for series in panel.series:
                marks += [y for y in series.y if y is not None]
                marks += [interval[1] for interval in series.intervals if interval is not None]
        return _HEADROOM * (max(marks) or 1.0)


def beside(index: int, of: int) -> float:
    """How far a drafter's points stand from the tick, so that no interval hides another."""
    return (index - (of - 1) / 2) * min(0.1, 0.5 / max(1, of))


def charts(report: Mapping[str, Any]) -> list[Chart]:
    """τ by set, acceptance by position and accepted lengths, drafter beside drafter; all sets together come last."""
    temperatures = report["settings"]["temperatures"]
    kinds = [*report["settings"]["prompts"], *([ALL_SETS] if "all_sets" in report else [])]
    cells = {
        (kind, drafter, temperature): cell
        for temperature in temperatures
        for kind, drafter, cell in rows(report, temperature)
    }
    drafters = list(report["results"])

    def by_set(figure: Callable[[str, Mapping[str, Any]], Series]) -> tuple[Panel, ...]:
        return tuple(
            Panel(
                f"{kind}, {temperature_title(temperature)}",
                tuple(figure(drafter, cells[kind, drafter, temperature]) for drafter in drafters),
            )
            for temperature in temperatures
            for kind in kinds
        )

    def of_temperature(temperature: str) -> Panel:
        return Panel(
            temperature_title(temperature),
            tuple(_taus(name, {kind: cells[kind, name, temperature] for kind in kinds}) for name in drafters),
        )

    caption = f"{measured_on(report)} {report['settings']['command']}"
    return [
        Chart(
            "tau",
            "Tokens per round, the target's own included (τ), with 95 % intervals over prompts",
            "prompt set, with the number of prompts",
            "τ",
            "bars",
            len(temperatures),
            tuple(map(of_temperature, temperatures)),
            caption,
        ),
        Chart(
            "acceptance_by_position",
            "Acceptance by position, given that all before were accepted, with 95 % intervals",
            "position in the draft block, with the rounds that reached it (hollow: too few prompts for an interval)",
            "share accepted",
            "lines",
            _columns(kinds),
            by_set(_acceptance),
            caption,
        ),
        Chart(
            "accepted_lengths",
            "Rounds by number of accepted drafts",
            "accepted drafts in the round, with how many rounds",
            "share of rounds",
            "bars",
            _columns(kinds),
            by_set(_lengths),
            caption,
        ),
    ]


def _columns(kinds: Iterable[str]) -> int:
    """Panels side by side that are still large enough to be read."""
    return min(2, len(list(kinds)))


def _taus(name: str, cells: Mapping[str, Mapping[str, Any]]) -> Series:
    return Series(
        name,
        tuple(cells),
        tuple(cell["tau"] for cell in cells.values()),
        tuple(cell["tau_interval"] for cell in cells.values()),
        tuple(cell["prompts"] for cell in cells.values()),
    )


def _acceptance(name: str, cell: Mapping[str, Any]) -> Series:
    return Series(
        name,
        tuple(str(k + 1) for k in range(len(cell["n_by_position"]))),
        tuple(cell["acceptance_by_position"]),
        tuple(cell["acceptance_intervals"]),
        tuple(cell["n_by_position"]),
    )


def _lengths(name: str, cell: Mapping[str, Any]) -> Series:
    counts = cell["accepted_lengths"]
    return Series(
        name,
        tuple(str(accepted) for accepted in range(len(counts))),
        tuple(count / cell["rounds"] for count in counts),
        (None,) * len(counts),
        tuple(counts),
    )
