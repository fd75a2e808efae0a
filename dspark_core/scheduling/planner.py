"""The plans of a round: requests by policy, each policy asked once for all of its own, and what they had before."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from weakref import WeakKeyDictionary

from dspark_core.errors import ParameterError
from dspark_core.events import LoadSample
from dspark_core.params import ScheduleParams
from dspark_core.scheduling.back_off import BackOff, Judgement, Wish
from dspark_core.scheduling.policies import LAB_POLICIES, POLICIES, policy_named
from dspark_core.scheduling.policy import DraftView, Plan, RoundView, SchedulerPolicy, curve_for, without_drafts
from dspark_core.scheduling.prefix import PrefixPolicy
from dspark_core.scheduling.step_curve import StepCurve

LAG = 2  # rounds that `DraftView.earlier` lies behind


class Planner:
    """One decode loop's scheduler. It remembers each request's last rounds for as long as the request lives.

    Args:
        step_curve: SPS(B) of this machine; without it, policies that need one are refused.
        lab: whether biased policies may be used, to show what they do.
        back_off: which requests rest from drafts.
    """

    def __init__(
        self, step_curve: StepCurve | None = None, *, lab: bool = False, back_off: BackOff | None = None
    ) -> None:
        self.step_curve = step_curve
        self._lab = lab
        self._back_off = back_off or BackOff()
        self._drafted: WeakKeyDictionary[object, int] = (
            WeakKeyDictionary()
        )  # drafts drawn in the round that was planned
        self._past: WeakKeyDictionary[object, deque[tuple[str, tuple[float, ...]]]] = WeakKeyDictionary()

    def policy_for(self, schedule: ScheduleParams, drafter: str | None = None) -> SchedulerPolicy:
        """The policy asked for, to weigh the drafts of ``drafter``.

        Raises:
            ParameterError: it is unknown or biased, or what a step costs is needed and has not been measured.
        """
        policy = policy_named(schedule.policy, lab=self._lab)
        if policy.needs_curve or schedule.back_off:
            curve_for(policy.name, self.step_curve, drafter)
        return policy

    def judge(self, owners: Sequence[object], drafting: Sequence[tuple[str, int, ScheduleParams]]) -> list[Judgement]:
        """Who drafts in the round that begins, from earlier rounds alone.

        Args:
            owners: as in `plan`.
            drafting: of each, its drafter's name, the drafts that it would draw, and its schedule.
        """
        may: dict[int, tuple[bool, bool]] = {}  # by schedule: most requests of a batch have the same one
        for _, _, schedule in drafting:
            if id(schedule) not in may:
                may[id(schedule)] = self._may_rest(schedule), _may_shorten(schedule)
        wishes = [Wish(*each, *may[id(each[2])]) for each in drafting]
        return self._back_off.judge(owners, wishes, self._curve_among(len(owners)))

    def learn(self, owner: object, verify_len: int, num_accepted: int) -> None:
        """What became of the drafts that ``owner`` drew in this round, which was planned."""
        self._back_off.learn(owner, self._drafted.get(owner, 0), verify_len, num_accepted)

    def took(self, seconds: float, of_each: Sequence[tuple[str, int, int]]) -> None:
        """How long a round took that was planned.

        Args:
            seconds: measured.
            of_each: of each request, its drafter's name, and how many drafts were drawn and verified; may be empty.
        """
        if not of_each:  # all have failed: nothing was verified
            return
        curve = self._curve_among(len(of_each))
        if curve is None:
            return
        drawn: dict[str, list[float]] = {}
        for name, drafts, _ in of_each:
            if drafts:
                drawn.setdefault(name, []).append(float(drafts))
        tokens = len(of_each) + sum(verified for _, _, verified in of_each)
        self._back_off.took(len(of_each), drawn, seconds / (curve.seconds(tokens) + curve.drafting_s(drawn)))

    def around(self, load: LoadSample, drafting: Sequence[tuple[str, int, ScheduleParams, float | None]]) -> RoundView:
        """The round before it drafts.

        Args:
            load: its sample.
            drafting: of each request, its drafter's name, the tokens that it is to draft, its schedule, and how many it
                will draw as far as `Judgement.expected` tells.
        """
        curve = self._curve_among(len(drafting))
        if curve is None:
            return RoundView(load, requests=len(drafting))
        expected: dict[str, list[float]] = {}
        forced = weighed = 0
        for name, count, schedule, drawn in drafting:
            if count == 0:
                continue
            expected.setdefault(name, []).append(float(count) if drawn is None else max(1.0, min(drawn, count)))
            weighs = self.policy_for(schedule).needs_curve
            weighed += weighs
            forced += min(count, schedule.l_min if weighs else schedule.l_max)
        return RoundView(
            load,
            curve,
            curve.drafting_s(expected),
            requests=len(drafting),
            forced_tokens=forced,
            weighed_requests=weighed,
            expected_drafts=fmean(chain.from_iterable(expected.values())) if expected else 0.0,
            draft_s=min((curve.one_more_draft_s(name, len(each)) for name, each in expected.items()), default=0.0),
        )

    def _curve_among(self, requests: int) -> StepCurve | None:
        return None if self.step_curve is None else self.step_curve.among(requests)

    def _may_rest(self, schedule: ScheduleParams) -> bool:
        if schedule.back_off is not None:
            return schedule.back_off
        return self.policy_for(schedule).needs_curve

    def plan(self, owners: Sequence[object], views: Sequence[DraftView], around: RoundView) -> list[Plan | Exception]:
        """The plan of each view, or why it has none; one that fails takes nobody with it.

        Policies that weigh requests by the step curve come last: then they know how full the pass is already.

        Args:
            owners: whose view it is: the same object in each of a request's rounds.
            views: what was drafted.
            around: the round.
        """
        nothing = _nothing_to_weigh(views)
        if nothing is not None:  # most rounds of a full batch
            self._drafted.clear()
            return nothing
        seen = [self._with_past(owner, view) for owner, view in zip(owners, views, strict=True)]
        for owner, view in zip(owners, seen, strict=True):
            self._drafted[owner] = view.num_drafted
        plans: list[Plan | Exception] = [RuntimeError("not planned")] * len(seen)
        for name in sorted({view.schedule.policy for view in seen}, key=_turn_of):
            members = [index for index, view in enumerate(seen) if view.schedule.policy == name]
            group = [seen[index] for index in members]
            try:
                made = _plans(self.policy_for(group[0].schedule), group, around)
            except ParameterError as error:
                made = [error] * len(group)
            for index, plan in zip(members, made, strict=True):
                plans[index] = plan
            around = _with_settled(around, group, made)
        for owner, view in zip(owners, seen, strict=True):
            if view.resting:
                continue  # it has drafted nothing to look back on
            past = self._past.setdefault(owner, deque(maxlen=LAG))
            past.append((view.schedule.policy, view.survivals))
        return plans

    def _with_past(self, owner: object, view: DraftView) -> DraftView:
        past = self._past.get(owner)
        # Under another policy drafting may have stopped early: what it left tells too little.
        if past is None or len(past) < LAG or any(name != view.schedule.policy for name, _ in past):
            return view
        return view.after(past[0][1])


def _nothing_to_weigh(views: Sequence[DraftView]) -> list[Plan | Exception] | None:
    """The plans of a round in which nobody has drafts or a confidence, the same by every policy; else None."""
    plans: list[Plan | Exception] = []
    for view in views:
        if view.num_drafted or view.confidences:
            return None
        plan = without_drafts(view)
        if plan is None:
            return None
        plans.append(plan)
    return plans


def _may_shorten(schedule: ScheduleParams) -> bool:
    """Whether the policy weighs what drafts cost before they are drawn, so that fewer drafts are its own choice."""
    return schedule.stop_early and schedule.policy == PrefixPolicy.name


def _turn_of(name: str) -> tuple[bool, int]:
    policies = {**POLICIES, **LAB_POLICIES}
    if name not in policies:
        return False, 0
    return policies[name].needs_curve, list(policies).index(name)


def _plans(policy: SchedulerPolicy, views: Sequence[DraftView], around: RoundView) -> list[Plan | Exception]:
    """A policy's plans for its own; where they fail together, those that also fail alone are left out."""
    try:
        plans = policy.plan(views, around)
        if len(plans) != len(views):
            raise RuntimeError(f"The policy {policy.name!r} made {len(plans)} plans for {len(views)} requests.")
    except Exception as error:  # whatever a policy raises about one request is not the others' failure
        if len(views) == 1:
            return [error]
        made = [_plans(policy, [view], around)[0] for view in views]
        well = [view for view, plan in zip(views, made, strict=True) if isinstance(plan, Plan)]
        if len(well) == len(views):
            return [error] * len(views)
        again = iter(_plans(policy, well, around) if well else ())
        return [next(again) if isinstance(plan, Plan) else plan for plan in made]
    return [_within_bounds(policy.name, view, plan) for view, plan in zip(views, plans, strict=True)]


def _within_bounds(policy: str, view: DraftView, plan: Plan) -> Plan | Exception:
    if view.lower <= plan.verify_len <= view.upper:
        return plan
    return RuntimeError(f"The policy {policy!r} left its bounds: {plan} for {view}.")


def _with_settled(around: RoundView, views: Sequence[DraftView], plans: Sequence[Plan | Exception]) -> RoundView:
    tokens, expected = around.settled_tokens, around.settled_expected
    for view, plan in zip(views, plans, strict=True):
        if isinstance(plan, Plan):
            tokens += 1 + plan.verify_len
            expected += 1 + sum(view.survivals[: plan.verify_len])
    return replace(around, settled_tokens=tokens, settled_expected=expected)
