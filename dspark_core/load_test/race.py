"""The order of a load test: at every number of users all lanes in turn, in several repeats that begin elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dspark_core.bench.paired import NUM_SEEDS, WARM_UP_TOKENS, Case, rotated
from dspark_core.engine import Engine
from dspark_core.errors import DSparkError, so_many
from dspark_core.load_test.lane import Lane
from dspark_core.load_test.time_left import TimeLeft
from dspark_core.load_test.trace import CellTrace
from dspark_core.load_test.users import Users
from dspark_core.params import SamplingParams
from dspark_core.storage import Progress

_SEEDS_APART = 1_000_003  # from one repeat's first seed to the next one's: more than a repeat has questions


@dataclass(frozen=True, slots=True)
class Job:
    """What is measured.

    Attributes:
        lanes: the methods.
        cases: the questions, in order.
        sampling: the law, with the first seed.
        users: the numbers of users, N.
        repeats: how often all of it is done.
        answers_per_user: so many times N answers count, but at least every question once.
        seconds: instead, the seconds for which answers count.
    """

    lanes: Sequence[Lane]
    cases: Sequence[Case]
    sampling: SamplingParams
    users: Sequence[int]
    repeats: int
    answers_per_user: int
    seconds: float | None

    def answers(self, users: int) -> int | None:
        """How many answers count with so many users; None when the time decides."""
        return None if self.seconds is not None else max(len(self.cases), self.answers_per_user * users)


@dataclass(slots=True)
class Measured:
    """What came of it.

    Attributes:
        cells: users → lane → one cell a repeat. Only repeats in which every lane was measured with so many users:
            all that is here can be compared.
        interrupted: whether Ctrl-C ended it.
        failure: why it ended early, or ''.
    """

    cells: dict[int, dict[str, list[CellTrace]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    interrupted: bool = False
    failure: str = ""

    @property
    def partial(self) -> bool:
        """Whether something is missing."""
        return self.interrupted or bool(self.failure)


def measure(engine: Engine, job: Job, progress: Progress) -> Measured:
    """Run the job after a warm-up that is left out. Ctrl-C, or an answer that fails, ends it with what is done.

    Raises:
        KeyboardInterrupt, DSparkError: before all lanes had been measured with the first number of users.
    """
    measured = Measured()
    try:
        _warm_up(engine, job, progress)
        for users, cells in _groups(engine, job, progress):
            for lane, cell in cells.items():
                measured.cells[users][lane].append(cell)
    except (KeyboardInterrupt, DSparkError) as error:
        if not measured.cells:
            raise
        measured.interrupted = isinstance(error, KeyboardInterrupt)
        measured.failure = "" if measured.interrupted else str(error)
    return measured


def _groups(engine: Engine, job: Job, progress: Progress) -> Iterator[tuple[int, dict[str, CellTrace]]]:
    """The lanes' cells of one repeat with so many users, as soon as they are whole."""
    parts = [(users, lane.name) for users in job.users for lane in job.lanes] * job.repeats
    left = TimeLeft(parts, lambda users: job.answers(users) or 1)
    for repeat in range(job.repeats):
        seed = ((job.sampling.seed or 0) + repeat * _SEEDS_APART) % NUM_SEEDS
        for place, users in enumerate(job.users):
            cells = {}
            for lane in rotated(job.lanes, repeat + place):
                stage = f"repeat {repeat + 1}/{job.repeats}, {so_many(users, 'user')}, {lane.name}"
                progress(f"{stage}: {left}", left.share)
                crowd = _users(engine, job, lane, replace(job.sampling, seed=seed), users)
                cells[lane.name] = crowd.run()
                left.done((users, lane.name))
            yield users, cells
    progress("measured", 1.0)


def _users(engine: Engine, job: Job, lane: Lane, sampling: SamplingParams, users: int) -> Users:
    answers = job.answers(users)
    return Users(engine, lane, job.cases, sampling, users=users, answers=answers, seconds=job.seconds)


def _warm_up(engine: Engine, job: Job, progress: Progress) -> None:
    short = replace(job.sampling, max_new_tokens=min(WARM_UP_TOKENS, job.sampling.max_new_tokens))
    for lane in job.lanes:
        progress(f"warm-up (left out): {lane.name}", 0.0)
        Users(engine, lane, job.cases, short, users=min(2, max(job.users)), answers=1).run()
