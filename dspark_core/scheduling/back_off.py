"""Back-off: where drafts do not pay, requests decode plainly, say so, and one at a time tries again now and then.

Decided before anything is drafted, from earlier rounds alone, so the text's law stays the target's. Symbols: N requests
in the round, e drafts that one has accepted a round, ℓ that one has verified, d that one has drawn, T(B) seconds of a
pass over B tokens, D seconds of the drafting, Θ tokens a second, s the stretch of rounds with drafts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from weakref import WeakKeyDictionary

from dspark_core.params import ScheduleParams
from dspark_core.scheduling.evidence import NOTHING_SEEN, BackOffRule, Means, Memory, Record
from dspark_core.scheduling.step_curve import StepCurve
from dspark_core.scheduling.stretch import MOST, Stretch

_COMPARING = "drafts rest for one round: what plain decoding takes now is what they are measured against"
_SOONER = 4  # times as often drafts are compared with plain decoding until the clock has told enough
_MEMORIES = 64  # of (drafter, schedule, size of batch); the one that was not used for longest is forgotten


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request would draft this round.

    Attributes:
        drafter: its name.
        drafts: how many tokens; 0 is plain decoding.
        schedule: in force this round.
        may_rest: whether it may be told to draft nothing.
        may_shorten: whether it may be told to draft fewer.
    """

    drafter: str
    drafts: int
    schedule: ScheduleParams
    may_rest: bool
    may_shorten: bool = False

    @property
    def judged(self) -> bool:
        """Whether there is something to decide."""
        return self.may_rest and self.drafts > 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a request drafts.

    Attributes:
        gain: the batch's tokens a second with its drafts over those without, chance counted in their favour (see
            `BackOffRule.doubt`); None where too little has been seen.
        rest: rounds that it still rests, this one included, if nothing changes; 0: it drafts.
        reason: why it rests, for the screen; '' where it drafts.
        most: most tokens that are worth drafting; None: all that it wants.
        expected: tokens that it will draw by what was seen, to count their cost by; None where too little was seen.
    """

    gain: float | None = None
    rest: int = 0
    reason: str = ""
    most: int | None = None
    expected: float | None = None


class BackOff:
    """Remembers the drafting rounds of each request while it lives, and of batches longer, and says who rests.

    The model: a round in which the requests S draft commits N + Σ_S e tokens and takes s · (T(N + Σ_S ℓ) + D(S))
    seconds, with the means of recent rounds and the profile's T and D. That is joint: what one saves by resting depends
    on the others, and D has a part that is only saved when all rest. So requests are ranked by e over what they cost,
    and of the sets "the first n of them" the one with the largest Θ drafts, the empty one included. The gain of a
    request is the best Θ of the sets with it over the best of those without. Times come from the profile. In a batch
    the clock corrects them: s is the median over rounds with drafts beside a round without (see `Stretch`), so a
    program that disturbs one round decides nothing. Where drafts pay, all rest for a round now and then, to have such
    pairs.

    In a batch, requests of the same drafter and schedule share what they see, and it outlives them: by `_size_of` the
    batch, since what is verified depends on it. So a new request is judged before it has drafted anything. The tries of
    those that rest are paced, and so are the rests of those that draft: what they lose is a small share of the
    throughput (`BackOffRule.trials`). Only one request tries at a time, the one whose last draft is longest ago. A
    request by itself shares nothing and is judged without the clock, so that a seed gives the same text again.
    """

    def __init__(self, rule: BackOffRule | None = None) -> None:
        self.rule = rule or BackOffRule()
        self._records: WeakKeyDictionary[object, Record] = WeakKeyDictionary()
        self._memories: OrderedDict[tuple[str, ScheduleParams, int], Memory] = OrderedDict()
        self._found: dict[tuple[int, frozenset[tuple[_Kind, int]]], _Found] = {}  # since somebody has drafted
        self._stretches: dict[int, Stretch] = {}  # by the size of the batch
        self._last_size = 0  # of the last round's batch
        self._now = 0

    def judge(self, owners: Sequence[object], wishes: Sequence[Wish], curve: StepCurve | None) -> list[Judgement]:
        """Who drafts in this round; to be asked once a round, with the same object for each of a request's rounds."""
        judgements = [Judgement()] * len(wishes)
        judged = [index for index, wish in enumerate(wishes) if wish.judged]
        if curve is None or not judged:
            return judgements
        self._now += 1
        places, gains = self._weigh(owners, wishes, curve)
        if len(judged) == len(wishes) and self._compares(wishes, gains):
            return [Judgement(gains[index], 1, _COMPARING) for index in judged]
        for memory in {id(memory): memory for _, memory in places.values()}.values():
            members = [index for index in judged if places[index][1] is memory]
            resting = [index for index in members if gains.get(index, 1.0) < 1]
            resting.sort(key=lambda index: (places[index][0].drafted_at, index))  # who waits longest comes first
            trying = 1 if resting and memory.wait == 0 else 0  # it drafts all the same
            if trying:
                memory.pace(gains[resting[0]])
            at_rest = resting[trying:]
            for index in set(members).difference(at_rest):
                judgements[index] = self._draft(*places[index], wishes[index], gains.get(index))
            whose = f"over {_counted(round(memory.seen.rounds))}{' of all requests' if len(wishes) > 1 else ''}"
            for ahead, index in enumerate(at_rest):
                judgements[index] = self._rest(memory, gains[index], ahead, whose)
            memory.wait = max(0, memory.wait - 1)
        return judgements

    def took(self, requests: int, drafters: Collection[str], factor: float) -> None:
        """How long the round of so many requests took: measured seconds over expected ones, and who drafted in it."""
        if requests < 2:
            return  # the text of a seed must not depend on the clock
        size = _size_of(requests)
        stretch = self._stretch_of(size)
        if size != self._last_size:  # what this size had before is not the round before
            self._last_size = size
            stretch.skip()
        if len(drafters) > 1:
            stretch.skip()
        elif stretch.learn(next(iter(drafters), ""), factor):
            self._found.clear()

    def _stretch_of(self, size: int) -> Stretch:
        stretch = self._stretches.get(size)
        if stretch is None:  # a full batch has many rounds to lose until it has told by itself
            like = self._stretches.get(size - 1) or self._stretches.get(size + 1)
            stretch = self._stretches[size] = Stretch(like)
        return stretch

    def _compares(self, wishes: Sequence[Wish], gains: Mapping[int, float]) -> bool:
        """Whether this batch, which has drafts that pay, is to do without them for one round."""
        gain = max(gains.values(), default=1.0)
        if len(wishes) < 2 or len(gains) < len(wishes) or not 1 <= gain < MOST:
            return False  # beyond, no correction could make it less than 1
        stretch = self._stretch_of(_size_of(len(wishes)))
        known = all(stretch.known(wish.drafter) for wish in wishes)
        loss = gain - 1 if known else (gain - 1) / _SOONER
        return stretch.is_due(self.rule.rounds_until_next(loss))

    def _weigh(
        self, owners: Sequence[object], wishes: Sequence[Wish], curve: StepCurve
    ) -> tuple[dict[int, tuple[Record, Memory]], dict[int, float]]:
        """Of each that is judged, whose evidence counts, and its gain where enough has been seen.

        Asked for all requests of every round. Full batches change with each round, and are alike: equals are counted.
        """
        shared: dict[tuple[str, int], Memory] = {}  # schedules by identity: hashing them for all takes too long
        places: dict[int, tuple[Record, Memory]] = {}
        kinds: dict[_Kind, list[int]] = {}
        for index, (owner, wish) in enumerate(zip(owners, wishes, strict=True)):
            kind: _Kind = (wish.drafter, wish.drafts) if wish.drafts else None
            if wish.may_rest and wish.drafts:
                record, memory = places[index] = self._place(owner, wish, len(wishes), shared)
                kind = wish.drafter, record if record.seen.rounds else memory
            kinds.setdefault(kind, []).append(index)
        key = id(curve), frozenset((kind, len(members)) for kind, members in kinds.items())
        found = self._found.get(key)
        if found is None or found.curve is not curve:
            stretch = self._stretch_of(_size_of(len(wishes))) if len(wishes) > 1 else None
            batch = _Batch(wishes, self._means(places), curve, stretch)
            gains = batch.gains([index for index, (_, memory) in places.items() if memory.known])
            found = _Found(curve, {kind: [gains.get(index) for index in members] for kind, members in kinds.items()})
            self._found[key] = found
        each = ((index, gain) for kind in kinds for index, gain in zip(kinds[kind], found.gains[kind], strict=True))
        return places, {index: gain for index, gain in each if gain is not None}

    def learn(self, owner: object, drafted: int, verify_len: int, num_accepted: int) -> None:
        """What became of the drafts of a round that began with `judge`; rounds without drafting teach nothing."""
        self._found.clear()
        record = self._record_of(owner)
        record.learn(drafted, verify_len, num_accepted)
        if record.shared is not None:
            record.shared.learn(drafted, verify_len, num_accepted)

    def _record_of(self, owner: object) -> Record:
        record = self._records.get(owner)
        if record is None:
            record = self._records[owner] = Record(self.rule, self._now)
        return record

    def _place(
        self, owner: object, wish: Wish, requests: int, shared: dict[tuple[str, int], Memory]
    ) -> tuple[Record, Memory]:
        """The request's own record, and whose evidence it shares: its own where it is alone."""
        record = self._record_of(owner)
        if record.keep_to(wish.drafter, wish.schedule, requests):
            self._found.clear()
        if requests == 1:
            record.shared = None
            return record, record
        key = wish.drafter, id(wish.schedule)
        memory = shared.get(key)
        if memory is None:
            memory = shared[key] = self._memory_of(wish, requests)
        record.shared = memory
        return record, memory

    def _memory_of(self, wish: Wish, requests: int) -> Memory:
        """The memory for this size of batch; a new one begins with what was seen in batches of the nearest size."""
        size = _size_of(requests)
        key = (wish.drafter, wish.schedule, size)
        memory = self._memories.get(key)
        if memory is None:
            like = [(abs(other[2] - size), other) for other in self._memories if other[:2] == key[:2]]
            seen = self._memories[min(like, key=lambda pair: pair[0])[1]].seen if like else None
            memory = self._memories[key] = Memory(self.rule, self.rule.batch_window, seen)
            if len(self._memories) > _MEMORIES:
                self._memories.popitem(last=False)
        self._memories.move_to_end(key)
        return memory

    def _means(self, places: Mapping[int, tuple[Record, Memory]]) -> dict[int, Means | None]:
        """Of each; those that have not drafted yet share their batch's."""
        newcomers: dict[int, Means | None] = {}
        means: dict[int, Means | None] = {}
        for index, (record, memory) in places.items():
            if record.seen.rounds or memory is record:
                means[index] = self._means_of(record, memory)
            else:
                if id(memory) not in newcomers:
                    newcomers[id(memory)] = self._means_of(record, memory)
                means[index] = newcomers[id(memory)]
        return means

    def _means_of(self, record: Record, memory: Memory) -> Means | None:
        others = NOTHING_SEEN if memory is record else memory.seen
        return record.seen.leaning_on(others, self.rule.doubt)

    def _rest(self, memory: Memory, gain: float, ahead: int, whose: str) -> Judgement:
        rest = memory.wait * (1 + ahead)
        return Judgement(gain, rest, f"resting from drafts: gain {gain:.2f} {whose}; tries again in {_counted(rest)}")

    def _draft(self, record: Record, memory: Memory, wish: Wish, gain: float | None) -> Judgement:
        record.drafted_at = self._now
        lengths = [length for length in (record.longest, memory.longest) if length is not None]
        most = 2 * max(lengths) + 2 if lengths and wish.may_shorten else None
        means = self._means_of(record, memory)
        expected = None if means is None or not memory.known else means.drafted
        return Judgement(gain, most=most, expected=expected)


# What a gain depends on of one request, as long as nobody learns: those that have not drafted yet are alike.
_Kind = tuple[str, Memory] | tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class _Found:
    """The gains of each kind of request in a batch, in the requests' order; None where too little has been seen."""

    curve: StepCurve
    gains: dict[_Kind, list[float | None]]


class _Batch:
    """A round's requests as the model sees them; those without means are not judged, and count as if they rested."""

    def __init__(
        self, wishes: Sequence[Wish], means: dict[int, Means | None], curve: StepCurve, stretch: Stretch | None
    ) -> None:
        self._wishes = wishes
        self._means = means
        self._curve = curve
        self._stretch = stretch

    def gains(self, judged: Sequence[int]) -> dict[int, float]:
        """The gain of each request of ``judged``; those that must not rest draft in any case."""
        load = _Load(self._curve, self._stretch, len(self._wishes))
        for wish in self._wishes:
            if wish.drafts and not wish.may_rest:  # nobody looks at what becomes of them: as if all were in vain
                load.add(wish.drafter, Means(0.0, float(wish.drafts), float(wish.drafts)))
        known = [(index, means) for index in judged if (means := self._means[index]) is not None]
        costs = self._costs(known)
        ranked = sorted(known, key=lambda each: -each[1].accepted / costs[each[0]])
        rates = [load.throughput()]
        for index, means in ranked:
            load.add(self._wishes[index].drafter, means)
            rates.append(load.throughput())
        without = list(accumulate(rates[:-1], max))
        with_it = list(accumulate(reversed(rates[1:]), max))[::-1]
        return {index: with_it[at] / without[at] for at, (index, _) in enumerate(ranked)}

    def _costs(self, drafting: Sequence[tuple[int, Means]]) -> dict[int, float]:
        """Seconds that each one's drafts take, as its part of what those of all take."""
        requests, whole = len(self._wishes), _Load(self._curve, self._stretch, len(self._wishes))
        for index, means in drafting:
            whole.add(self._wishes[index].drafter, means)
        verified = max(1, round(whole.tokens) - requests)
        a_token = (self._curve.seconds(requests + verified) - self._curve.seconds(requests)) / verified
        shares = whole.drafting_shares()
        return {
            index: max(1e-12, a_token * means.verified + shares[self._wishes[index].drafter] * means.drafted)
            for index, means in drafting
        }


class _Load:
    """A round that grows by one drafting request after another."""

    def __init__(self, curve: StepCurve, stretch: Stretch | None, requests: int) -> None:
        self._curve = curve
        self._stretch = stretch
        self._stretched = 1.0
        self._expected = self.tokens = float(requests)
        self._drafts: dict[str, tuple[int, float]] = {}  # requests, and drafts of all of them
        self._seconds: dict[str, float] = {}  # that these take

    def add(self, drafter: str, means: Means) -> None:
        self._expected += means.accepted
        self.tokens += means.verified
        requests, drafts = self._drafts.get(drafter, (0, 0.0))
        if not requests and self._stretch is not None:
            stretched = self._stretch.of(drafter)
            self._stretched = max(self._stretched, stretched) if self._drafts else stretched
        requests, drafts = self._drafts[drafter] = (requests + 1, drafts + means.drafted)
        self._seconds[drafter] = self._curve.drafting_of(drafter, requests, max(1.0, drafts / requests))

    def throughput(self) -> float:
        """Θ."""
        seconds = self._curve.seconds(round(self.tokens)) + sum(self._seconds.values())
        return self._expected / (self._stretched * seconds)

    def drafting_shares(self) -> dict[str, float]:
        """By drafter, the seconds of each draft."""
        return {name: taken / max(1.0, self._drafts[name][1]) for name, taken in self._seconds.items()}


def _size_of(requests: int) -> int:
    """Batches of 2, of 3 or 4, of 5 to 8, of 9 to 16, … requests are alike."""
    return (requests - 1).bit_length()


def _counted(rounds: int) -> str:
    return f"{rounds} round{'' if rounds == 1 else 's'}"
