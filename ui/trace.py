"""What the answer panels get: small JSON messages, each with the rounds since the last one and a few before.

A message lost between two draws (a browser tab may coalesce them) is healed by the overlap, and in any case by the
last message, which carries the whole trace. Model text travels as JSON strings only; the page puts it into the
document as text, never as markup.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from typing import Any

from dspark_core.events import (
    Candidate,
    DecodeRound,
    DrafterChanged,
    Event,
    Finished,
    Inspection,
    LoadReading,
    LoadSample,
    Prefilled,
    Waiting,
)
from dspark_core.pace import Held
from dspark_core.telemetry import Summary, Telemetry, merge, summarise

OVERLAP_ROUNDS = 12
RECENT_ROUNDS = 16


def to_json(body: dict[str, Any]) -> str:
    """JSON without any ``<``: it stays inert even where something takes it for markup."""
    return json.dumps(body, allow_nan=False).replace("<", "\\u003c")


def load_json(load: LoadSample) -> list[Any]:
    """A load sample as a compact list."""
    return [
        load.source, load.kind, load.utilisation, load.memory_used_bytes, load.memory_total_bytes, load.power_w,
        load.note, load.energy_j, load.occupancy, load.engine_busy, load.simulated,
    ]  # fmt: skip


def signal_json(signal: LoadReading | None) -> list[Any] | None:
    """The load that a policy judged by, as a compact list."""
    return None if signal is None else [signal.signal, signal.value, signal.source, signal.note]


def round_json(event: DecodeRound) -> dict[str, Any]:
    """A round in the compact form that `ui/static/store.js` names the parts of."""
    return {
        "i": event.index,
        "anchor": event.anchor.text,
        "draft": [
            [
                d.id,
                d.text,
                d.fate.value,
                d.confidence,
                d.survival,
                d.draft_prob,
                d.target_prob,
                d.accept_prob,
                d.uniform,
                d.raw_confidence,
            ]
            for d in event.draft
        ],
        "len": event.verify_len,
        "why": event.reason,
        "acc": event.num_accepted,
        "next": None if event.next is None else [event.next.id, event.next.text, event.next.kind],
        "text": "".join(token.text for token in event.committed),
        "s": [event.timings.draft_s, event.timings.schedule_s, event.timings.verify_s],
        "sched": [
            event.policy,
            event.l_min,
            event.l_max,
            event.threshold,
            event.stop_early,
            event.band_low,
            event.band_high,
        ],
        "signal": signal_json(event.signal),
        "load": load_json(event.load),
    }


def laws_json(seen: Inspection) -> list[Any]:
    """What decided in a round, in the compact form that `ui/static/store.js` names the parts of."""
    return [
        [_candidates_json(candidates) for candidates in seen.candidates],
        _candidates_json(seen.bonus),
        [_short(throughput) for throughput in seen.throughputs],
        seen.stopped_at,
        seen.temperature,
    ]


def _candidates_json(candidates: tuple[Candidate, ...]) -> list[list[Any]]:
    return [[c.id, c.text, *map(_short, (c.base, c.draft, c.target, c.residual))] for c in candidates]


def _short(value: float | None) -> float | None:
    """Six digits: more than the page shows, and half the way."""
    return None if value is None else float(f"{value:.6g}")


def figures_json(summary: Summary) -> dict[str, Any]:
    """The figures that the page shows, all of them telemetry's."""
    names = (
        "rounds", "tokens", "drafted", "verified", "accepted", "wasted", "tau", "tokens_per_s", "acceptance_rate",
        "draft_s", "schedule_s", "verify_s", "round_s",
    )  # fmt: skip
    return {name: getattr(summary, name) for name in names}


class Trace:
    """Reads one answer's events and writes the messages for its panels.

    Args:
        answer: a name of the answer that no other answer of this visitor has.
    """

    def __init__(self, answer: str) -> None:
        self.finished: Finished | None = None
        self.answer = answer
        self.events: list[Event] = []  # all that were taken
        self.held = Held()  # as last told
        self._seq = 0
        self._sent = 0
        self._rounds: list[dict[str, Any]] = []
        self._laws: list[tuple[int, Inspection]] = []  # by round; large, so each is sent once, and all at the end
        self._laws_sent = 0
        self._telemetry = Telemetry()
        self._recent: deque[Summary] = deque(maxlen=RECENT_ROUNDS)
        self._prefilled: dict[str, Any] | None = None
        self._waiting = ""

    def add(self, event: Event) -> None:
        """Take one event."""
        self.events.append(event)
        self._telemetry.add(event)
        if isinstance(event, Waiting):
            self._waiting = event.text
        elif isinstance(event, Prefilled):
            self._waiting = ""
            names = (
                "prompt_tokens", "prefill_s", "seed", "drafter", "drafter_note", "num_draft_tokens", "policy",
            )  # fmt: skip
            self._prefilled = {name: getattr(event, name) for name in names}
            self._prefilled["seed"] = str(event.seed)  # may be beyond JavaScript's whole numbers
        elif isinstance(event, DrafterChanged):
            changed = {name: getattr(event, name) for name in ("drafter", "drafter_note", "num_draft_tokens")}
            self._prefilled = {**(self._prefilled or {}), **changed}
        elif isinstance(event, DecodeRound):
            self._rounds.append(round_json(event))
            if event.inspection is not None:
                self._laws.append((event.index, event.inspection))
            # Its counts only: these are added up at each message.
            self._recent.append(replace(summarise(event), accepted_lengths=(), conditional=(), survival=()))
        else:
            self._waiting = ""
            self.finished = event

    @property
    def figures(self) -> Summary:
        """The whole answer's figures so far."""
        return self._telemetry.summary()

    @property
    def text(self) -> str:
        """The answer's text so far."""
        return "".join(event["text"] for event in self._rounds) if self.finished is None else self.finished.text

    @property
    def prefilled(self) -> dict[str, Any] | None:
        """What the answer began with; the seed is a text. None until the prompt is read."""
        return self._prefilled

    def message(self, overlap: int = OVERLAP_ROUNDS, *, laws: bool = True) -> str:
        """The next message, with so many rounds of those before; after the end of the answer, the whole trace.

        Without ``laws``, those of the rounds so far are left to a later message.
        """
        return to_json(self.body(overlap, laws=laws))

    def body(self, overlap: int = OVERLAP_ROUNDS, *, laws: bool = True) -> dict[str, Any]:
        """What the next message says."""
        self._seq += 1
        first = 0 if self.finished else max(0, self._sent - overlap)
        self._sent = len(self._rounds)
        seen: list[tuple[int, Inspection]] = []
        if laws or self.finished:
            seen = self._laws if self.finished else self._laws[self._laws_sent :]
            self._laws_sent = len(self._laws)
        return {
            "kind": "answer",
            "answer": self.answer,
            "seq": self._seq,
            "full": self.finished is not None,
            "waiting": self._waiting,
            "held": [self.held.rate, self.held.note],
            "prefilled": self._prefilled,
            "rounds": self._rounds[first:],
            "laws": [[index, laws_json(inspection)] for index, inspection in seen],
            "total": len(self._rounds),
            "figures": figures_json(self._telemetry.summary()),
            "recent": figures_json(merge(self._recent)),
            "recent_rounds": len(self._recent),
            "text": None if self.finished is None else self.finished.text,
            "finish": None if self.finished is None else [self.finished.finish_reason, self.finished.detail],
        }
