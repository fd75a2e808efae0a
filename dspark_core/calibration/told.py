"""What the engine told of an answer, as rounds. Needs no engine: recorded events and a page's do as well."""

from __future__ import annotations

from collections.abc import Iterable

from dspark_core.calibration.rounds import Rounds, joined
from dspark_core.calibration.survival import logits_of
from dspark_core.events import DecodeRound, Event


def rounds_of(events: Iterable[Event], num_positions: int, *, calibrated: bool = False) -> Rounds:
    """The rounds of an answer, with the head's own confidences, or the ``calibrated`` ones where there are any.

    Observed are the positions that were verified. A draft that was discarded because the text ended is no rejection:
    such a position is not observed, as in telemetry.
    """
    logits, accepted, observed = [], [], []
    for event in events:
        if isinstance(event, DecodeRound):
            own = [
                token.confidence if calibrated or token.raw_confidence is None else token.raw_confidence
                for token in event.draft
            ]
            logits.append([*logits_of([c for c in own if c is not None]), *[0.0] * (num_positions - len(own))])
            accepted.append(event.num_accepted)
            observed.append(event.num_accepted if event.next is None else event.verify_len)
    return Rounds.of(logits, accepted, observed) if logits else joined([], num_positions)
