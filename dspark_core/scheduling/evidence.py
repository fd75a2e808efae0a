"""What drafting gave in the last rounds: of one request, and of all of a batch, those that have ended included."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil, sqrt

from dspark_core.params import ScheduleParams

_LEANING = 16  # rounds that the mean of the others counts as at most
_LOOKED_BACK = 32  # drafting rounds among which the longest verification is looked for


@dataclass(frozen=True, slots=True)
class BackOffRule:
    """When drafts are judged, and how much may be spent on trying them again.

    Attributes:
        window: drafting rounds of a request after which an old one counts for little (1/e).
        batch_window: the same for all requests of a batch together.
        least: drafting rounds before the first judgement, those of requests with the same drafter and schedule in
            batches of that size included.
        trials: share of the throughput that tries of drafts that do not pay may cost, or rests from drafts that do.
        longest: most rounds between two tries.
        doubt: standard errors that the accepted drafts of a round are raised by before they are weighed, so that a few
            unlucky rounds are no reason to rest. 0 weighs the mean.
    """

    window: int = 32
    batch_window: int = 64
    least: int = 4
    trials: float = 0.006
    longest: int = 128
    doubt: float = 0.35

    def rounds_until_next(self, loss: float) -> int:
        """Rounds from one that loses this share of its throughput to the next: on the mean they lose `trials`."""
        return max(1, min(self.longest, ceil(loss / self.trials)))


@dataclass(frozen=True, slots=True)
class Means:
    """What a drafting round gives and takes: drafts drawn, verified and accepted."""

    accepted: float
    verified: float
    drafted: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sums over drafting rounds; fractions, because old rounds fade."""

    rounds: float = 0.0
    accepted: float = 0.0
    verified: float = 0.0
    drafted: float = 0.0

    def then(self, fresh: Evidence, keep: float) -> Evidence:
        """With one more round, after all before it have faded to the share ``keep``."""
        return Evidence(
            keep * self.rounds + fresh.rounds,
            keep * self.accepted + fresh.accepted,
            keep * self.verified + fresh.verified,
            keep * self.drafted + fresh.drafted,
        )

    def leaning_on(self, batch: Evidence, doubt: float) -> Means | None:
        """The means of a round: few rounds of one's own lean on the mean of the batch, which has them in it.

        The accepted are raised by ``doubt`` standard errors of the mean over all these rounds, as if each draft were
        accepted with the same chance (their number then has the variance e + e²), and never beyond the verified. None
        where nobody has drafted yet.
        """
        weight = min(_LEANING, batch.rounds)
        rounds = self.rounds + weight
        if rounds == 0:
            return None
        share = weight / batch.rounds if weight else 0.0
        accepted = (self.accepted + share * batch.accepted) / rounds
        verified = (self.verified + share * batch.verified) / rounds
        drafted = (self.drafted + share * batch.drafted) / rounds
        seen = max(self.rounds, batch.rounds)
        at_least = accepted + 0.5 / seen  # rounds without any do not prove that there are none
        error = sqrt(at_least * (1 + at_least) / seen)
        return Means(min(accepted + doubt * error, verified), verified, drafted)


NOTHING_SEEN = Evidence()


class Memory:
    """Drafting rounds that fade, and when drafts that do not pay are tried again.

    Attributes:
        seen: their sums.
        wait: rounds before the next try.
    """

    def __init__(self, rule: BackOffRule, window: int, seen: Evidence | None = None) -> None:
        self._rule = rule
        self._keep = 1 - 1 / window
        self._lengths: deque[int] = deque(maxlen=_LOOKED_BACK)
        self.seen = seen or NOTHING_SEEN
        self.wait = 0

    @property
    def known(self) -> bool:
        """Whether there is enough to judge by."""
        return self.seen.rounds > self._rule.least - 1  # of four rounds, fading leaves a little less than four

    @property
    def longest(self) -> int | None:
        """Most drafts that were verified in a round lately; None where too few rounds tell."""
        return max(self._lengths) if len(self._lengths) >= self._rule.least else None

    def learn(self, drafted: int, verified: int, accepted: int) -> None:
        """One more drafting round."""
        self.seen = self.seen.then(Evidence(1, accepted, verified, drafted), self._keep)
        self._lengths.append(verified)

    def pace(self, gain: float) -> None:
        """A try at this ``gain`` takes this round: wait until its loss is the share that tries may cost.

        The round of the try counts, since `wait` is one less after each round.
        """
        self.wait = 1 + self._rule.rounds_until_next(1 - gain)


class Record(Memory):
    """One request's own rounds.

    Attributes:
        drafted_at: the judgement, of all that `BackOff` made, in which it drafted last, or first took part.
        shared: what it shares with its batch, as of the last judgement; None where it is alone.
    """

    def __init__(self, rule: BackOffRule, now: int) -> None:
        super().__init__(rule, rule.window)
        self.drafted_at = now
        self.shared: Memory | None = None
        self._batch = 0
        self._way: tuple[str, ScheduleParams] | None = None

    def keep_to(self, drafter: str, schedule: ScheduleParams, batch: int) -> bool:
        """Forget what was seen of another drafter or schedule, or among under half or over twice as many requests.

        Returns:
            Whether there was anything to forget.
        """
        same = self._way == (drafter, schedule)
        if same and self._batch <= 2 * batch and batch <= 2 * self._batch:
            return False
        forgotten = self.seen is not NOTHING_SEEN
        self._way, self._batch = (drafter, schedule), batch
        self.seen, self.wait = NOTHING_SEEN, 0
        self._lengths.clear()
        return forgotten
