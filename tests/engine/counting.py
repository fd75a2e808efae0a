"""Doubles that count what is held and remember what was asked, and requests for them: tests of the engine."""

import time
from collections import Counter

from dspark_core.admission import Limits
from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.none import NoneDrafter
from dspark_core.engine import Engine
from dspark_core.errors import ResourceError
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.toy import FixedLoad, TableDrafter, ToyTarget, ToyTokenizer


class CountingTarget(ToyTarget):
    """Remembers each pass as {first prompt token: tokens}; has memory for ``room`` slots; takes a moment a pass."""

    pause_s = 0.001
    room = 1000

    def __init__(self, **options):
        super().__init__(**options)
        self.passes = []

    @property
    def num_held(self):
        return sum(not slot.released for slot in self.slots)

    def open_slot(self, capacity):
        if self.num_held >= self.room:
            raise ResourceError("There is no memory for the slot.")
        return super().open_slot(capacity)

    def forward(self, slots, token_ids, **options):
        time.sleep(self.pause_s)
        assert not any(slot.released for slot in slots), "a released slot is used"
        outputs = super().forward(slots, token_ids, **options)
        self.passes.append({slot.tokens[0]: len(ids) for slot, ids in zip(slots, token_ids, strict=True)})
        return outputs


class CountingDrafter(TableDrafter):
    """Knows how many of its states are held."""

    num_held = 0

    def open(self, capacity):
        state, drafter = super().open(capacity), self
        self.num_held += 1
        released = Counter()

        def release():
            released["times"] += 1
            assert released["times"] == 1, "released twice"
            drafter.num_held -= 1

        state.release = release
        return state


def open_engine(clock=time.monotonic, vocab_size=9, **limits):
    target = CountingTarget(vocab_size=vocab_size, max_context=4000)
    drafters = {"none": NoneDrafter(), "table": CountingDrafter(vocab_size, 4)}
    return Engine(DecodeLoop(target, ToyTokenizer(), drafters, FixedLoad()), Limits(**limits), clock=clock)


def ask(limit=30, seed=1, *, name=1, prompt_tokens=2, drafter="table", schedule=None, temperature=1.0):
    """A request whose prompt begins with the token ``name``."""
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=limit)
    prompt = (name, *[2] * (prompt_tokens - 1))
    return GenerationRequest(prompt, sampling, schedule or ScheduleParams("fixed", 0, 4, 0), drafter)


def wait_until(condition, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)


def held(engine):
    """(slots, drafter states) that are held."""
    return engine._loop.target.num_held, engine._loop.drafters["table"].num_held
