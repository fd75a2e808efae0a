"""What confidence scheduling is to reach under load, held against what was measured.

A goal is met when the measured figure reaches it; the interval beside it tells how sure that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dspark_core.load_test.figures import Array, Sums, ratio
from dspark_core.load_test.lane import PLAIN, Lane
from dspark_core.load_test.resampled import Figure, Level

NO_LOSS = 0.97  # throughput over the better of plain decoding and a fixed length, at every N
GAIN, GAIN_FROM = 1.15, 16  # throughput over a fixed length, from so many users on
WASTE = 0.6  # wasted verification per committed token over a fixed length's: 40 % less
WASTE_THRESHOLD = 0.6  # of the threshold lane that this is asked of
SCHEDULING, SCHEDULING_AT = 0.01, 32  # share of the step, from so many users on


def goals(lanes: Sequence[Lane], levels: Mapping[int, Level]) -> list[dict[str, Any]]:
    """One JSON-able dict a goal and number of users, as far as the lanes that it is about were measured.

    Keys: ``goal``, ``users``, ``value``, ``interval``, ``wanted`` (in words), ``met``.
    """
    own = [lane for lane in lanes if lane.own_drafter]
    found = []
    for users, level in levels.items():
        for lane in own:
            if lane.schedule.policy == "prefix":
                found += list(_throughput(lane.name, own, users, level))
            if _is_asked_to_save(lane):
                found += list(_waste(lane.name, own, users, level))
            if lane.schedule.policy != "fixed" and users >= SCHEDULING_AT:
                found.append(_scheduling(lane.name, users, level))
    for lane in own:
        if lane.schedule.policy == "prefix":
            found += list(_falling_budget(lane.name, levels))
    return found


def _fixed(lanes: Sequence[Lane]) -> list[str]:
    return [lane.name for lane in lanes if lane.schedule.policy == "fixed" and lane.name != PLAIN]


def _is_asked_to_save(lane: Lane) -> bool:
    schedule = lane.schedule
    at_threshold = schedule.policy == "threshold" and schedule.threshold == WASTE_THRESHOLD
    return schedule.policy == "prefix" or at_threshold


def _throughput(name: str, lanes: Sequence[Lane], users: int, level: Level) -> Iterator[dict[str, Any]]:
    plain = any(lane.name == PLAIN for lane in lanes)
    for fixed in _fixed(lanes):
        if plain:

            def over_better(sums: list[Sums]) -> Array:
                better: Array = np.fmax(sums[1].throughput, sums[2].throughput)
                return ratio(sums[0].throughput, better)

            figure = level.combined([name, PLAIN, fixed], over_better)
            yield _at_least(f"throughput, {name} over the better of {PLAIN} and {fixed}", users, figure, NO_LOSS)
        if users >= GAIN_FROM:
            figure = level.combined([name, fixed], lambda sums: ratio(sums[0].throughput, sums[1].throughput))
            yield _at_least(f"throughput, {name} over {fixed}", users, figure, GAIN)


def _waste(name: str, lanes: Sequence[Lane], users: int, level: Level) -> Iterator[dict[str, Any]]:
    for fixed in _fixed(lanes):
        figure = level.combined([name, fixed], lambda sums: ratio(sums[0].wasted_per_token, sums[1].wasted_per_token))
        yield _at_most(f"wasted drafts per committed token, {name} over {fixed}", users, figure, WASTE)


def _scheduling(name: str, users: int, level: Level) -> dict[str, Any]:
    figure = level.figure(name, "schedule_share")
    goal = _goal(f"scheduling time over the step's, {name}", users, figure, f"below {SCHEDULING:g}")
    return goal | {"met": None if figure.value is None else figure.value < SCHEDULING}


def _falling_budget(name: str, levels: Mapping[int, Level]) -> Iterator[dict[str, Any]]:
    """From each number of users to the next larger one; a rise counts when the intervals do not meet."""
    budgets = [(users, level.figure(name, "budget")) for users, level in sorted(levels.items())]
    for (fewer, before), (users, figure) in pairwise(budgets):
        goal = _goal(f"budget per request, {name}", users, figure, f"no more than with {fewer}, within the intervals")
        low, high = _low(figure), _high(before)
        yield goal | {"met": None if low is None or high is None else low <= high}


def _low(figure: Figure) -> float | None:
    return figure.interval[0] if figure.interval else figure.value


def _high(figure: Figure) -> float | None:
    return figure.interval[1] if figure.interval else figure.value


def _at_least(goal: str, users: int, figure: Figure, wanted: float) -> dict[str, Any]:
    met = None if figure.value is None else figure.value >= wanted
    return _goal(goal, users, figure, f"at least {wanted:g}") | {"met": met}


def _at_most(goal: str, users: int, figure: Figure, wanted: float) -> dict[str, Any]:
    met = None if figure.value is None else figure.value <= wanted
    return _goal(goal, users, figure, f"at most {wanted:g}") | {"met": met}


def _goal(goal: str, users: int, figure: Figure, wanted: str) -> dict[str, Any]:
    interval = list(figure.interval) if figure.interval else None
    return {"goal": goal, "users": users, "value": figure.value, "interval": interval, "wanted": wanted}
