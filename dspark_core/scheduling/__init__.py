"""How many drafted tokens to verify: policies by name, and the load they may look at."""

from dspark_core.scheduling.policies import LAB_POLICIES, POLICIES, default_l_min, policy_named
from dspark_core.scheduling.policy import DraftView, Plan, RoundView, SchedulerPolicy, load_for

__all__ = [
    "LAB_POLICIES",
    "POLICIES",
    "DraftView",
    "Plan",
    "RoundView",
    "SchedulerPolicy",
    "default_l_min",
    "load_for",
    "policy_named",
]
