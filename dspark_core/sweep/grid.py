"""From the values of the axes to the settings that are measured, and those that are left out, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import prod
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.params import SamplingParams, ScheduleParams
from dspark_core.ports import Info, Session
from dspark_core.scheduling import default_l_min, policy_named
from dspark_core.sweep.values import AXES, Value, read_values

MAX_POINTS = 256
_MOST_COMBINATIONS = 4096  # looked at; beyond that even the list of what is left out helps nobody
_HEEDS = {"fixed": frozenset({"l_max"}), "threshold": frozenset({"l_min", "l_max", "threshold"})}
_HEEDS_ELSE = frozenset({"l_min", "l_max"})  # the other policies
_PROBE = [{"role": "user", "content": "?"}]


@dataclass(frozen=True, slots=True)
class Point:
    """One setting.

    Attributes:
        drafter, policy: by name.
        gamma: γ, at most so many drafts are drawn in a round.
        l_min, l_max: bounds of the verification length.
        threshold: of the policy ``threshold``.
        temperature: of the text's law; plain decoding beside it has the same.
    """

    drafter: str
    policy: str
    gamma: int
    l_min: int
    l_max: int
    threshold: float
    temperature: float

    @property
    def schedule(self) -> ScheduleParams:
        """As a request asks for it: drafting ends at the cut, and at L_max. Raises ParameterError."""
        return ScheduleParams(self.policy, self.l_min, self.l_max, self.threshold)

    def sampling(self, max_new_tokens: int, seed: int = 0) -> SamplingParams:
        """The law. Raises ParameterError."""
        return SamplingParams(temperature=self.temperature, max_new_tokens=max_new_tokens, seed=seed)

    @property
    def heeded(self) -> frozenset[str]:
        """Which of l_min, l_max and threshold the policy looks at."""
        return _HEEDS.get(self.policy, _HEEDS_ELSE)

    @property
    def effect(self) -> tuple[Value, ...]:
        """What the engine does with it: settings of one effect are one setting."""
        numbers = [getattr(self, name) if name in self.heeded else -1 for name in ("l_min", "l_max", "threshold")]
        return (self.drafter, self.policy, self.temperature, *numbers)

    def to_json(self) -> dict[str, Any]:
        """Its fields by name."""
        return asdict(self)

    def __str__(self) -> str:
        said = [f"{self.drafter}, {self.policy}"]
        said += [f"L_min {self.l_min}"] if "l_min" in self.heeded else []
        said += [f"L_max {self.l_max}"]
        said += [f"threshold {self.threshold:g}"] if "threshold" in self.heeded else []
        return ", ".join([*said, f"γ {self.gamma}", f"temperature {self.temperature:g}"])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A combination that is not measured, and why."""

    point: Point
    reason: str


@dataclass(frozen=True, slots=True)
class Grid:
    """What a sweep measures.

    Attributes:
        points: the settings, in the order of the axes.
        left_out: combinations that are not measured.
        swept: names of the axes with more than one value among the points.
    """

    points: tuple[Point, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def swept(self) -> tuple[str, ...]:
        """Names of the axes that the points differ in."""
        return swept_axes([point.to_json() for point in self.points])


def swept_axes(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names of the axes in which these settings (of points, by name) differ."""
    return tuple(axis.name for axis in AXES if len({setting[axis.name] for setting in settings}) > 1)


def grid_of(session: Session, texts: Mapping[str, str]) -> Grid:
    """The grid that the axes' texts ask for; an axis without a text has its default.

    The defaults: the session's first drafter, the policy ``threshold``, γ as large as the drafters go, L_min as the
    policy has it, L_max = γ, the default threshold, temperature 0.

    Raises:
        ParameterError: a text is not understood, names an unknown drafter or policy, asks for too much, or nothing can
            be measured.
    """
    values = {axis.name: read_values(axis, texts.get(axis.name) or "") for axis in AXES}
    _check_names(session.info, values)
    combinations = prod(max(1, len(of)) for of in values.values())
    if combinations > _MOST_COMBINATIONS:
        raise ParameterError(
            f"The grid has {combinations:,} combinations; at most {_MOST_COMBINATIONS:,} are looked at. Take fewer "
            "values of some axis."
        )
    points, left_out = _sorted_out(session, _combined(session.info, values))
    if not points:
        why = f" The first: {left_out[0].point}: {left_out[0].reason}" if left_out else ""
        raise ParameterError(f"None of the {combinations} combinations can be measured.{why}")
    if len(points) > MAX_POINTS:
        raise ParameterError(
            f"The grid has {len(points)} settings to measure; at most {MAX_POINTS} are. Take fewer values of some axis."
        )
    return Grid(tuple(points), tuple(left_out))


def _check_names(info: Info, values: Mapping[str, tuple[Value, ...]]) -> None:
    for name in values["policy"]:
        policy_named(str(name))
    for name in values["drafter"]:
        if name not in info.drafters:
            raise ParameterError(
                f"There is no drafter named {name!r} here. Choose from: {', '.join(info.drafters)}. More are loaded "
                "with --draft-model."
            )


def _combined(info: Info, values: Mapping[str, tuple[Value, ...]]) -> Iterator[Point]:
    """Every combination, defaults filled in."""
    usual = ScheduleParams()
    defaults: dict[str, tuple[Value | None, ...]] = {
        "drafter": (next(iter(info.drafters)),),
        "policy": (usual.policy,),
        "gamma": (info.num_draft_tokens,),
        "threshold": (usual.threshold,),
        "temperature": (0.0,),
    }
    for chosen in product(*(values[axis.name] or defaults.get(axis.name, (None,)) for axis in AXES)):
        setting: dict[str, Any] = dict(zip((axis.name for axis in AXES), chosen, strict=True))
        if setting["l_max"] is None:
            setting["l_max"] = setting["gamma"]
        if setting["l_min"] is None:
            setting["l_min"] = min(default_l_min(setting["policy"]), setting["l_max"])
        yield Point(**setting)


def _sorted_out(session: Session, combined: Iterator[Point]) -> tuple[list[Point], list[LeftOut]]:
    points: dict[tuple[Value, ...], Point] = {}
    left_out: list[LeftOut] = []
    refusals: dict[tuple[str, str], str] = {}
    for point in combined:
        reason = _reason(session, point, refusals)
        if not reason and point.effect in points:
            reason = _same(point, points[point.effect])
        if reason:
            left_out.append(LeftOut(point, reason))
        else:
            points[point.effect] = point
    return list(points.values()), left_out


def _reason(session: Session, point: Point, refusals: dict[tuple[str, str], str]) -> str:
    """Why the point cannot be measured, or ''."""
    top = session.info.num_draft_tokens
    if point.drafter == "none":
        return "plain decoding runs beside every setting already; its speed is in each row"
    if point.policy not in session.info.policies:
        return f"the policy {point.policy!r} cannot serve here ({session.info.step_curve})"
    if not 1 <= point.gamma <= top:
        return f"γ = {point.gamma} is outside of 1 to {top}, the most that the drafters here draft"
    if point.l_max > point.gamma:
        return f"L_max {point.l_max} is above γ = {point.gamma}: no more can be verified than are drafted"
    try:
        schedule, sampling = point.schedule, point.sampling(1)
    except ParameterError as error:
        return str(error)
    served = (point.drafter, point.policy)
    if served not in refusals:
        try:
            session.request(_PROBE, sampling, schedule, point.drafter)
            refusals[served] = ""
        except ParameterError as error:
            refusals[served] = str(error)
    return refusals[served]


def _same(point: Point, other: Point) -> str:
    """Which measured setting it equals, and why."""
    ignored = [axis for axis in AXES if getattr(point, axis.name) != getattr(other, axis.name)]
    names = " and ".join(axis.symbol for axis in ignored)
    if [axis.name for axis in ignored] == ["gamma"]:
        why = "no more than L_max drafts are drawn, whatever γ is"
    else:
        why = f"the policy {point.policy!r} does not look at {names}"
    return f"it does the same as {other}: {why}"
