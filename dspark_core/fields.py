"""Values of a JSON file that a stranger wrote: each of the kind and range needed, or refused by name."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_core.errors import DSparkError
from dspark_core.errors import shown as shown  # part of what a refusal is made of

LARGEST = 2**24  # of a count or a size: products of three of them still fit where torch counts bytes
LARGEST_NUMBER = sys.float_info.max


def read_object(path: Path, error: type[DSparkError], way_out: str) -> dict[str, Any]:
    """The JSON object in the file ``path``.

    Raises:
        ``error``, whose text ends with ``way_out``: the file is missing, no JSON, too deep, or holds something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as reason:
        raise error(f"{path} cannot be read ({reason.strerror or reason}). {way_out}") from reason
    except (ValueError, RecursionError) as reason:
        text = "it is nested too deeply" if isinstance(reason, RecursionError) else str(reason)
        raise error(f"{path} cannot be read, since it is not valid JSON ({text}). {way_out}") from reason
    if not isinstance(values, dict):
        raise error(f"{path} holds a {type(values).__name__}, not an object. {way_out}")
    return values


class Fields:
    """The keys of one JSON object. A key that is absent or null takes its default; without one it is refused.

    Every method raises ``error``: the key is missing, of another kind, or out of its range.
    """

    def __init__(self, values: Mapping[str, Any], where: str, error: type[DSparkError], way_out: str) -> None:
        """``where`` opens each message ("Drafter config") and ``way_out`` ends it."""
        self._values = values
        self._where = where
        self._error = error
        self._way_out = way_out

    def whole(self, name: str, low: int = 1, high: int = LARGEST, default: int | None = None) -> int:
        """A whole number from ``low`` to ``high``."""
        value = self._value(name, default)
        if not _is_whole(value) or not low <= value <= high:
            raise self.refusal(name, f"must be a whole number from {low} to {high}")
        return int(value)

    def positive(self, name: str, high: float = LARGEST_NUMBER, default: float | None = None) -> float:
        """A finite number above 0, at most ``high``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= high:
            limit = "" if high == LARGEST_NUMBER else f" and at most {high:g}"
            raise self.refusal(name, f"must be a finite number above 0{limit}")
        return float(value)

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number from ``low`` to ``high``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise self.refusal(name, f"must be a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false: a text that says so is none."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.refusal(name, "must be true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.refusal(name, "must be a text")
        return value

    def wholes(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self._value(name, default)
        if not isinstance(value, (list, tuple)) or not all(map(_is_whole, value)):
            raise self.refusal(name, "must be a list of whole numbers")
        return tuple(value)

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """A list of texts."""
        value = self._value(name, default)
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise self.refusal(name, "must be a list of texts")
        return tuple(value)

    def section(self, name: str) -> dict[str, Any]:
        """An object inside this one; empty where it is absent."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.refusal(name, "must be an object")
        return value

    def refusal(self, name: str, wanted: str) -> DSparkError:
        """The error that says what the key holds and what it ``wanted``."""
        return self._error(f"{self._where}: {name} is {shown(self._values.get(name))}; it {wanted}. {self._way_out}")

    def _value(self, name: str, default: Any) -> Any:
        value = self._values.get(name)
        if value is not None:
            return value
        if default is None:
            raise self._error(f"{self._where}: the key {name!r} is missing. {self._way_out}")
        return default


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
