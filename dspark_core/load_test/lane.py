"""The methods that are compared: a drafter and a schedule under a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dspark_core.draft_folders import DFLASH
from dspark_core.errors import ParameterError
from dspark_core.fields import shown
from dspark_core.params import ScheduleParams
from dspark_core.scheduling import POLICIES, policy_named

PLAIN = "plain"
_FIXED, _THRESHOLD = "fixed", "threshold"
_WAY_OUT = (
    f"A lane is {PLAIN}, or POLICY, or DRAFTER+POLICY, with policies {', '.join(POLICIES)}; {_FIXED}@4 verifies 4 "
    f"drafts a round, {_THRESHOLD}@0.6 cuts at 0.6."
)


@dataclass(frozen=True, slots=True)
class Lane:
    """A way to answer.

    Attributes:
        name: key in the report, as it was asked for.
        drafter: a name that the engine knows.
        schedule: how many of the drafts are verified.
        own_drafter: whether it is the drafter that all lanes have which name none.
    """

    name: str
    drafter: str
    schedule: ScheduleParams
    own_drafter: bool = True


def default_lanes(drafters: Sequence[str]) -> list[str]:
    """Plain decoding, a fixed length, dflash with a threshold where there is a dflash, and every other policy."""
    dflash = [f"{DFLASH}+{_THRESHOLD}"] if DFLASH in drafters else []
    return [PLAIN, _FIXED, *dflash, *(name for name in POLICIES if name != _FIXED)]


def lane_named(name: str, drafter: str, schedule: ScheduleParams) -> Lane:
    """The lane of that name.

    ``fixed`` verifies the whole block (γ drafts, or ``schedule.l_max`` if that is less) in every round, and never backs
    off: the others are compared with it. They stay within the bounds of ``schedule``.

    Args:
        name: see `_WAY_OUT`.
        drafter: whose drafts are taken where the name has no drafter.
        schedule: bounds and numbers of the policies.

    Raises:
        ParameterError: no lane is called so.
    """
    if name == PLAIN:
        return Lane(name, "none", replace(schedule, policy=_FIXED, l_min=0, l_max=0))
    own, plus, rest = name.rpartition("+")
    policy, at, number = rest.partition("@")
    if (plus and not own) or policy not in POLICIES or (at and policy not in (_FIXED, _THRESHOLD)):
        raise ParameterError(f"There is no lane named {shown(name)}. {_WAY_OUT}")
    policy_named(policy)
    schedule = replace(schedule, policy=policy, back_off=False if policy == _FIXED else schedule.back_off)
    if at:
        schedule = _with_number(name, schedule, number)
    return Lane(name, own or drafter, schedule, not plus or own == drafter)


def _with_number(name: str, schedule: ScheduleParams, number: str) -> ScheduleParams:
    try:
        if schedule.policy == _THRESHOLD:
            return replace(schedule, threshold=float(number))
        length = int(number)
    except ValueError as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError(
            f"There is no lane named {shown(name)}: {shown(number)} is no number. {_WAY_OUT}"
        ) from None
    return replace(schedule, l_min=max(0, min(schedule.l_min, length)), l_max=length)
