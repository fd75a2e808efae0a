"""Measures a step (the target's pass and the verdicts on it) and the drafting as the decode loop runs them.

Times are medians of repeats in rotating order.

Symbols: B tokens in a pass, R requests, γ drafts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from statistics import median

import torch

from dspark_core.drafters.base import EMPTY_BLOCK, DraftAsk, DraftBlock, Drafter, DrafterState, block_or_raise
from dspark_core.errors import ParameterError, ResourceError
from dspark_core.params import SamplingParams
from dspark_core.profiling.profile import DraftProbe, StepProbe, mix, shared_out, spread_counts, token_counts
from dspark_core.sampling import SeededDice
from dspark_core.scheduling.step_curve import LEAST_S
from dspark_core.storage import Progress, no_progress
from dspark_core.target.base import KVSlot, Target
from dspark_core.verification import Case, judge_all

CONTEXTS = (64, 256, 1024)
LEAST_REPEATS, MOST_REPEATS = 3, 25

_PERIOD = 61  # the text repeats itself, so that prompt look-up finds something to draft
_GOLDEN = 0.618034  # of the tasks, from one round's beginning to the next: never near an earlier one
_GREEDY = SamplingParams()

Clock = Callable[[], float]
_About = tuple[int, int, int]  # context, B, R


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians of ``repeats`` times each."""

    steps: tuple[StepProbe, ...]
    spread: tuple[StepProbe, ...]
    drafting: tuple[DraftProbe, ...]
    repeats: int


def tapped_by(drafters: Iterable[Drafter]) -> tuple[int, ...]:
    """The layers that a pass has to tap for all of them, as the decode loop asks for them."""
    return tuple(sorted({layer for drafter in drafters for layer in drafter.tapped_layers}))


def measure(
    target: Target,
    drafters: Mapping[str, Drafter],
    *,
    max_requests: int,
    budget_s: float,
    progress: Progress = no_progress,
    now: Clock | None = None,
) -> Measured:
    """Time steps of 1 to R·(1+γ) tokens at several context lengths, and the drafting of 1 to R requests.

    Everything runs once as a warm-up, then in whole rounds that each begin elsewhere, until the next would end after
    ``budget_s``; three rounds are run in any case. Nothing else should be using the target meanwhile.

    Args:
        target: the model.
        drafters: by name; their taps are part of a pass, γ is the largest of theirs.
        max_requests: R.
        budget_s: seconds to spend, from the warm-up on.
        progress: is told the time left.
        now: a clock in seconds that waits for the device (default: the machine's).

    Raises:
        ParameterError: a budget that is no positive number, or a target without room for one round.
        ResourceError: memory is short for the caches.
    """
    if not 0 < budget_s < float("inf"):
        raise ParameterError(f"budget-s is {budget_s}; it must be a number of seconds above 0.")
    with torch.inference_mode(), ExitStack() as stack:
        bench = _Bench(target, drafters, max_requests, stack, progress)
        steps, spread = bench.step_tasks()
        drafting = bench.draft_tasks()
        tasks = [task for _, task in (*steps, *spread, *drafting)]
        seconds, repeats = _medians(tasks, budget_s, progress, now or _clock_of(target.device))
    taken = iter(seconds)
    return Measured(
        tuple(StepProbe(*about, next(taken)) for about, _ in steps),
        tuple(StepProbe(*about, next(taken)) for about, _ in spread),
        tuple(DraftProbe(*about, next(taken)) for about, _ in drafting),
        repeats,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """What is timed, and what has to be put back afterwards, untimed."""

    run: Callable[[], object]
    undo: Callable[[], object] = lambda: None


class _Bench:
    """Requests in the middle of their answers, to run rounds on. What it opens, ``stack`` releases."""

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter],
        max_requests: int,
        stack: ExitStack,
        progress: Progress,
    ) -> None:
        self._target = target
        self._progress = progress
        self._drafters = {name: drafter for name, drafter in drafters.items() if drafter.num_draft_tokens > 0}
        self._max_requests = max_requests
        self._block = 1 + max((drafter.num_draft_tokens for drafter in self._drafters.values()), default=0)
        self._taps = tapped_by(self._drafters.values())
        self._contexts = _contexts_within(target, self._block)
        self._middle = self._contexts[len(self._contexts) // 2]
        self._stack = stack
        dice = random.Random(0)
        period = [dice.randrange(target.vocab_size) for _ in range(_PERIOD)]
        self._text = (period * (1 + self._contexts[-1] // _PERIOD))[: self._contexts[-1]]

    def step_tasks(self) -> tuple[list[tuple[_About, _Task]], list[tuple[_About, _Task]]]:
        """The steps to time, as `mix` shares their tokens out; and those of `spread_counts`, at the middle context."""
        source = self._open_slot(self._contexts[-1])
        self._target.forward([source], [self._text], tapped_layers=(), want_logits=False)
        steps, spread = [], []
        for context in self._contexts:
            slots = [self._open_slot(context + self._block) for _ in range(self._max_requests)]
            for slot in slots:
                slot.copy_from(source, context)
            for tokens in token_counts(self._max_requests * self._block):
                steps.append(self._step(slots, mix(tokens, self._max_requests, self._block), context))
            if context == self._middle:
                for tokens, requests in spread_counts(self._max_requests, self._block):
                    spread.append(self._step(slots, shared_out(tokens, requests), context))
        return steps, spread

    def draft_tasks(self) -> list[tuple[tuple[str, int, int, int, int], _Task]]:
        """(drafter, γ, d, context, R) and R requests drafting d tokens each, at the middle context length."""
        context = self._middle
        requests = sorted({1, max(1, self._max_requests // 4), self._max_requests})
        tasks = []
        for name, drafter in self._drafters.items():
            gamma = drafter.num_draft_tokens
            features = self._features(drafter, context)
            states = [self._open_state(drafter, context, features) for _ in range(self._max_requests)]
            for drafts, count in product(sorted({max(1, gamma // 4), gamma}), requests):
                tasks.append(((name, gamma, drafts, context, count), self._drafting(drafter, states[:count], drafts)))
        return tasks

    def _step(self, every: Sequence[KVSlot], shares: Sequence[int], context: int) -> tuple[_About, _Task]:
        """The pass, and the verdicts on what each of its requests drafted."""
        slots = every[: len(shares)]
        token_ids = [self._text[:share] for share in shares]
        blocks, dice = [_drafted(ids[1:]) for ids in token_ids], SeededDice(0)

        def run() -> None:
            outputs = self._target.forward(slots, token_ids, tapped_layers=self._taps)
            judge_all(
                [
                    Case(output.logits[:, : self._target.vocab_size], _GREEDY, block, dice, inspect=False)
                    for output, block in zip(outputs, blocks, strict=True)
                ]
            )

        def undo() -> None:
            for slot in slots:
                slot.crop(context)

        return (context, sum(shares), len(shares)), _Task(run, undo)

    def _drafting(self, drafter: Drafter, states: Sequence[DrafterState], count: int) -> _Task:
        asks = [DraftAsk(state, self._text[0], count, _GREEDY, SeededDice(0)) for state in states]

        def run() -> None:
            for outcome in drafter.draft_all(asks):
                block_or_raise(outcome)

        return _Task(run)

    def _features(self, drafter: Drafter, context: int) -> torch.Tensor:
        slot = self._open_slot(context)
        taps = drafter.tapped_layers
        output = self._target.forward([slot], [self._text[:context]], tapped_layers=taps, want_logits=False)
        slot.release()
        return output[0].features

    def _fill(self) -> None:
        """Told for each cache: whoever listens may end it here."""
        self._progress("Filling caches to measure on", 0.0)

    def _open_slot(self, capacity: int) -> KVSlot:
        self._fill()
        try:
            slot = self._target.open_slot(capacity)
        except ResourceError as error:
            raise ResourceError(
                f"Step times are measured on {self._max_requests} requests of up to {self._contexts[-1]} tokens side "
                f"by side, and {self._target.device} has no room for their keys and values. End other programs "
                "or answers there, or choose another device or a smaller model."
            ) from error
        self._stack.callback(slot.release)
        return slot

    def _open_state(self, drafter: Drafter, context: int, features: torch.Tensor) -> DrafterState:
        self._fill()
        state = drafter.open(context + self._block)
        self._stack.callback(state.release)
        state.observe(tuple(self._text[:context]), features)
        return state


def _drafted(token_ids: Sequence[int]) -> DraftBlock:
    """Drafts that were certain to their drafter."""
    if not token_ids:
        return EMPTY_BLOCK
    ids, certain = torch.tensor(token_ids)[:, None], torch.ones(len(token_ids), 1)
    return DraftBlock(tuple(token_ids), None, ids, certain, (1.0,) * len(token_ids))


def _contexts_within(target: Target, block: int) -> tuple[int, ...]:
    room = target.max_context - block
    if room < 1:
        raise ParameterError(
            f"{target.name} holds {target.max_context} tokens, and a round of {block} needs one more before it: there "
            "is nothing to measure. Choose a drafter with fewer drafts a round."
        )
    return tuple(sorted({min(context, room) for context in CONTEXTS}))


def _medians(tasks: Sequence[_Task], budget_s: float, progress: Progress, now: Clock) -> tuple[list[float], int]:
    """The median time of each task, and of how many."""
    rounds = _Rounds(len(tasks), budget_s, progress, now)
    times: list[list[float]] = [[] for _ in tasks]
    while rounds.go_on():
        for index in rounds.order():
            begun = now()
            tasks[index].run()
            times[index].append(now() - begun)
            tasks[index].undo()
            rounds.step()
    medians = [max(LEAST_S, median(taken[1:])) for taken in times]  # a coarse clock may see no time pass
    return medians, rounds.done - 1  # the first was the warm-up


class _Rounds:
    """Decides how many rounds fit the budget, and tells the time left. Round 0 is the warm-up."""

    def __init__(self, tasks: int, budget_s: float, progress: Progress, now: Clock) -> None:
        self._tasks = tasks
        self._budget_s = budget_s
        self._progress = progress
        self._now = now
        self._began = now()
        self._steps = 0
        self._share = 0.0
        self.done = 0

    def go_on(self) -> bool:
        """Whether another round is to be run."""
        return self.done < self._planned()

    def order(self) -> list[int]:
        """The tasks of the next round: each round begins elsewhere, so none always runs after the same others."""
        start = round(self.done * self._tasks * _GOLDEN) % self._tasks
        self.done += 1
        return [*range(start, self._tasks), *range(start)]

    def step(self) -> None:
        """One task was run."""
        self._steps += 1
        rounds, wanted = self._steps / self._tasks, self._planned()
        left = self._elapsed() / rounds * (wanted - rounds)
        self._share = max(self._share, min(1.0, rounds / wanted))  # a plan that grows must not turn a bar back
        minutes, seconds = divmod(round(max(0.0, left)), 60)
        self._progress(f"Measuring step times: {minutes}:{seconds:02d} left", self._share)

    def _planned(self) -> int:
        """Rounds in all, the warm-up included, at the speed so far."""
        elapsed_s = max(self._elapsed(), 1e-9)  # nothing yet at the start, when the least is planned
        fitting = self._budget_s * self._steps / self._tasks / elapsed_s  # infinite where the budget is boundless
        return int(min(MOST_REPEATS + 1, max(LEAST_REPEATS + 1, fitting)))

    def _elapsed(self) -> float:
        return self._now() - self._began


def _clock_of(device: torch.device) -> Clock:
    """Seconds; waits for the device, so that a pass's time is its own."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
