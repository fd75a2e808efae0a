"""Which lanes the page offers: those that the open session takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dspark_core.bench.duel import MAX_LANES, duel_lanes
from dspark_core.errors import DSparkError, ParameterError, shown
from dspark_core.load_test.lane import PLAIN, Lane
from dspark_core.params import SamplingParams
from ui.ports import SessionPort

_POLICIES = ("threshold@0.3", "threshold@0.6", "prefix", "delayed", "banded", "fixed@2", "fixed@4", "fixed@8")
_FIRST = ("threshold@0.3", "fixed@4")  # of a drafter, where nobody has chosen
_NONE = "none"


def offered_lanes(session: SessionPort) -> list[str]:
    """Plain decoding, and every drafter with every policy that it can have here. Any other may be typed in."""
    wanted = [f"{drafter}+{policy}" for drafter in session.info.drafters if drafter != _NONE for policy in _POLICIES]
    return [PLAIN, *(lane.name for lane in _lanes(wanted) if _takes(session, lane))]


def check_lane(name: str, session: SessionPort | None = None) -> None:
    """Raises DSparkError for what is no lane's name, or one that the open session does not take."""
    if name.strip() == PLAIN:
        return
    (lane,) = _lanes([name.strip()])
    if session is None:
        return
    drafter = lane.drafter if lane.drafter != _NONE else next(iter(session.info.drafters))  # a policy alone
    try:
        _ask(session, replace(lane, drafter=drafter))
    except DSparkError as error:
        raise ParameterError(f"The lane {shown(name)} cannot run here. {error}") from error


def first_choice(offered: Sequence[str]) -> list[str]:
    """Plain decoding and the usual way of each drafter, as many as may race."""
    drafters = dict.fromkeys(name.partition("+")[0] for name in offered if name != PLAIN)
    usual = [
        next((f"{drafter}+{policy}" for policy in _FIRST if f"{drafter}+{policy}" in offered), None)
        for drafter in drafters
    ]
    return [PLAIN, *(name for name in usual if name)][:MAX_LANES]


def _lanes(names: Sequence[str]) -> list[Lane]:
    return [duel_lanes((PLAIN, name), _NONE)[1] for name in names]


def _ask(session: SessionPort, lane: Lane) -> None:
    message = [{"role": "user", "content": "?"}]
    session.request(message, SamplingParams(max_new_tokens=1), lane.schedule, lane.drafter)


def _takes(session: SessionPort, lane: Lane) -> bool:
    try:
        _ask(session, lane)
    except DSparkError:
        return False
    return True
