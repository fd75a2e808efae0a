"""The policies by name."""

from __future__ import annotations

from dspark_core.errors import ParameterError, shown
from dspark_core.params import ScheduleParams
from dspark_core.scheduling.banded import BandedPolicy
from dspark_core.scheduling.delayed import DelayedPolicy
from dspark_core.scheduling.fixed import FixedPolicy
from dspark_core.scheduling.policy import SchedulerPolicy
from dspark_core.scheduling.prefix import PrefixPolicy
from dspark_core.scheduling.retrospective import RetrospectivePolicy
from dspark_core.scheduling.threshold import ThresholdPolicy

_LOSSLESS: tuple[SchedulerPolicy, ...] = (
    ThresholdPolicy(),
    FixedPolicy(),
    BandedPolicy(),
    PrefixPolicy(),
    DelayedPolicy(),
)
POLICIES: dict[str, SchedulerPolicy] = {policy.name: policy for policy in _LOSSLESS}
LAB_POLICIES: dict[str, SchedulerPolicy] = {policy.name: policy for policy in (RetrospectivePolicy(),)}


def policy_named(name: str, *, lab: bool = False) -> SchedulerPolicy:
    """The policy of that name.

    Args:
        name: one of `POLICIES`, or of `LAB_POLICIES` in a lab.
        lab: whether biased policies may be used, to show what they do to the text's law.

    Raises:
        ParameterError: an unknown name, or a biased policy outside of a lab.
    """
    policy = POLICIES.get(name) or (LAB_POLICIES.get(name) if lab else None)
    if policy is not None:
        return policy
    known = ", ".join(POLICIES)
    if name in LAB_POLICIES:
        raise ParameterError(
            f"The policy {name!r} is biased: with it the text no longer follows the target's law. It is there to show "
            f"that in tests and in the losslessness lab, and runs nowhere else. Choose one of: {known}."
        )
    raise ParameterError(f"There is no policy named {shown(name)}. Choose one of: {known}.")


def default_l_min(name: str) -> int:
    """L_min where none is asked for. Raises ParameterError for a policy that does not exist.

    A policy that weighs each draft by what it costs knows when none pays; L_min would put drafts into a full pass
    against its word. The others keep one, or a doubtful first token would make the whole drafting vain.
    """
    return 0 if policy_named(name).needs_curve else ScheduleParams().l_min
