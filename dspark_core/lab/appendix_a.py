"""The paper's counter-example (DSpark, appendix A): choosing the length in hindsight bends the text's law.

Two tokens, A and B. The target says A with probability 0.7 whatever came before, the drafter is a fair coin. c_1 is
0.8; c_2 is 0.9 if x_1 is A, else 0. A pass of 1, 2, 3 tokens runs 1, 0.5, 0.45 times a second. The policies are the
engine's own; the rule of acceptance is written out here in plain numbers, and a test holds both to the engine's loop.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from dspark_core.errors import ParameterError
from dspark_core.events import LoadSample
from dspark_core.params import ScheduleParams
from dspark_core.scheduling.joint import JointPass
from dspark_core.scheduling.policies import policy_named
from dspark_core.scheduling.policy import DraftView, RoundView
from dspark_core.scheduling.step_curve import StepCurve

TOKENS = ("A", "B")
TARGET = (0.7, 0.3)
DRAFT = (0.5, 0.5)
FIRST_CONFIDENCE = 0.8
SECOND_CONFIDENCE = (0.9, 0.0)  # after A, after B
STEPS_PER_S = (1.0, 0.5, 0.45)  # with 1, 2, 3 tokens in the pass
CURVE = StepCurve.of((1, 2, 3), [1 / sps for sps in STEPS_PER_S], source="the paper's appendix A")
SCHEDULES = {
    "retrospective": ScheduleParams("retrospective", 0, 2),
    "prefix": ScheduleParams("prefix", 0, 2),
    "delayed": ScheduleParams("delayed", 0, 2),
    "threshold": ScheduleParams("threshold", 0, 2, 0.5),
    "fixed": ScheduleParams("fixed", 2, 2),
}
MAX_TEXTS = 100_000
Law = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Branch:
    """What the first round does when x_1 is this token; x_2 has no say in it.

    Attributes:
        first: x_1, index into `TOKENS`.
        probability: that it is drafted.
        confidences, survivals: c_1, c_2 and a_1, a_2.
        throughputs: Θ with 0, 1, 2 drafts in the pass.
        verify_len: ℓ that the policy chose.
        reason: why.
        accept_prob: min(1, p_target / p_draft) of x_1; it counts if x_1 is verified.
        law: of the text's first token then.
    """

    first: int
    probability: float
    confidences: tuple[float, float]
    survivals: tuple[float, ...]
    throughputs: tuple[float, ...]
    verify_len: int
    reason: str
    accept_prob: float
    law: Law


def branches(policy: str) -> tuple[Branch, ...]:
    """Both branches under the policy of `SCHEDULES`. Raises ParameterError for another one."""
    return tuple(_branch(policy, first) for first in range(len(TOKENS)))


def exact_law(policy: str) -> Law:
    """The law of the text's first token, by enumeration. Raises ParameterError for a policy not in `SCHEDULES`."""
    both = branches(policy)
    a, b = (sum(branch.probability * branch.law[token] for branch in both) for token in range(len(TOKENS)))
    return a, b


def sampled(policy: str, texts: int, seed: int, every: int) -> Iterator[tuple[int, int]]:
    """Counts of the first tokens of sampled texts, told after every so many and at the end.

    Raises:
        ParameterError: an unknown policy, or fewer than 1 or more than `MAX_TEXTS` texts.
    """
    if not 1 <= texts <= MAX_TEXTS or every < 1:
        raise ParameterError(f"{texts} texts are asked for, told every {every}; give 1 to {MAX_TEXTS:,}.")
    both, dice = branches(policy), random.Random(seed)
    counts = [0, 0]
    for number in range(1, texts + 1):
        counts[_first_token(both[_choose(DRAFT, dice)], dice)] += 1
        if number % every == 0 or number == texts:
            yield counts[0], counts[1]


def _branch(policy: str, first: int) -> Branch:
    schedule = SCHEDULES.get(policy)
    if schedule is None:
        raise ParameterError(f"The toy has no policy named {policy!r:.40}. Choose one of: {', '.join(SCHEDULES)}.")
    confidences = (FIRST_CONFIDENCE, SECOND_CONFIDENCE[first])
    view = DraftView(len(confidences), confidences, schedule, room=len(confidences))
    around = RoundView(LoadSample("none", "none", note="a toy"), CURVE)
    (plan,) = policy_named(policy, lab=True).plan([view], around)
    unbound = DraftView(len(confidences), confidences, SCHEDULES["prefix"], room=len(confidences))  # L_min = 0
    joint = JointPass("the toy", [unbound], around, [unbound.survivals])
    accept_prob = min(1.0, TARGET[first] / DRAFT[first])
    return Branch(
        first=first,
        probability=DRAFT[first],
        confidences=confidences,
        survivals=view.survivals,
        throughputs=(joint.throughput, *(throughput for _, throughput in joint.growing())),
        verify_len=plan.verify_len,
        reason=plan.reason,
        accept_prob=accept_prob,
        law=_verified(first, accept_prob) if plan.verify_len else TARGET,
    )


def _verified(first: int, accept_prob: float) -> Law:
    """x_1 with its acceptance probability, else a draw from norm(max(0, p_target - p_draft))."""
    a, b = ((1 - accept_prob) * share + accept_prob * (token == first) for token, share in enumerate(_residual()))
    return a, b


def _residual() -> Law:
    a, b = (max(0.0, target - draft) for target, draft in zip(TARGET, DRAFT, strict=True))
    return a / (a + b), b / (a + b)


def _first_token(branch: Branch, dice: random.Random) -> int:
    if branch.verify_len == 0:
        return _choose(TARGET, dice)
    return branch.first if dice.random() < branch.accept_prob else _choose(_residual(), dice)


def _choose(law: Law, dice: random.Random) -> int:
    return 0 if dice.random() < law[0] else 1
