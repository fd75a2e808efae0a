"""The scheduler's protocol: plain numbers in, verification lengths out. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from dspark_core.errors import ParameterError
from dspark_core.events import LoadReading, LoadSample
from dspark_core.params import ScheduleParams
from dspark_core.scheduling.step_curve import StepCurve


@dataclass(frozen=True, slots=True)
class DraftView:
    """What a policy may know of one request's draft block.

    Attributes:
        num_drafted: n, tokens drafted this round, 0 for plain decoding.
        confidences: c_1 … c_n, and c_{n+1} where it made drafting stop before x_{n+1} was drawn; None when the drafter
            has no confidence head.
        schedule: bounds and threshold in force.
        room: how many drafts the request can still use (token limit, context end).
        earlier: the survivals that this request had two of its rounds before, under the same policy; None where there
            was no such round.
        resting: why nothing was drafted though it could have been (see `back_off`), or ''.
        survivals: a_k = c_1 · … · c_k of the known confidences; none without a confidence head.
    """

    num_drafted: int
    confidences: tuple[float, ...] | None
    schedule: ScheduleParams
    room: int
    earlier: tuple[float, ...] | None = None
    resting: str = ""
    survivals: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        survival, products = 1.0, []
        for confidence in self.confidences or ():
            if not 0.0 <= confidence <= 1.0:
                confidence = 1.0 if confidence > 1 else 0.0  # NaN becomes 0: never verified unread
            survival *= confidence
            products.append(survival)
        object.__setattr__(self, "survivals", tuple(products))

    def after(self, earlier: tuple[float, ...] | None) -> DraftView:
        """The same view with these survivals of two rounds before; asked for all requests of every round, so cheap."""
        seen = object.__new__(DraftView)
        for name in self.__slots__:
            object.__setattr__(seen, name, getattr(self, name))
        object.__setattr__(seen, "earlier", earlier)
        return seen

    @property
    def lower(self) -> int:
        """L_min as far as drafts and room allow."""
        return min(self.schedule.l_min, self.upper)

    @property
    def upper(self) -> int:
        """L_max as far as drafts and room allow."""
        return max(0, min(self.schedule.l_max, self.num_drafted, self.room))

    @property
    def num_judged(self) -> int:
        """Positions within L_max and room that the policy can judge: `upper`, and the one at which drafting stopped."""
        return max(0, min(self.schedule.l_max, max(self.num_drafted, len(self.confidences or ())), self.room))

    @property
    def upper_reason(self) -> str:
        """What bounds `upper`, for the screen."""
        if self.upper == self.room < min(self.schedule.l_max, self.num_drafted):
            return f"{self.upper} (all that the token limit leaves)"
        if self.num_drafted < self.schedule.l_max:
            return f"{self.upper} (all that were drafted)"
        return f"L_max = {self.upper}"


@dataclass(frozen=True, slots=True)
class RoundView:
    """What a policy may know of the round beside the drafts. All of it is known before the round's drafts are drawn,
    but for the two sums of what other policies have settled; these never depend on drafts that nobody verifies.

    Attributes:
        load: the load sample, the engine's own figures included; what a request simulates is in its schedule.
        step_curve: SPS(B) of this machine, or None where it has not been measured.
        drafting_s: seconds of the round's drafting by the profile, for the drafts that were asked for, or that were to
            be expected by earlier rounds. Not the time that it took, which may depend on the drafts.
        settled_tokens: tokens of the pass that other policies have decided on already, anchors included.
        settled_expected: tokens that these are expected to commit: 1 and the survivals of the verified drafts for each.
        requests: requests in the round; like the rest, known before anything is drafted.
        forced_tokens: drafts that the pass may hold whatever their survivals: L_min of those that are weighed by the
            step curve, all of those that are not.
        weighed_requests: requests that draft, and whose drafts are weighed by the step curve.
        expected_drafts: drafts of each request that ``drafting_s`` is for, on the mean.
        draft_s: seconds that one more draft costs one request, by the profile.
    """

    load: LoadSample
    step_curve: StepCurve | None = None
    drafting_s: float = 0.0
    settled_tokens: int = 0
    settled_expected: float = 0.0
    requests: int = 1
    forced_tokens: int = 0
    weighed_requests: int = 1
    expected_drafts: float = 0.0
    draft_s: float = 0.0

    def drafting_of(self, drafts: int) -> float:
        """Seconds of the round's drafting if the requests that are weighed draft so many tokens each."""
        return max(0.0, self.drafting_s + (drafts - self.expected_drafts) * self.weighed_requests * self.draft_s)

    def reading(self, schedule: ScheduleParams) -> LoadReading:
        """The load that the schedule names; without a value, with the reason."""
        return load_for(schedule, self.load).reading(schedule.load_signal)


def load_for(schedule: ScheduleParams, load: LoadSample) -> LoadSample:
    """The sample as a request with this schedule sees it: with the load that it simulates, if it does."""
    simulated = schedule.simulated_load if schedule.load_signal == "simulated" else None
    return replace(load, simulated=simulated)


@dataclass(frozen=True, slots=True)
class Plan:
    """A verification length ℓ and why it was chosen, for the screen; ``signal`` is the load that decided, if any.

    ``throughputs`` are the Θ that were weighed, if any: see `events.Inspection`.
    """

    verify_len: int
    reason: str
    signal: LoadReading | None = None
    throughputs: tuple[float, ...] = ()


def without_drafts(view: DraftView) -> Plan | None:
    """The plan of a round in which the policy has nothing to judge, or None when it has."""
    if view.schedule.l_max == 0:
        return Plan(0, "L_max = 0")
    if view.num_drafted == 0 and not view.confidences:
        return Plan(0, view.resting or "nothing was drafted")
    if view.num_judged == 0:
        return Plan(0, "the token limit leaves no room for drafts")
    return None


def confidences_for(policy: str, view: DraftView) -> tuple[float, ...]:
    """The confidences that this policy judges by. Raises ParameterError where the drafter gave none."""
    if view.confidences is None and view.num_drafted:
        raise ParameterError(
            f"The {policy} policy needs confidences, and this drafter has no confidence head. "
            "Choose the policy 'fixed' or another drafter."
        )
    return view.confidences or ()


def curve_for(policy: str, curve: StepCurve | None, drafter: str | None = None) -> StepCurve:
    """The step curve that this policy weighs by, with the cost of ``drafter``'s drafting where one is named.

    Raises:
        ParameterError: the one or the other has not been measured.
    """
    if curve is None:
        raise ParameterError(
            f"The policy {policy!r} weighs drafts by what a step costs on this machine, and that has not been measured "
            "for this model. Measure it once with: python -m dspark_core profile. Or choose a policy that needs no "
            "step curve, without back-off: 'threshold', 'banded' or 'fixed'."
        )
    if drafter is not None and drafter not in curve.drafting:
        known = ", ".join(curve.drafting) or "none"
        raise ParameterError(
            f"The policy {policy!r} weighs drafts by what a step costs on this machine, and the drafting of "
            f"{drafter!r} is not in the profile (it has: {known}). Measure again, with the same --draft-model: "
            "python -m dspark_core profile --force. Or choose a policy that needs no step curve, without back-off: "
            "'threshold', 'banded' or 'fixed'."
        )
    return curve


class SchedulerPolicy(Protocol):
    """Chooses ℓ for each request. Must be non-anticipating: whether x_k is verified depends on c_1 … c_k only.

    A policy that weighs requests against each other may look at their confidences too, as long as nothing that it
    decides depends on any confidence beyond the first that is not admitted: each is known before its token is drawn.
    """

    name: str
    needs_confidence: bool  # whether it can serve only drafters with a confidence head
    needs_curve: bool  # whether it cannot decide without the step curve

    def plan(self, views: Sequence[DraftView], around: RoundView) -> list[Plan]:
        """One plan a view, ``lower ≤ verify_len ≤ upper``. Raises ParameterError when it cannot serve a view."""

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams, around: RoundView) -> bool:
        """Whether x_k may still be verified, given c_1 … c_k with k = ``len(confidences)``; pure.

        It is asked before x_k is drawn, and drafting stops at the first no. So it must say yes wherever `plan` would
        admit x_k, and, once it said no, `plan` must cut there or earlier whatever would have been drafted.
        """
