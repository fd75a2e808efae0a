"""Visitors at random: they join, leave, steer and drop out, and whoever stays must write what it writes alone."""

import gc
import random
import threading
import time
from dataclasses import dataclass, fields

import psutil

from dspark_core.answer import Answer
from dspark_core.engine import Engine
from dspark_core.errors import ResourceError
from dspark_core.events import DecodeRound, Finished, Waiting
from tests.engine.mixed import mixed_request, schedules_for

MB = 2**20


@dataclass
class Report:
    """What happened; memory is the process's: before, the most of the first half, and after everything is closed."""

    seconds: float = 0.0
    rounds: int = 0
    joins: int = 0
    waits: int = 0
    refused: int = 0
    cancels: int = 0
    schedule_changes: int = 0
    drafter_changes: int = 0
    finished: int = 0
    compared: int = 0
    prefixes_compared: int = 0
    slots: int = 0
    slots_left: int = 0
    answers_left: int = 0
    threads_left: int = 0
    memory_before_mb: float = 0.0
    memory_first_half_mb: float = 0.0
    memory_after_mb: float = 0.0

    def __str__(self):
        return ", ".join(f"{item.name} {getattr(self, item.name):.6g}" for item in fields(self))


class Visitor:
    """A generation that is read now and then."""

    def __init__(self, generation):
        self.generation = generation
        self.request = generation.request
        self.steered = False  # a sampled text may then differ from the one that it has alone
        self.finished = None

    def read(self, report):
        while self.finished is None and (event := self.generation.next_event(0)) is not None:
            report.rounds += isinstance(event, DecodeRound)
            report.waits += isinstance(event, Waiting)
            if isinstance(event, Finished):
                self.finished = event


class Stress:
    """One run over an engine of its own.

    Args:
        make_loop: makes the decode loop; asked once more for the answers alone.
        limits: the engine's.
        seed: of what happens (when it happens within a round is the machine's own chance).
        variety: number of different requests.
        options: lengths, as `mixed_request` takes them.
    """

    def __init__(self, make_loop, limits, *, seed=0, variety=60, **options):
        self._dice = random.Random(seed)
        self._loop = make_loop()
        self._limits = limits
        self._requests = [mixed_request(self._loop, self._dice, **options) for _ in range(variety)]
        self._alone = {}
        self._results = []
        self._visitors = []
        self._held = []
        self.report = Report()

    def run(self, *, actions=None, seconds=None, pause_s=0.002):
        """Act so often, or so long; then let those that are left finish, and check everything."""
        models = [getattr(drafter, "model", None) for drafter in self._loop.drafters.values()]
        targets = [self._loop.target, *(model for model in models if hasattr(model, "open_slot"))]
        for target in targets:
            self._count_slots(target)
        answers, threads, started = _count_answers(), threading.active_count(), time.monotonic()
        self._engine = Engine(self._loop, self._limits)
        self.report.memory_before_mb = _memory_mb()
        done = looked_s = 0
        while done < actions if actions is not None else time.monotonic() - started < seconds:
            self._act()
            done += 1
            now_s = time.monotonic()
            first_half = done * 2 <= actions if actions is not None else (now_s - started) * 2 <= seconds
            if first_half and now_s - looked_s > 0.5:  # the most: a single moment may lie in a hollow
                looked_s = now_s
                self.report.memory_first_half_mb = max(self.report.memory_first_half_mb, _memory_mb())
            time.sleep(pause_s)
        while self._visitors:
            self._read_all()
            time.sleep(pause_s)
        assert self._engine.num_active == 0
        self._engine.close()
        self.report.seconds = time.monotonic() - started
        self.report.threads_left = threading.active_count() - threads
        self.report.slots_left = sum(not _is_released(slot) for slot in self._held)
        self._held.clear()
        for target in targets:
            del target.open_slot  # the double; the class's own is below it
        gc.collect()
        self.report.answers_left = _count_answers() - answers
        self.report.memory_after_mb = _memory_mb()
        self._compare()
        assert self.report.slots_left == self.report.answers_left == self.report.threads_left == 0, self.report
        return self.report

    def _act(self):
        self._read_all()
        full = len(self._visitors) >= self._limits.max_active + self._limits.max_waiting
        chance = self._dice.random()
        if chance < (0.02 if full else 0.3):
            self._join()
        elif 0.3 <= chance < 0.48 and self._visitors:
            visitor = self._dice.choice(self._visitors)
            if chance < 0.35:
                visitor.generation.cancel()
                self.report.cancels += 1
            elif chance < 0.43:
                self._change_schedule(visitor)
            else:
                self._change_drafter(visitor)

    def _join(self):
        try:
            self._visitors.append(Visitor(self._engine.submit(self._dice.choice(self._requests))))
            self.report.joins += 1
        except ResourceError:
            self.report.refused += 1

    def _change_schedule(self, visitor):
        drafter, greedy = visitor.generation.request.drafter, visitor.request.sampling.greedy
        visitor.generation.update_schedule(self._dice.choice(schedules_for(self._loop, drafter, greedy=greedy)))
        visitor.steered = True
        self.report.schedule_changes += 1

    def _change_drafter(self, visitor):
        drafter = self._dice.choice(list(self._loop.drafters))
        schedule, greedy = visitor.generation.request.schedule, visitor.request.sampling.greedy
        if schedule not in schedules_for(self._loop, drafter, greedy=greedy):
            return
        visitor.generation.update_drafter(drafter)
        visitor.steered = True
        self.report.drafter_changes += 1

    def _read_all(self):
        for visitor in self._visitors:
            visitor.read(self.report)
        for visitor in [visitor for visitor in self._visitors if visitor.finished]:
            self._visitors.remove(visitor)
            assert visitor.finished.finish_reason != "error", visitor.finished.detail
            self.report.finished += 1
            if visitor.request.sampling.greedy or not visitor.steered:
                finished = visitor.finished
                self._results.append((visitor.request, finished.finish_reason, finished.token_ids, finished.text))

    def _compare(self):
        """After the run, since a target makes one pass at a time: the texts, and of the cancelled what they have."""
        for request, reason, token_ids, text in self._results:
            if request not in self._alone:
                self._alone[request] = self._loop.run(request)[-1]
            alone = self._alone[request]
            if reason == "cancelled":
                assert token_ids == alone.token_ids[: len(token_ids)], request
                self.report.prefixes_compared += 1
            else:
                assert (reason, token_ids, text) == (alone.finish_reason, alone.token_ids, alone.text), request
                self.report.compared += 1

    def _count_slots(self, target):
        open_slot = target.open_slot

        def counting(capacity):
            slot = open_slot(capacity)
            self._held = [held for held in self._held if not _is_released(held)]
            self._held.append(slot)
            self.report.slots += 1
            return slot

        target.open_slot = counting


def _is_released(slot):
    return slot.capacity == 0  # what a released slot of `LlamaTarget` says of itself


def _count_answers():
    return sum(type(thing) is Answer for thing in gc.get_objects())


def _memory_mb():
    return psutil.Process().memory_info().rss / MB
