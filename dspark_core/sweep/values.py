"""The axes of a grid, and how values are entered: ``1,2,4``, ``1:8``, ``0:0.9:0.1``, ``fixed,prefix``."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from dspark_core.errors import ParameterError, shown

Value = str | int | float
MAX_VALUES = 64  # of one axis


@dataclass(frozen=True, slots=True)
class Axis:
    """What may be swept.

    Attributes:
        name: its key in reports, which is also the option's name (``l_min`` → ``--l-min``).
        symbol: its name for readers.
        kind: what its values are.
    """

    name: str
    symbol: str
    kind: Literal["name", "whole", "number"]


AXES: tuple[Axis, ...] = (
    Axis("drafter", "drafter", "name"),
    Axis("policy", "policy", "name"),
    Axis("gamma", "γ", "whole"),
    Axis("l_min", "L_min", "whole"),
    Axis("l_max", "L_max", "whole"),
    Axis("threshold", "threshold", "number"),
    Axis("temperature", "temperature", "number"),
)


def read_values(axis: Axis, text: str) -> tuple[Value, ...]:
    """The values of one axis, each once, in the order given; none for an empty text.

    A range names its first and last value and the step between them (1 where none is given): both ends belong to it.
    Steps are counted in decimals, so 0:0.9:0.1 has 0.3 and not 0.30000000000000004.

    Raises:
        ParameterError: a word is no value of this axis, or there are more than `MAX_VALUES`.
    """
    values: list[Value] = []
    for word in (part.strip() for part in text.split(",")):
        if word:
            values += [word] if axis.kind == "name" else _numbers(axis, word)
    if len(values) > MAX_VALUES:
        raise _too_many(axis)
    return tuple(dict.fromkeys(values))


def _numbers(axis: Axis, word: str) -> list[Value]:
    parts = [_decimal(axis, part, word) for part in word.split(":")]
    if len(parts) == 1:
        return [_value(axis, parts[0])]
    if len(parts) > 3:
        raise ParameterError(f"{axis.symbol}: {shown(word)} is no range. Write first:last:step, for example 0:0.9:0.1.")
    first, last, step = parts if len(parts) == 3 else (*parts, Decimal(1))
    if step <= 0 or last < first:
        raise ParameterError(
            f"{axis.symbol}: {shown(word)} is no range: the last value must not be below the first, and the step must "
            "be above 0. Write first:last:step, for example 0:0.9:0.1."
        )
    if (last - first) / step >= MAX_VALUES:
        raise _too_many(axis)
    return [_value(axis, first + step * n) for n in range(int((last - first) / step) + 1)]


def _decimal(axis: Axis, part: str, word: str) -> Decimal:
    try:
        number = Decimal(part.strip())
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > 10**6 or (number and abs(number) < Decimal("1e-6")):
        raise ParameterError(
            f"{axis.symbol}: {shown(word)} is not understood. Write numbers with commas (1,2,4) or a range "
            "first:last:step (0:0.9:0.1)."
        )
    return number


def _value(axis: Axis, number: Decimal) -> Value:
    if axis.kind == "number":
        return float(number)
    if number != int(number):
        raise ParameterError(f"{axis.symbol}: {number} is not a whole number, and {axis.symbol} counts tokens.")
    return int(number)


def _too_many(axis: Axis) -> ParameterError:
    return ParameterError(f"{axis.symbol} has more than {MAX_VALUES} values. Take fewer, or a larger step.")
