"""What a sweep has measured so far: a row for each setting, every figure telemetry's, with its interval.

A row's unit is a prompt (its repeats together); with a single prompt, an answer. Ratios are medians over the units,
each against plain decoding's answers beside it; intervals are bootstrapped over the units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dspark_core.bench.paired import same_answers, speed_ratio
from dspark_core.bench.run import Run
from dspark_core.evaluate.resampled import Resampled
from dspark_core.sweep.grid import Point
from dspark_core.sweep.launch import launch
from dspark_core.sweep.pareto import front
from dspark_core.sweep.plan import Step
from dspark_core.telemetry import Summary, merge


@dataclass(frozen=True, slots=True)
class Measured:
    """One answer of a sweep.

    Attributes:
        step: which one.
        run: its figures.
        gamma: γ of the drafter that answered.
        beside: whether other answers ran on the engine at the same time, which falsifies its speed.
    """

    step: Step
    run: Run
    gamma: int
    beside: bool


FIGURES: dict[str, Callable[[Summary], float | None]] = {
    "tau": lambda summary: summary.tau if summary.rounds else None,
    "acceptance": lambda summary: summary.acceptance_rate,
    "wasted_share": lambda summary: summary.wasted_share,
    "waste": lambda summary: summary.wasted_per_token,
    "budget": lambda summary: summary.budget,
}


class Results:
    """Collects answers; `rows` may be asked at any time.

    Args:
        points: the settings.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = tuple(points)
        self.failures: dict[int, str] = {}
        self._of_point: dict[int, list[Measured]] = defaultdict(list)
        self._plain: dict[int, Measured] = {}  # by group
        self._rows: dict[int, tuple[int, dict[str, Any]]] = {}  # what was counted, and the row made of it

    def add(self, measured: Measured) -> None:
        """Take one answer."""
        if measured.step.point is None:
            self._plain[measured.step.group] = measured
        else:
            self._of_point[measured.step.point].append(measured)

    def fail(self, point: int, why: str) -> None:
        """This setting ended with an error and is asked no more."""
        self.failures[point] = why

    @property
    def answers(self) -> int:
        """Answers taken, plain decoding's among them."""
        return len(self._plain) + sum(map(len, self._of_point.values()))

    def rows(self) -> list[dict[str, Any]]:
        """The settings that have been measured or have failed, in the grid's order, the front and the best marked."""
        known = [index for index in range(len(self.points)) if self._of_point.get(index) or index in self.failures]
        return marked([self._row(index) for index in known])

    def plain(self) -> dict[str, dict[str, Any]]:
        """Plain decoding by temperature: all of its answers."""
        of: dict[str, list[Measured]] = defaultdict(list)
        for measured in self._plain.values():
            of[f"{measured.step.temperature:g}"].append(measured)
        return {
            temperature: {
                "tokens_per_s": merge(it.run.summary for it in answers).tokens_per_s,
                "answers": len(answers),
                "beside": sum(it.beside for it in answers),
            }
            for temperature, answers in of.items()
        }

    def _row(self, index: int) -> dict[str, Any]:
        mine = self._of_point.get(index, [])
        paired = [it for it in mine if it.step.group in self._plain]
        counted = len(mine) + len(paired)
        kept = self._rows.get(index)
        if kept is None or kept[0] != counted:
            kept = (counted, row_of(self.points[index], mine, [(it, self._plain[it.step.group]) for it in paired]))
            self._rows[index] = kept
        return {"id": index, **kept[1], "failure": self.failures.get(index, "")}


def row_of(point: Point, mine: Sequence[Measured], pairs: Sequence[tuple[Measured, Measured]]) -> dict[str, Any]:
    """One setting's figures: from all of its answers, and its speed from those with a plain one beside them."""
    summary = merge(it.run.summary for it in mine)
    units = [merge(it.run.summary for it in unit) for unit in _units(mine)]
    resampled = Resampled([_totals(unit) for unit in units])
    ours, theirs = _paired_units(pairs)
    ratio = speed_ratio(ours, theirs)
    greedy = point.temperature == 0 and bool(pairs)
    row: dict[str, Any] = {
        **point.to_json(),
        "drafter_gamma": max((it.gamma for it in mine), default=None),
        "ratio": ratio and ratio.median,
        "ratio_95": ratio and ([ratio.low, ratio.high] if ratio.n > 1 else None),
        "n": len(units),
        "over": "prompts" if len({it.step.prompt for it in mine}) > 1 else "answers",
        "answers": len(mine),
        "beside": sum(it.beside for it in mine) + sum(plain.beside for _, plain in pairs),
        "tokens_per_s": summary.tokens_per_s if summary.rounds else None,
        "plain_tokens_per_s": merge(plain.run.summary for _, plain in pairs).tokens_per_s if pairs else None,
        "same": same_answers([it.run for it, _ in pairs], [plain.run for _, plain in pairs]) if greedy else None,
        "launch": launch(point),
    }
    for name, figure in FIGURES.items():
        row[name] = figure(summary)
        row[f"{name}_95"] = resampled.interval(figure)
    counts = ("rounds", "tokens", "drafted", "verified", "accepted", "draft_s", "schedule_s", "verify_s")
    return row | {name: getattr(summary, name) for name in counts}


def marked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with ``front``: nobody is faster and wastes less; ``best``: the fastest; ``near``: not told apart from
    it, since the intervals overlap."""
    known = [row for row in rows if row["ratio"] is not None and row["waste"] is not None]
    on_front = {id(known[at]) for at in front([(row["ratio"], row["waste"]) for row in known])}
    best = max(known, key=lambda row: row["ratio"], default=None)
    return [
        {**row, "front": id(row) in on_front, "best": row is best, "near": best is not None and _near(row, best)}
        for row in rows
    ]


def _near(row: dict[str, Any], best: dict[str, Any]) -> bool:
    if row is best or not row["ratio_95"] or not best["ratio_95"]:
        return False
    return bool(row["ratio_95"][1] >= best["ratio_95"][0])


def _units(mine: Sequence[Measured]) -> list[list[Measured]]:
    by_prompt: dict[int, list[Measured]] = defaultdict(list)
    for it in mine:
        by_prompt[it.step.prompt].append(it)
    return list(by_prompt.values()) if len(by_prompt) > 1 else [[it] for it in mine]


def _paired_units(pairs: Sequence[tuple[Measured, Measured]]) -> tuple[list[Run], list[Run]]:
    """The units' speeds, ours and plain decoding's, as one run each."""
    plain_of = {id(ours): plain for ours, plain in pairs}
    units = _units([ours for ours, _ in pairs])
    ours = [_as_one([it.run.summary for it in unit]) for unit in units]
    return ours, [_as_one([plain_of[id(it)].run.summary for it in unit]) for unit in units]


def _as_one(summaries: Sequence[Summary]) -> Run:
    return Run((), merge(summaries), 0.0)


def _totals(summary: Summary) -> Summary:
    """Without what no figure here is made of: resampling adds thousands of them."""
    return replace(summary, conditional=(), survival=(), accepted_lengths=())
