"""What a load test came to, as one JSON-able dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import TYPE_CHECKING, Any

from dspark_core.load_test.figures import SUM_FIGURES, counted, mean_users, ratio
from dspark_core.load_test.goals import goals
from dspark_core.load_test.lane import PLAIN, Lane
from dspark_core.load_test.resampled import Figure, Level
from dspark_core.load_test.trace import AnswerTrace, CellTrace

if TYPE_CHECKING:
    from dspark_core.load_test.race import Measured

_MEDIAN, _HIGH = 0.5, 0.95
_OF_A_SET = ("tau", "budget", "wasted_share", "wasted_per_token")  # the sets share the pass: no throughput of one


def results(lanes: Sequence[Lane], measured: Measured) -> dict[str, Any]:
    """``results[lane][users]`` with the figures and their 95 % intervals, ``goals``, and what is missing.

    Times are in seconds, ``throughput`` and ``user_tokens_per_s`` in tokens a second; see `figures` and `trace` for
    what each one is. ``over[other]`` is the lane's throughput over that of plain decoding and of the fixed lengths;
    ``by_set`` has what is verified for the prompts of each set, which were asked side by side.
    """
    levels = {users: Level(measured.cells[users]) for users in sorted(measured.cells)}
    by_set = {users: _by_set(measured.cells[users]) for users in levels}
    baselines = [lane.name for lane in lanes if lane.name == PLAIN or lane.schedule.policy == "fixed"]
    return {
        "measured": True,
        "results": {
            lane.name: {
                str(users): cell_figures(lane.name, baselines, level, measured.cells[users][lane.name])
                | {"by_set": {kind: _sums(lane.name, of, _OF_A_SET) for kind, of in by_set[users].items()}}
                for users, level in levels.items()
            }
            for lane in lanes
        },
        "goals": goals(lanes, levels),
        "partial": measured.partial,
        "failure": measured.failure,
    }


def cell_figures(name: str, baselines: Sequence[str], level: Level, cells: Sequence[CellTrace]) -> dict[str, Any]:
    """The figures of one lane at one number of users, whose ``cells`` are in ``level``; see `results`."""
    found = _sums(name, level, SUM_FIGURES)
    found |= _named("user_tokens_per_s", level.of_answers(name, lambda answer: answer.tokens_per_s, _MEDIAN))
    found |= _named("first_token_s", level.of_answers(name, _first_token_s, _MEDIAN))
    found |= _named("first_token_p95_s", level.of_answers(name, _first_token_s, _HIGH))
    found["at_once_first_token_s"] = level.first_of_all(name, _MEDIAN)
    found["at_once_first_token_p95_s"] = level.first_of_all(name, _HIGH)
    found["over"] = {other: over_throughput(name, other, level) for other in baselines if other != name}
    return found | {
        "repeats": len(cells),
        "answers": sum(len(counted(cell)) for cell in cells),
        "window_s": sum(cell.wall_s for cell in cells),
        "mean_users": mean(mean_users(cell) for cell in cells),
    }


def _sums(name: str, level: Level, figures: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for figure in figures:
        found |= _named(figure, level.figure(name, figure))
    return found


def _by_set(cells: Mapping[str, Sequence[CellTrace]]) -> dict[str, Level]:
    """The levels of each set, in the order of the list of questions."""
    listed = sorted((a for of in cells.values() for cell in of for a in cell.answers if a.index >= 0), key=_index)
    kinds = dict.fromkeys(answer.kind for answer in listed)
    return {kind: Level(cells, kind) for kind in kinds}


def _index(answer: AnswerTrace) -> int:
    return answer.index


def _first_token_s(answer: AnswerTrace) -> float | None:
    return answer.first_token_s


def over_throughput(name: str, other: str, level: Level) -> dict[str, Any]:
    """The throughput of one lane over that of another, paired."""
    figure = level.combined([name, other], lambda sums: ratio(sums[0].throughput, sums[1].throughput))
    return _named("throughput", figure)


def _named(name: str, figure: Figure) -> dict[str, Any]:
    return {name: figure.value, f"{name}_interval": list(figure.interval) if figure.interval else None}


def answer_rows(measured: Measured) -> list[dict[str, Any]]:
    """One row an answer, counted or not, for other programs: what was recorded, before any figure is made of it."""
    return [
        {
            "users": users,
            "lane": lane,
            "repeat": repeat,
            "index": answer.index,
            "set": answer.kind,
            "counted": answer in counted(cell),
            "submitted_s": answer.submitted_s - cell.start_s,
            "first_token_s": answer.first_token_s,
            "ended_s": None if answer.ended_s is None else answer.ended_s - cell.start_s,
            "window_s": cell.wall_s,
            "tokens": answer.tokens,
            "rounds": len(answer.commits),
            "verified": sum(commit.verified for commit in answer.commits),
            "accepted": sum(commit.accepted for commit in answer.commits),
            "tokens_per_s": answer.tokens_per_s,
        }
        for users, lanes in measured.cells.items()
        for lane, cells in lanes.items()
        for repeat, cell in enumerate(cells)
        for answer in cell.answers
    ]


def lane_settings(lanes: Sequence[Lane]) -> Mapping[str, Any]:
    """Drafter and schedule of each lane."""
    return {lane.name: {"drafter": lane.drafter, **asdict(lane.schedule)} for lane in lanes}
