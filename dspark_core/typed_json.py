"""JSON values as the frozen dataclasses that they stand for: exactly their keys and types, or refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dspark_core.errors import ParameterError

_LARGEST = 1e300  # NaN, infinities and whole numbers beyond any float all fail against it


def decode(wanted: Any, value: Any, where: str) -> Any:
    """``value`` as the annotated type ``wanted``; ``where`` names it in errors.

    A field whose metadata says ``may_be_absent`` (older files lack it) takes its default where its key is missing.

    Raises:
        ParameterError: a wrong type, an unknown, missing or ill-typed key, a number that is not finite.
    """
    origin = get_origin(wanted)
    if origin in (UnionType, Union):
        if value is None and type(None) in get_args(wanted):
            return None
        return decode(get_args(wanted)[0], value, where)
    if origin is tuple:
        _check(isinstance(value, list), where, "a list", value)
        return tuple(decode(get_args(wanted)[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if is_dataclass(wanted):
        return _decode_object(wanted, value, where)
    return _decode_plain(wanted, value, where)


def _decode_object(wanted: Any, value: Any, where: str) -> Any:
    _check(isinstance(value, Mapping), where, "an object", value)
    hints, optional = _hints(wanted), _optional(wanted)
    if not set(hints) - optional <= set(value) <= set(hints):
        raise ParameterError(
            f"{where} must have the keys {', '.join(hints)}; "
            f"missing: {sorted(set(hints) - optional - set(value))}, "
            f"unknown: {sorted(set(value) - set(hints))!s:.200}."
        )
    return wanted(
        **{name: decode(hint, value[name], f"{where}.{name}") for name, hint in hints.items() if name in value}
    )


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


@cache
def _optional(wanted: Any) -> frozenset[str]:
    return frozenset(item.name for item in fields(wanted) if item.metadata.get("may_be_absent"))
