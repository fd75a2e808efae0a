"""From the controls of the tab, or the arguments of the endpoint, to a checked load run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_core.bench.paired import Case
from dspark_core.bench.prompts import SETS, in_turn, packaged
from dspark_core.errors import ParameterError, shown
from dspark_core.load_test.lane import Lane
from dspark_core.load_test.live import LiveRun, Part, plain_lane, walk
from dspark_core.load_test.room import check_users, most_users
from dspark_core.params import SamplingParams, ScheduleParams
from ui.inputs import read_number, read_whole
from ui.ports import SessionPort

WALKED = (1, 2, 4, 8, 16, 32)
PROMPTS_OF_A_SET = 12
LEAST_S, MOST_S = 2, 60


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a load run is asked with, as entered; see `ui.load.tab` for the controls."""

    users: object
    drafter: object
    policy: object
    l_min: object
    l_max: object
    threshold: object
    temperature: object
    max_tokens: object
    sets: object
    seconds: object
    against_plain: object

    def lane(self) -> Lane:
        """The method, under a name that tells it apart. Raises ParameterError."""
        if not isinstance(self.drafter, str) or not isinstance(self.policy, str):
            raise ParameterError("Choose a drafter and a policy from the lists.")
        if self.drafter == "none":
            return plain_lane()
        schedule = ScheduleParams(
            self.policy,
            read_whole("L_min", self.l_min),
            read_whole("L_max", self.l_max),
            read_number("The threshold", self.threshold),
        )
        at = f", threshold {schedule.threshold:g}" if self.policy == "threshold" else ""
        return Lane(f"{self.drafter}, {self.policy} {schedule.l_min}–{schedule.l_max}{at}", self.drafter, schedule)

    def sampling(self) -> SamplingParams:
        """The law of all answers. Raises ParameterError."""
        return SamplingParams(
            temperature=read_number("The temperature", self.temperature),
            seed=0,
            max_new_tokens=read_whole("Tokens an answer", self.max_tokens),
        )

    def opened(self, session: SessionPort, *, walking: bool, timed: bool = False) -> LiveRun:
        """Begin: a walk through `WALKED`; or ``users``, ``timed`` for some seconds or else until it is stopped.

        Raises:
            ParameterError, ResourceError: by name.
        """
        lane, sampling = self.lane(), self.sampling()
        cases = cases_of(session, self.sets, sampling)
        session.request(_ASKED, sampling, lane.schedule, lane.drafter)  # refuses what this session cannot do, by name
        most = most_for(session, cases, sampling)
        max_active = session.engine.limits.max_active
        if not walking:
            users = read_whole("The number of users", self.users)
            check_users(users, most, max_active)
            seconds = read_seconds(self.seconds) if timed else None
            return LiveRun(session.engine, [Part(users, lane)], cases, sampling, seconds, max_active)
        check_users(1, most, max_active)
        parts = walk(lane, plain_lane() if self.against_plain else None, [n for n in WALKED if n <= most])
        return LiveRun(session.engine, parts, cases, sampling, read_seconds(self.seconds), max_active)


_ASKED = [{"role": "user", "content": "Hello."}]


def read_seconds(value: object) -> float:
    """How long a number of users is measured. Raises ParameterError."""
    seconds = read_number("The seconds for each step", value)
    if not LEAST_S <= seconds <= MOST_S:
        raise ParameterError(f"The seconds for each step are {seconds:g}; enter a number from {LEAST_S} to {MOST_S}.")
    return seconds


def cases_of(session: SessionPort, sets: object, sampling: SamplingParams) -> list[Case]:
    """The questions of the built-in sets of these names, in turn. Raises ParameterError."""
    if not isinstance(sets, Sequence) or isinstance(sets, str) or not sets:
        raise ParameterError(f"Choose at least one set of prompts: {', '.join(SETS)}.")
    unknown = [name for name in sets if name not in SETS]
    if unknown:
        raise ParameterError(f"There is no prompt set named {shown(unknown[0])}. Choose of: {', '.join(SETS)}.")
    prompts = in_turn([packaged(name)[:PROMPTS_OF_A_SET] for name in dict.fromkeys(sets)])
    plain = plain_lane()
    return [
        Case(
            prompt.kind,
            session.request(
                [{"role": "user", "content": prompt.text}], sampling, plain.schedule, plain.drafter
            ).prompt_ids,
        )
        for prompt in prompts
    ]


def most_for(session: SessionPort, cases: Sequence[Case], sampling: SamplingParams) -> int:
    """So many users with these questions leave room for visitors."""
    engine, context = session.engine, session.info.max_context
    longest = max(len(case.prompt_ids) for case in cases) + sampling.max_new_tokens
    return most_users(engine.limits.max_active, engine.max_tokens, context, min(longest, context))
