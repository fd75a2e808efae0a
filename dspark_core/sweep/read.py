"""A report from a file that anybody may have written: each value of its kind and range, or refused by name.

What the rows' marks and launch flags say is made anew from the checked settings: a stranger's file cannot suggest a
command line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dspark_core.errors import ParameterError, shown
from dspark_core.fields import Fields
from dspark_core.labels import as_label
from dspark_core.sweep.grid import MAX_POINTS, Point, swept_axes
from dspark_core.sweep.launch import launch
from dspark_core.sweep.report import FORMAT, KIND
from dspark_core.sweep.results import FIGURES, marked

MAX_CHARACTERS = 2_000_000
_WAY_OUT = "Give a JSON file that Explore or the command sweep has written."
_LONGEST = 400  # characters of a text
_Bounds = tuple[tuple[int, int], tuple[float, float]]
_MEASURED: _Bounds = ((0, 64), (0, 10))  # lengths, and temperatures, of a setting that was measured
_ANY: _Bounds = ((-(10**6), 10**6), (-1e6, 1e12))  # of one that was left out, perhaps for these very values
_MOST_LEFT_OUT = 4096
_COUNTS = ("n", "answers", "beside", "rounds", "tokens", "drafted", "verified", "accepted")
_NUMBERS = ("tokens_per_s", "plain_tokens_per_s", "draft_s", "schedule_s", "verify_s")


def read_report(text: str) -> dict[str, Any]:
    """The report that ``text`` holds. Raises ParameterError."""
    if len(text) > MAX_CHARACTERS:
        raise ParameterError(f"The file has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read. {_WAY_OUT}")
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        text = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ParameterError(f"The file is not valid JSON ({text}). {_WAY_OUT}") from error
    if not isinstance(values, dict) or values.get("kind") != KIND:
        raise ParameterError(f"The file holds no sweep. {_WAY_OUT}")
    if values.get("format") != FORMAT:
        raise ParameterError(
            f"The file has format {shown(values.get('format'))}; this version reads {FORMAT}. {_WAY_OUT}"
        )
    fields = Fields(values, "The sweep", ParameterError, _WAY_OUT)
    rows = marked([_row(at, row) for at, row in enumerate(_objects(values, "rows", MAX_POINTS))])
    return {
        "kind": KIND,
        "format": FORMAT,
        **{name: _short(fields.text(name)) for name in ("model", "device", "dtype", "date", "system", "step_curve")},
        "versions": _texts(fields.section("versions")),
        "drafters": _texts(fields.section("drafters")),
        "measured": True,
        "partial": fields.flag("partial"),
        "stopped": fields.flag("stopped"),
        "failure": _short(fields.text("failure", "")),
        "settings": _settings(fields.section("settings")),
        "swept": list(swept_axes(rows)),
        "plain": _plain(fields.section("plain")),
        "rows": rows,
        "left_out": [
            {**_point(f"Left out {at + 1}", it, _ANY).to_json(), "reason": _said(it.get("reason", ""))}
            for at, it in enumerate(_objects(values, "left_out", _MOST_LEFT_OUT))
        ],
    }


def _row(at: int, values: Mapping[str, Any]) -> dict[str, Any]:
    where = f"Row {at + 1}"
    fields = Fields(values, where, ParameterError, _WAY_OUT)
    point = _point(where, values, _MEASURED)
    row: dict[str, Any] = {"id": at, **point.to_json(), "launch": launch(point)}
    row["drafter_gamma"] = _number(where, values, "drafter_gamma")
    row |= {name: fields.whole(name, 0, 10**9, default=0) for name in _COUNTS}
    row |= {name: _number(where, values, name) for name in (*_NUMBERS, "ratio", *FIGURES)}
    row |= {f"{name}_95": _interval(where, values, f"{name}_95") for name in ("ratio", *FIGURES)}
    row["over"] = "prompts" if values.get("over") == "prompts" else "answers"
    row["failure"] = _short(fields.text("failure", ""))
    same = fields.section("same")
    row["same"] = {"same": _count(where, same, "same"), "n": _count(where, same, "n")} if same else None
    return row


def _point(where: str, values: Mapping[str, Any], bounds: _Bounds) -> Point:
    (least, most), (coldest, hottest) = bounds
    fields = Fields(values, where, ParameterError, _WAY_OUT)
    return Point(
        _short(fields.text("drafter")),
        _short(fields.text("policy")),
        fields.whole("gamma", least, most),
        fields.whole("l_min", least, most),
        fields.whole("l_max", least, most),
        fields.number("threshold", coldest, min(hottest, 1) if bounds is _MEASURED else hottest),
        fields.number("temperature", coldest, hottest),
    )


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    fields = Fields(values, "The settings", ParameterError, _WAY_OUT)
    prompts = fields.section("prompts")
    return {
        "prompts": {_short(str(kind)): _count("The settings", prompts, kind) for kind in list(prompts)[:32]},
        "max_new_tokens": fields.whole("max_new_tokens", 1, 10**6),
        "repeats": fields.whole("repeats", 1, 10**6),
        "seed": fields.whole("seed", 0, 2**63 - 1),
    }


def _plain(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    plain = {}
    for temperature, of in list(values.items())[:64]:
        if not isinstance(of, dict):
            raise ParameterError(f"The sweep: plain holds {shown(of)} where an object is needed. {_WAY_OUT}")
        plain[_short(str(temperature))] = {
            "tokens_per_s": _number("Plain decoding", of, "tokens_per_s"),
            "answers": _count("Plain decoding", of, "answers"),
            "beside": _count("Plain decoding", of, "beside"),
        }
    return plain


def _objects(values: Mapping[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    found = values.get(name)
    if not isinstance(found, list) or len(found) > most or not all(isinstance(it, dict) for it in found):
        raise ParameterError(f"The sweep: {name} must be a list of at most {most} objects. {_WAY_OUT}")
    return found


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {_short(name): _said(value) for name, value in list(values.items())[:32]}


def _said(value: object) -> str:
    return _short(value if isinstance(value, str) else shown(value))


def _short(text: str) -> str:
    return as_label(text, _LONGEST)


def _count(where: str, values: Mapping[str, Any], name: str) -> int:
    return Fields(values, where, ParameterError, _WAY_OUT).whole(name, 0, 10**9)


def _needed(where: str, values: Mapping[str, Any], name: str) -> float:
    number = _number(where, values, name)
    if number is None:
        raise ParameterError(f"{where}: the key {name!r} is missing. {_WAY_OUT}")
    return number


def _number(where: str, values: Mapping[str, Any], name: str) -> float | None:
    """A number or nothing; not below 0, which none of a report's figures is."""
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 10**12:
        raise ParameterError(f"{where}: {name} is {shown(value)}; it must be a number not below 0. {_WAY_OUT}")
    if not math.isfinite(value):
        raise ParameterError(f"{where}: {name} is not finite. {_WAY_OUT}")
    return float(value)


def _interval(where: str, values: Mapping[str, Any], name: str) -> list[float] | None:
    found = values.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or len(found) != 2:
        raise ParameterError(f"{where}: {name} is {shown(found)}; it must be two numbers. {_WAY_OUT}")
    low, high = (_needed(where, {name: end}, name) for end in found)
    return [low, high]


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
