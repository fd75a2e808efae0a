"""Every figure about a generation, defined once: events in, one `Summary` out; and the JSONL record of the events.

Symbols: k is a position in the draft block (1, 2, …), ℓ a round's verification length.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dspark_core.events import DrafterChanged, Event, Fate, Finished, Prefilled, Waiting
from dspark_core.recording import Header, Recording, read, write

LATE_POSITION = 4  # where a suffix's acceptance is compared with the first position's
_DERIVED = (
    "wasted",
    "round_s",
    "tau",
    "tokens_per_s",
    "acceptance_rate",
    "draft_to_verify",
    "suffix_decay",
    "mean_verify_len",
    "mean_prefill_s",
)


@dataclass(frozen=True, slots=True)
class PositionShare:
    """A share at one draft position, always with its n.

    Attributes:
        position: k = 1, 2, …
        hits: rounds in which it held.
        n: rounds in which it could be observed.
    """

    position: int
    hits: int
    n: int

    @property
    def share(self) -> float | None:
        """Hits / n; None when nothing was observed."""
        return self.hits / self.n if self.n else None

    def __add__(self, other: PositionShare) -> PositionShare:
        return PositionShare(self.position, self.hits + other.hits, self.n + other.n)


def _added(ours: Any, theirs: Any) -> Any:
    """The sum of two counts, or of two tuples item by item, of which one may be shorter."""
    if not isinstance(ours, tuple):
        return ours + theirs
    longer = ours[len(theirs) :] or theirs[len(ours) :]
    return tuple(a + b for a, b in zip(ours, theirs, strict=False)) + longer


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts and seconds of one or several generations; every derived figure is a property with its formula.

    Attributes:
        generations: `Prefilled` events seen.
        prompt_tokens: tokens of their prompts.
        prefill_s: seconds of their prefills.
        rounds: rounds of decoding.
        tokens: committed tokens, the target's own included: Σ len(committed).
        drafted: drafted tokens: Σ len(draft).
        verified: drafted tokens that the target verified: Σ ℓ.
        accepted: drafted tokens accepted *and* committed: Σ num_accepted.
        truncated_rounds: rounds that the end of the text cut on an accepted draft (no token of the target's own).
        draft_s, schedule_s, verify_s: seconds of the rounds' parts.
        accepted_lengths: histogram; entry j counts the rounds with ``num_accepted == j``.
        conditional: acceptance by position. n = rounds that verified position k and accepted every position before
            it; hits = those that accepted k too. A draft discarded because the text ended is not a rejection: such
            a position is not observed.
        survival: survival by position. n = rounds that verified position k; hits = those that accepted 1 … k. A
            round that the text's end cut before k without a rejection is not observed at k.
    """

    generations: int = 0
    prompt_tokens: int = 0
    prefill_s: float = 0.0
    rounds: int = 0
    tokens: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    truncated_rounds: int = 0
    draft_s: float = 0.0
    schedule_s: float = 0.0
    verify_s: float = 0.0
    accepted_lengths: tuple[int, ...] = ()
    conditional: tuple[PositionShare, ...] = ()
    survival: tuple[PositionShare, ...] = ()

    def __add__(self, other: Summary) -> Summary:
        return Summary(*(_added(getattr(self, item.name), getattr(other, item.name)) for item in fields(self)))

    @property
    def wasted(self) -> int:
        """Verified in vain: verified - accepted."""
        return self.verified - self.accepted

    @property
    def round_s(self) -> float:
        """Seconds of all rounds: draft_s + schedule_s + verify_s (the prefill left out)."""
        return self.draft_s + self.schedule_s + self.verify_s

    @property
    def tau(self) -> float:
        """τ = tokens / rounds, the target's own token included; 0 when there was no round."""
        return self.tokens / self.rounds if self.rounds else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens / round_s (the prefill left out); 0 when there was no round."""
        return self.tokens / self.round_s if self.round_s > 0 else 0.0

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / verified (not / drafted); None when nothing was verified."""
        return self.accepted / self.verified if self.verified else None

    @property
    def wasted_share(self) -> float | None:
        """Wasted / verified = 1 - acceptance rate; None when nothing was verified."""
        return self.wasted / self.verified if self.verified else None

    @property
    def wasted_per_token(self) -> float | None:
        """Wasted / tokens: drafts verified in vain for each committed token; None when there was none."""
        return self.wasted / self.tokens if self.tokens else None

    @property
    def budget(self) -> float | None:
        """Tokens in the target's pass per round = (rounds + verified) / rounds = 1 + mean ℓ; None without a round."""
        return (self.rounds + self.verified) / self.rounds if self.rounds else None

    @property
    def draft_to_verify(self) -> float | None:
        """T_draft / T_verify = draft_s / verify_s; None when no time was taken by verification."""
        return self.draft_s / self.verify_s if self.verify_s > 0 else None

    @property
    def suffix_decay(self) -> float | None:
        """Conditional acceptance at position 4 over that at position 1: 1 is flat, below 1 falls off.

        None when position 4 was never reached.
        """
        if len(self.conditional) < LATE_POSITION:
            return None
        first, late = self.conditional[0].share, self.conditional[LATE_POSITION - 1].share
        return late / first if first and late is not None else None

    @property
    def mean_verify_len(self) -> float | None:
        """Mean ℓ = verified / rounds; None when there was no round."""
        return self.verified / self.rounds if self.rounds else None

    @property
    def mean_prefill_s(self) -> float | None:
        """Mean seconds of a prefill = prefill_s / generations, the wait before the first round."""
        return self.prefill_s / self.generations if self.generations else None

    def to_json(self) -> dict[str, Any]:
        """Counts, seconds and derived figures as a JSON-able dict."""
        counts = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("conditional", "survival"):
            counts[name] = [
                {"position": at.position, "share": at.share, "hits": at.hits, "n": at.n} for at in counts[name]
            ]
        return counts | {name: getattr(self, name) for name in _DERIVED}


class Telemetry:
    """Accumulates events; `summary` may be asked at any time, during a generation too."""

    def __init__(self) -> None:
        self._summary = Summary()

    def add(self, event: Event) -> None:
        """Count one event."""
        self._summary += summarise(event)

    def summary(self) -> Summary:
        """All figures so far."""
        return self._summary


def fold(events: Iterable[Event]) -> Summary:
    """The figures of a finished stream of events (of one generation or of several in a row)."""
    return merge(summarise(event) for event in events)


def merge(summaries: Iterable[Summary]) -> Summary:
    """The figures of several generations together: counts and seconds are added, shares follow from the sums."""
    return sum(summaries, Summary())


def summarise(event: Event) -> Summary:
    """What one event adds to the figures."""
    if isinstance(event, Prefilled):
        return Summary(generations=1, prompt_tokens=event.prompt_tokens, prefill_s=event.prefill_s)
    if isinstance(event, (Waiting, DrafterChanged, Finished)):
        return Summary()
    fates = [token.fate for token in event.draft]
    return Summary(
        rounds=1,
        tokens=len(event.committed),
        drafted=len(event.draft),
        verified=event.verify_len,
        accepted=event.num_accepted,
        truncated_rounds=int(event.next is None),
        draft_s=event.timings.draft_s,
        schedule_s=event.timings.schedule_s,
        verify_s=event.timings.verify_s,
        accepted_lengths=(0,) * event.num_accepted + (1,),
        conditional=tuple(_observe(fates, only_while_accepted=True)),
        survival=tuple(_observe(fates, only_while_accepted=False)),
    )


def _observe(fates: Sequence[Fate], *, only_while_accepted: bool) -> Iterator[PositionShare]:
    failed = False
    for position, fate in enumerate(fates, start=1):
        cut_by_the_end = fate is Fate.DISCARDED and not failed
        if fate is Fate.UNVERIFIED or cut_by_the_end or (failed and only_while_accepted):
            return
        yield PositionShare(position, hits=int(fate is Fate.ACCEPTED), n=1)
        failed = failed or fate is Fate.REJECTED


def record(events: Iterable[Event], path: str | os.PathLike[str], header: Header | None = None) -> None:
    """Write events as JSON lines, behind ``header``, when the last one has come: a reader never sees half a file.

    Raises:
        ResourceError: the file cannot be written; an older one of that name is then untouched.
    """
    write(Recording(header, tuple(events)), Path(path))


def replay(path: str | os.PathLike[str]) -> list[Event]:
    """The events of a record, in order. Empty lines are allowed.

    Raises:
        ParameterError: a line is not an event; the message names the line.
        OSError: the file cannot be read.
    """
    return list(read(Path(path)).events)
