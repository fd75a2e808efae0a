"""Back-off: a request whose drafts do not pay decodes plainly for some rounds, says so, and tries again.

Decided before anything is drafted, from earlier rounds alone, so the text's law stays the target's. Symbols: N requests
in the round, e drafts that one has accepted a round, ℓ that one has verified, T(B) seconds of a pass over B tokens,
D seconds of the drafting, Θ tokens a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from weakref import WeakKeyDictionary

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.evidence import BackOffRule, Evidence, Record
from dspark_core.scheduling.step_curve import StepCurve


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request would draft this round.

    Attributes:
        drafter: its name.
        drafts: how many tokens; 0 is plain decoding.
        schedule: in force this round.
        may_rest: whether it may be told to draft nothing.
    """

    drafter: str
    drafts: int
    schedule: ScheduleParams
    may_rest: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a request drafts.

    Attributes:
        gain: the batch's tokens a second with its drafts over those without, chance counted in their favour (see
            `BackOffRule.doubt`); None where not judged yet. While it rests, as when the rest began.
        rest: rounds that it still rests, this one included; 0: it drafts.
        reason: why it rests, for the screen; '' where it drafts.
    """

    gain: float | None = None
    rest: int = 0
    reason: str = ""


class BackOff:
    """Remembers each request's drafting rounds for as long as the request lives, and who rests.

    The model: a round in which the requests S draft commits N + Σ_S e tokens and takes T(N + Σ_S ℓ) + D(S) seconds,
    with the means e and ℓ of recent rounds and the profile's T and D. That is joint: what one saves by resting depends
    on the others, and D has a part that is only saved when all rest. So requests are ranked by e over what they cost,
    and of the sets "the first n of them" the one with the largest Θ drafts, the empty one included. The gain of a
    request is the best Θ of the sets with it over the best of those without. Times come from the profile, not from the
    clock: a seed gives the same text again, and a program that disturbs one round decides nothing.

    What was seen in another batch (less than half, or more than twice as many requests) or under another schedule or by
    another drafter says little of this one, and is forgotten; a rest ends with it.
    """

    def __init__(self, rule: BackOffRule | None = None) -> None:
        self.rule = rule or BackOffRule()
        self._records: WeakKeyDictionary[object, Record] = WeakKeyDictionary()

    def judge(self, owners: Sequence[object], wishes: Sequence[Wish], curve: StepCurve | None) -> list[Judgement]:
        """Who drafts in this round; to be asked once a round, with the same object for each of a request's rounds."""
        records = [self._record_of(owner) for owner in owners]
        for record, wish in zip(records, wishes, strict=True):
            record.keep_to(wish.drafter, wish.schedule, len(wishes))
        if curve is None or not any(wish.may_rest and wish.drafts for wish in wishes):
            return [Judgement()] * len(wishes)
        batch = _Batch(records, wishes, curve, self.rule.doubt)
        gains = batch.gains([index for index in range(len(wishes)) if batch.can_be_judged(index)])
        return [
            self._judgement(record, gains.get(index), batch.looked_at(index))
            if wish.may_rest and wish.drafts
            else Judgement()
            for index, (record, wish) in enumerate(zip(records, wishes, strict=True))
        ]

    def learn(self, owner: object, verify_len: int, num_accepted: int) -> None:
        """What became of the drafts of a round that began with `judge`; rounds without drafting teach nothing."""
        self._record_of(owner).learn(verify_len, num_accepted)

    def _record_of(self, owner: object) -> Record:
        record = self._records.get(owner)
        if record is None:
            record = self._records[owner] = Record(self.rule)
        return record

    def _judgement(self, record: Record, gain: float | None, rounds: int) -> Judgement:
        if gain is not None and gain < 1:
            record.begin_rest(gain, rounds)
        if record.rest == 0:
            return Judgement(gain)
        rest = record.rest
        record.rest -= 1
        reason = (
            f"resting from drafts: gain {record.gain:.2f} over {_counted(record.rounds)}; "
            f"tries again in {_counted(rest)}"
        )
        return Judgement(record.gain, rest, reason)


class _Batch:
    """A round's requests as the model sees them."""

    def __init__(self, records: Sequence[Record], wishes: Sequence[Wish], curve: StepCurve, doubt: float) -> None:
        self._records = records
        self._wishes = wishes
        self._curve = curve
        self._pool: dict[str, Evidence] = {}
        for record, wish in zip(records, wishes, strict=True):
            self._pool[wish.drafter] = self._pool.get(wish.drafter, Evidence()) + record.seen
        self._means = [
            record.seen.leaning_on(self._pool[wish.drafter] - record.seen, doubt)
            for record, wish in zip(records, wishes, strict=True)
        ]

    def looked_at(self, index: int) -> int:
        """Rounds of drafting behind a judgement: its own, and those of requests with the same drafter."""
        return self._pool[self._wishes[index].drafter].rounds

    def can_be_judged(self, index: int) -> bool:
        """Whether a request may rest, does not rest, and has enough behind it."""
        record, wish = self._records[index], self._wishes[index]
        if not wish.may_rest or wish.drafts == 0 or record.rest > 0 or record.seen.rounds == 0:
            return False
        return self.looked_at(index) >= record.needed

    def gains(self, judged: Sequence[int]) -> dict[int, float]:
        """The gain of each request of ``judged``; the others that do not rest draft in any case."""
        drafting = [index for index, wish in enumerate(self._wishes) if wish.drafts and self._records[index].rest == 0]
        costs = self._costs(drafting)
        ranked = sorted(judged, key=lambda index: -self._means[index][0] / costs[index])
        load = _Load(self._curve, len(self._wishes))
        for index in sorted(set(drafting) - set(judged)):
            load.add(self._wishes[index], *self._means[index])
        rates = [load.throughput()]
        for index in ranked:
            load.add(self._wishes[index], *self._means[index])
            rates.append(load.throughput())
        without = list(accumulate(rates[:-1], max))
        with_it = list(accumulate(reversed(rates[1:]), max))[::-1]
        return {index: with_it[at] / without[at] for at, index in enumerate(ranked)}

    def _costs(self, drafting: Sequence[int]) -> dict[int, float]:
        """Seconds that each one's drafts take, as its part of what those of all take."""
        verified = sum(self._means[index][1] for index in drafting)
        requests = len(self._wishes)
        a_token = self._curve.seconds(requests + max(1, round(verified))) - self._curve.seconds(requests)
        a_token /= max(1, round(verified))
        whole = _Load(self._curve, requests)
        for index in drafting:
            whole.add(self._wishes[index], 0.0, 0.0)
        shares = {
            name: self._curve.drafting_s({name: counts}) / sum(counts)
            for name, counts in whole.drafts.items()
            if counts
        }
        return {
            index: max(1e-12, a_token * self._means[index][1] + shares[wish.drafter] * wish.drafts)
            for index in drafting
            for wish in [self._wishes[index]]
        }


class _Load:
    """A round that grows by one drafting request after another."""

    def __init__(self, curve: StepCurve, requests: int) -> None:
        self._curve = curve
        self._expected = self._tokens = float(requests)
        self.drafts: dict[str, list[int]] = {}

    def add(self, wish: Wish, accepted: float, verified: float) -> None:
        self._expected += accepted
        self._tokens += verified
        self.drafts.setdefault(wish.drafter, []).append(wish.drafts)

    def throughput(self) -> float:
        """Θ."""
        return self._expected / (self._curve.seconds(round(self._tokens)) + self._curve.drafting_s(self.drafts))


def _counted(rounds: int) -> str:
    return f"{rounds} round{'' if rounds == 1 else 's'}"
