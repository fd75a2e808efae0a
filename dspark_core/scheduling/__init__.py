"""How many drafted tokens to verify: policies by name, and the load they may look at."""

from dspark_core.errors import ParameterError
from dspark_core.scheduling.fixed import FixedPolicy
from dspark_core.scheduling.policy import DraftView, Plan, SchedulerPolicy
from dspark_core.scheduling.threshold import ThresholdPolicy

__all__ = ["POLICIES", "DraftView", "FixedPolicy", "Plan", "SchedulerPolicy", "ThresholdPolicy", "policy_named"]

POLICIES: dict[str, SchedulerPolicy] = {policy.name: policy for policy in (ThresholdPolicy(), FixedPolicy())}


def policy_named(name: str) -> SchedulerPolicy:
    """The policy of that name. Raises ParameterError for an unknown one."""
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(POLICIES)
        raise ParameterError(f"There is no policy named {name!r}. Choose one of: {known}.") from None
