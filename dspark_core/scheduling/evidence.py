"""What drafting gave a request in its last rounds, and the rests that followed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import sqrt

from dspark_core.params import ScheduleParams

_LEANING = 16  # rounds that the mean of the others counts as


@dataclass(frozen=True, slots=True)
class BackOffRule:
    """When a request is judged, and for how long it rests.

    Attributes:
        window: drafting rounds that are looked back on.
        least: drafting rounds before the first judgement, those of requests with the same drafter in the batch
            included, and one of its own.
        retry: the same after a rest.
        shortest, longest: rounds of rest; each rest is twice the one before, until drafts paid for a whole window.
        doubt: standard errors that the accepted drafts of a round are raised by before they are weighed, so that a few
            unlucky rounds are no reason to rest. 0 weighs the mean.
    """

    window: int = 32
    least: int = 4
    retry: int = 2
    shortest: int = 16
    longest: int = 128
    doubt: float = 0.35


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sums over drafting rounds."""

    rounds: int = 0
    accepted: int = 0
    verified: int = 0

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(self.rounds + other.rounds, self.accepted + other.accepted, self.verified + other.verified)

    def __sub__(self, other: Evidence) -> Evidence:
        return Evidence(self.rounds - other.rounds, self.accepted - other.accepted, self.verified - other.verified)

    def leaning_on(self, others: Evidence, doubt: float) -> tuple[float, float]:
        """Accepted and verified drafts a round: few rounds of one's own lean on the mean of the others.

        The accepted are raised by ``doubt`` standard errors of the mean over all these rounds, as if each draft were
        accepted with the same chance (their number then has the variance e + e²), and never beyond the verified.
        (0, 0) where nobody has drafted yet.
        """
        weight = min(_LEANING, others.rounds)
        rounds = self.rounds + weight
        if rounds == 0:
            return 0.0, 0.0
        share = weight / others.rounds if weight else 0.0
        accepted = (self.accepted + share * others.accepted) / rounds
        verified = (self.verified + share * others.verified) / rounds
        seen = self.rounds + others.rounds
        at_least = accepted + 0.5 / seen  # rounds without any do not prove that there are none
        error = sqrt(at_least * (1 + at_least) / seen)
        return min(accepted + doubt * error, verified), verified


class Record:
    """One request's last drafting rounds, and its rests.

    Attributes:
        seen: the sums of the rounds that are looked back on.
        needed: drafting rounds before the next judgement.
        rest: rounds of rest to come; 0: it drafts.
        gain, rounds: of the judgement that the rest began with.
    """

    def __init__(self, rule: BackOffRule) -> None:
        self._rule = rule
        self._window: deque[Evidence] = deque()
        self._next_rest = rule.shortest
        self._batch = 0
        self._way: tuple[str, ScheduleParams] | None = None
        self.seen = Evidence()
        self.needed = rule.least
        self.rest = 0
        self.gain = 1.0
        self.rounds = 0

    def keep_to(self, drafter: str, schedule: ScheduleParams, batch: int) -> None:
        """Forget what was seen of another drafter or schedule, or among under half or over twice as many requests."""
        same = self._way == (drafter, schedule)
        if same and self._batch <= 2 * batch and batch <= 2 * self._batch:
            return
        if not same:
            self._next_rest = self._rule.shortest
        self._way, self._batch = (drafter, schedule), batch
        self._forget(self._rule.least)
        self.rest = 0

    def learn(self, verified: int, accepted: int) -> None:
        """One more drafting round; the oldest falls out of a full window."""
        fresh = Evidence(1, accepted, verified)
        self._window.append(fresh)
        self.seen += fresh
        if len(self._window) > self._rule.window:
            self.seen -= self._window.popleft()
            self._next_rest = self._rule.shortest  # drafts have paid for a whole window

    def begin_rest(self, gain: float, rounds: int) -> None:
        """Rest, and then judge by what comes after: the text may be another one."""
        self.gain, self.rounds = gain, rounds
        self.rest, self._next_rest = self._next_rest, min(2 * self._next_rest, self._rule.longest)
        self._forget(self._rule.retry)

    def _forget(self, needed: int) -> None:
        self._window.clear()
        self.seen = Evidence()
        self.needed = needed
