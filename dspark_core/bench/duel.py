"""A duel: one prompt and one seed, answered by a few lanes one after the other, and told while it goes on.

Lanes run in turn, never side by side, so that they do not slow each other. Other users of the engine may: a lap waits
for an idle moment, for a bounded time, and is marked when somebody ran beside it. Loads no torch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dspark_core.bench.identity import Sameness, TokenGap, look_at, sameness
from dspark_core.bench.lap import Lap, Now, read_lap
from dspark_core.bench.paired import WARM_UP_TOKENS, rotated
from dspark_core.errors import DSparkError, ParameterError, shown, so_many
from dspark_core.load_test.lane import PLAIN, Lane, lane_named
from dspark_core.params import GenerationRequest, ScheduleParams
from dspark_core.ports import LoadedEngine
from dspark_core.scheduling import default_l_min

MAX_LANES = 4
MAX_REPEATS = 5
IDLE_WAIT_S = 20.0  # that a duel waits for idle moments, all laps together
_LOOK_S = 0.1  # between two looks at whether the engine is idle


@dataclass(slots=True)
class Entry:
    """A lane of a duel and what it has done.

    Attributes:
        lane: the method.
        request: what it is asked; None where it cannot run, and ``error`` says why.
        laps: its answers, in order of the repeats.
        error: why it gave up, or ''.
        sameness: how its text compares with the reference's; None under sampling, for the reference itself, and until
            all have run.
        gap: the two tokens at the difference, where there is one that could be looked at.
    """

    lane: Lane
    request: GenerationRequest | None
    laps: list[Lap] = field(default_factory=list)
    error: str = ""
    sameness: Sameness | None = None
    gap: TokenGap | None = None


def duel_lanes(names: Sequence[str], drafter: str) -> list[Lane]:
    """The lanes of those names (see `lane_named`), each with its policy's own default bounds.

    Raises:
        ParameterError: a name means nothing, one stands twice, or there are not 2 to `MAX_LANES`.
    """
    wanted = [name.strip() for name in names]
    if not 2 <= len(wanted) <= MAX_LANES:
        raise ParameterError(
            f"{so_many(len(wanted), 'lane is', 'lanes are')} chosen; a race has 2 to {MAX_LANES}. Choose so many."
        )
    twice = [name for name in wanted if wanted.count(name) > 1]
    if twice:
        raise ParameterError(f"The lane {shown(twice[0])} is chosen twice. Choose each lane once.")
    return [_with_own_l_min(lane_named(name, drafter, ScheduleParams())) for name in wanted]


def _with_own_l_min(lane: Lane) -> Lane:
    l_min = min(lane.schedule.l_min, default_l_min(lane.schedule.policy))
    return replace(lane, schedule=replace(lane.schedule, l_min=l_min))


class Duel:
    """Runs the laps: a warm-up of every lane that is left out, then all lanes in turn, a different one first each time.

    Every lap has the same seed, so that repeats differ by the machine's noise alone.

    Args:
        course: the engine.
        entries: the lanes.
        repeats: how often each lane answers.
        gate: held by whichever duel runs a lap, so that duels on one engine take turns.
        patience_s: how long it waits for idle moments, all in all; after that it runs beside others.
    """

    def __init__(
        self,
        course: LoadedEngine,
        entries: Sequence[Entry],
        repeats: int,
        gate: threading.Lock,
        patience_s: float = IDLE_WAIT_S,
    ) -> None:
        if isinstance(repeats, bool) or not isinstance(repeats, int) or not 1 <= repeats <= MAX_REPEATS:
            raise ParameterError(f"repeats is {shown(repeats)}; it must be a whole number from 1 to {MAX_REPEATS}.")
        self.entries = list(entries)
        self.repeats = repeats
        self._course = course
        self._gate = gate
        self._holds_gate = False
        self._patience_s = patience_s
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether it was asked to end."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End it after the round in progress; what is done stays. From any thread."""
        self._stopped.set()

    @property
    def reference(self) -> Entry | None:
        """Who the others are compared with: plain decoding, or else the first lane that has answered."""
        done = [entry for entry in self.entries if entry.laps]
        return next((entry for entry in done if entry.lane.name == PLAIN), done[0] if done else None)

    def run(self) -> Generator[Now, None, None]:
        """Do it all, and tell what happens. Closing the iterator frees the engine within one round."""
        for entry in self.entries:
            yield from self._warm_up(entry)
        for repeat in range(self.repeats):
            for entry in rotated(self.entries, repeat):
                yield from self._lap(entry, repeat)
        yield from self._compare()

    def _warm_up(self, entry: Entry) -> Iterator[Now]:
        if entry.request is None or self.stopped:
            return
        sampling = entry.request.sampling
        short = replace(sampling, max_new_tokens=min(WARM_UP_TOKENS, sampling.max_new_tokens))
        try:
            yield from self._answer(replace(entry.request, sampling=short), Now("warm-up", entry.lane.name))
        except DSparkError as error:
            entry.error = str(error)

    def _lap(self, entry: Entry, repeat: int) -> Iterator[Now]:
        if entry.request is None or entry.error or self.stopped:
            return
        try:
            lap = yield from self._answer(entry.request, Now("running", entry.lane.name, repeat))
        except DSparkError as error:
            entry.error = str(error)
            return
        if lap is not None and lap.track:
            entry.laps.append(lap)

    def _answer(self, request: GenerationRequest, now: Now) -> Generator[Now, None, Lap | None]:
        """One answer, alone if that can be had; None where it was stopped before it began."""
        try:
            yield from self._take_turn(now)
            if self.stopped:
                return None
            return (yield from read_lap(self._course, request, now, self._stopped.is_set))
        finally:
            if self._holds_gate:
                self._holds_gate = False
                self._gate.release()

    def _take_turn(self, now: Now) -> Iterator[Now]:
        """Wait for other duels and for an idle engine, as long as there is patience."""
        while not self.stopped:
            self._holds_gate = self._holds_gate or self._gate.acquire(blocking=False)
            if self._patience_s <= 0 or (self._holds_gate and self._course.num_active == 0):
                return
            begun = time.monotonic()
            yield replace(now, phase="waiting")
            self._stopped.wait(_LOOK_S)
            self._patience_s -= time.monotonic() - begun

    def _compare(self) -> Iterator[Now]:
        """Under greedy decoding, compare each lane's text with the reference's, repeat by repeat."""
        reference = self.reference
        for entry in self.entries:
            if reference is None or entry is reference or not entry.laps:
                continue
            if entry.request is None or not entry.request.sampling.greedy:
                continue
            lap, entry.sameness = _telling(entry.laps, reference.laps)
            if entry.sameness.verdict == "differs" and not self.stopped:
                yield Now("comparing", entry.lane.name)
                self._look(entry, entry.request.prompt_ids, lap, entry.sameness)

    def _look(self, entry: Entry, prompt_ids: Sequence[int], lap: Lap, same: Sameness) -> None:
        before = (*prompt_ids, *lap.run.token_ids[: same.tokens])
        try:
            entry.gap = look_at(self._course, before, same.ours, same.theirs)
        except DSparkError:
            entry.gap = None  # the report says that it is not known


def _telling(laps: Sequence[Lap], others: Sequence[Lap]) -> tuple[Lap, Sameness]:
    """The first lap that differs from the other lane's of the same repeat; the first lap where none does."""
    by_repeat = {lap.repeat: lap for lap in others}
    compared = [(lap, sameness(lap, by_repeat.get(lap.repeat, others[0]))) for lap in laps]
    return next((pair for pair in compared if pair[1].verdict == "differs"), compared[0])
