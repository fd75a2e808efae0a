"""Running races for visitors: at most one each, told to the page while it goes on, freed when the visitor leaves."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from dspark_core.bench.duel import Duel, Entry, duel_lanes
from dspark_core.bench.duel_report import duel_report
from dspark_core.bench.lap import Now
from dspark_core.errors import DSparkError, ParameterError
from dspark_core.load_test.lane import Lane
from dspark_core.params import GenerationRequest, SamplingParams
from ui.answering import MAX_YIELDS_PER_S
from ui.host import SessionHost
from ui.inputs import read_prompt, read_repeats, read_sampling
from ui.ports import SessionPort
from ui.trace import to_json

MAX_TOKENS = 512  # of an answer in a race: all lanes together hold the engine for as long as that takes


@dataclass(frozen=True, slots=True)
class Race:
    """A race that is about to run: the duel, and what the page says about it."""

    duel: Duel
    about: dict[str, Any]


class Racing:
    """The races of one page. Safe to use from several threads.

    Args:
        host: the session's host.
    """

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._gate = threading.Lock()  # whoever holds it runs a lap
        self._lock = threading.Lock()
        self._running: dict[str, Duel] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._running)

    def prepare(
        self, prompt: object, lanes: object, temperature: object, max_tokens: object, seed: object, repeats: object
    ) -> Race:
        """A race of checked parameters. Raises ParameterError."""
        session = self._host.opened("Start the race when it is.")
        text = read_prompt(prompt)
        if not isinstance(lanes, Sequence) or isinstance(lanes, str) or not all(isinstance(n, str) for n in lanes):
            raise ParameterError("The lanes must be a list of names, such as plain and dspark+threshold@0.3.")
        sampling = read_sampling(temperature, 1, max_tokens, seed)
        if sampling.max_new_tokens > MAX_TOKENS:
            raise ParameterError(
                f"Max tokens is {sampling.max_new_tokens}; a race has at most {MAX_TOKENS}, since its lanes run one "
                "after the other. Ask for fewer."
            )
        if sampling.seed is None:
            sampling = replace(sampling, seed=secrets.randbits(31))  # all lanes have the same one
        default = next(iter(session.info.drafters))
        chosen = duel_lanes(lanes, default)
        _request(session, text, sampling, chosen[0])  # a prompt that no lane can have is refused at once
        entries = [_entry(session, text, sampling, lane) for lane in chosen]
        duel = Duel(session.engine, entries, read_repeats(repeats), self._gate)
        return Race(duel, _about(session, text, sampling, duel))

    def run(self, visitor: str, race: Race) -> Generator[Now, None, None]:
        """Run it as the visitor's one race. Closing the iterator, `stop` and `leave` free the engine.

        Raises:
            ParameterError: another one of the same visitor runs.
        """
        with self._lock:
            if visitor in self._running:
                raise ParameterError("Your last race still runs. Press Stop first, or wait for its end.")
            self._running[visitor] = race.duel
        try:
            with closing(race.duel.run()) as going:
                yield from going
        finally:
            with self._lock:
                self._running.pop(visitor, None)

    def running(self, visitor: str) -> bool:
        """Whether the visitor's own race runs."""
        with self._lock:
            return visitor in self._running

    def stop(self, visitor: str) -> None:
        """End the visitor's own race; what is done stays."""
        with self._lock:
            duel = self._running.get(visitor)
        if duel is not None:
            duel.stop()


def _entry(session: SessionPort, text: str, sampling: SamplingParams, lane: Lane) -> Entry:
    """The lane with its request; one that the session refuses says why, and the others go on."""
    try:
        return Entry(lane, _request(session, text, sampling, lane))
    except DSparkError as error:
        return Entry(lane, None, error=str(error))


def _request(session: SessionPort, text: str, sampling: SamplingParams, lane: Lane) -> GenerationRequest:
    return session.request([{"role": "user", "content": text}], sampling, lane.schedule, lane.drafter)


def _about(session: SessionPort, text: str, sampling: SamplingParams, duel: Duel) -> dict[str, Any]:
    info = session.info
    return {
        "prompt": text,
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_new_tokens,
        "seed": str(sampling.seed),  # may be beyond JavaScript's whole numbers
        "repeats": duel.repeats,
        "model": info.model,
        "device": info.device_label,
        "dtype": info.dtype,
        "energy_note": session.engine.load().note,
        "lanes": [entry.lane.name for entry in duel.entries],
    }


class Told:
    """Messages of one race for the page: the state at each, the whole report whenever it has grown."""

    def __init__(self, race: Race) -> None:
        self._race = race
        self._id = secrets.token_hex(6)
        self._seq = 0
        self._size = -1
        self._told_at = 0.0

    def due(self, now: Now) -> str | None:
        """The next message, or None when it is too early for one: at most `MAX_YIELDS_PER_S`, but for a new result."""
        grown = self._measure() != self._size
        moment = time.monotonic()
        if not grown and moment < self._told_at + 1 / MAX_YIELDS_PER_S:
            return None
        self._told_at = moment
        return self._message("running", now, grown)

    def end(self) -> str:
        """The last message: everything."""
        return self._message("stopped" if self._race.duel.stopped else "done", None, True)

    def _measure(self) -> int:
        return sum(len(entry.laps) + bool(entry.error) for entry in self._race.duel.entries)

    def _message(self, state: str, now: Now | None, whole: bool) -> str:
        self._seq += 1
        body = {
            "kind": "race",
            "race": self._id,
            "seq": self._seq,
            "state": state,
            "about": self._race.about,
            "now": now and asdict(now),
        }
        if whole:
            self._size = self._measure()
            body["report"] = duel_report(self._race.duel)
        return to_json(body)
