"""Events as lines of JSON and back. What comes back is checked: a recorded file may be anybody's."""

from __future__ import annotations

import json

from dspark_core.errors import ParameterError, shown
from dspark_core.events import DecodeRound, DrafterChanged, Event, Finished, Prefilled, Waiting, to_json
from dspark_core.typed_json import decode

_KINDS: dict[str, type[Event]] = {
    "waiting": Waiting,
    "prefilled": Prefilled,
    "drafter_changed": DrafterChanged,
    "round": DecodeRound,
    "finished": Finished,
}


def to_line(event: Event) -> str:
    """One event as one line of pure ASCII JSON, without the line's end (control characters are escaped too)."""
    return json.dumps({"type": event.type, **to_json(event)}, allow_nan=False)


def from_line(line: str | bytes) -> Event:
    """The event that `to_line` wrote.

    Raises:
        ParameterError: not JSON, or not exactly an event: a wrong type, an unknown, missing or ill-typed key.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"it is not JSON ({error}).") from error
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ParameterError(f"its type is {shown(kind)}, not one of {', '.join(_KINDS)}.")
    event: Event = decode(_KINDS[kind], data, kind)
    if isinstance(event, DecodeRound) and not 0 <= event.num_accepted <= event.verify_len <= len(event.draft):
        raise ParameterError(
            f"it counts {event.num_accepted} accepted of {event.verify_len} verified of {len(event.draft)} drafted; "
            "each must be at most the next."
        )
    if isinstance(event, DecodeRound) and event.inspection and len(event.inspection.candidates) != len(event.draft):
        raise ParameterError(
            f"its inspection has {len(event.inspection.candidates)} positions for {len(event.draft)} drafts."
        )
    return event
