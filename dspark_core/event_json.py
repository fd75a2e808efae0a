"""Events as lines of JSON and back. What comes back is checked: a recorded file may be anybody's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dspark_core.errors import ParameterError
from dspark_core.events import DecodeRound, Event, Finished, Prefilled, to_json

_KINDS: dict[str, type[Prefilled | DecodeRound | Finished]] = {
    "prefilled": Prefilled,
    "round": DecodeRound,
    "finished": Finished,
}
_LARGEST = 1e300  # NaN, infinities and whole numbers beyond any float all fail against it


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
        raise ParameterError(f"its type is {kind!r}, not one of {', '.join(_KINDS)}.")
    event: Event = _decode(_KINDS[kind], data, kind)
    if isinstance(event, DecodeRound) and not 0 <= event.num_accepted <= event.verify_len <= len(event.draft):
        raise ParameterError(
            f"it counts {event.num_accepted} accepted of {event.verify_len} verified of {len(event.draft)} drafted; "
            "each must be at most the next."
        )
    return event


def _decode(wanted: Any, value: Any, where: str) -> Any:
    """``value`` as the annotated type ``wanted``; ``where`` names it in errors."""
    origin = get_origin(wanted)
    if origin in (UnionType, Union):
        if value is None and type(None) in get_args(wanted):
            return None
        return _decode(get_args(wanted)[0], value, where)
    if origin is tuple:
        _check(isinstance(value, list), where, "a list", value)
        return tuple(_decode(get_args(wanted)[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if is_dataclass(wanted):
        return _decode_object(wanted, value, where)
    return _decode_plain(wanted, value, where)


def _decode_object(wanted: Any, value: Any, where: str) -> Any:
    _check(isinstance(value, Mapping), where, "an object", value)
    hints = _hints(wanted)
    if set(value) != set(hints):
        raise ParameterError(
            f"{where} must have the keys {', '.join(hints)}; "
            f"missing: {sorted(set(hints) - set(value))}, unknown: {sorted(set(value) - set(hints))}."
        )
    return wanted(**{name: _decode(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


def _decode_plain(wanted: Any, value: Any, where: str) -> Any:
    if get_origin(wanted) is Literal:
        _check(isinstance(value, str) and value in get_args(wanted), where, f"one of {get_args(wanted)}", value)
    elif issubclass(wanted, Enum):
        allowed = [member.value for member in wanted]
        _check(isinstance(value, str) and value in allowed, where, f"one of {allowed}", value)
        return wanted(value)
    elif wanted is float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        _check(is_number and -_LARGEST < value < _LARGEST, where, "a finite number", value)
        return float(value)
    else:
        _check(type(value) is wanted, where, f"of type {wanted.__name__}", value)
    return value


def _check(condition: bool, where: str, expected: str, value: Any) -> None:
    if not condition:
        raise ParameterError(f"{where} must be {expected}, but is {value!r:.60}.")


@cache
def _hints(wanted: type) -> dict[str, Any]:
    hints = get_type_hints(wanted)
    return {item.name: hints[item.name] for item in fields(wanted)}
