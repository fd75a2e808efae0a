"""A sweep's report: one JSON-able dict with the set-up, and the same rows as CSV."""

from __future__ import annotations

import csv
import io
import platform
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dspark_core import __version__
from dspark_core.ports import Info
from dspark_core.sweep.grid import LeftOut
from dspark_core.sweep.runner import Sweep
from dspark_core.sweep.values import AXES

KIND, FORMAT = "dspark-sweep", 1
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four: the same, full width
_INTERVALS = ("ratio", "tau", "acceptance", "wasted_share", "waste", "budget")
_COUNTS = ("n", "over", "answers", "beside", "rounds", "tokens", "drafted", "verified", "accepted")
COLUMNS = (
    *(axis.name for axis in AXES),
    "drafter_gamma",
    *(name for figure in _INTERVALS for name in (figure, f"{figure}_low", f"{figure}_high")),
    "tokens_per_s", "plain_tokens_per_s", "same", "same_of", *_COUNTS,
    "draft_s", "schedule_s", "verify_s", "front", "best", "near", "failure",
)  # fmt: skip


def head(info: Info) -> dict[str, Any]:
    """What is measured, where, when, and with what: keys model, device, dtype, date, versions, system."""
    return {
        "kind": KIND,
        "format": FORMAT,
        "model": info.model,
        "device": info.device_label,
        "dtype": info.dtype,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {"dspark": __version__, "torch": _version("torch"), "python": platform.python_version()},
        "system": platform.platform(terse=True),
        "step_curve": info.step_curve,
        "drafters": dict(info.drafters),
    }


def report(about: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """The whole of it: ``about`` is `head`'s, taken when the sweep began."""
    settings = sweep.settings
    return {
        **about,
        "measured": True,
        "partial": sweep.partial,
        "stopped": sweep.stopped,
        "failure": sweep.failure,
        "settings": {
            "prompts": dict(Counter(prompt.kind for prompt in settings.prompts)),
            "max_new_tokens": settings.max_new_tokens,
            "repeats": settings.repeats,
            "seed": settings.seed,
        },
        "swept": list(sweep.grid.swept),
        "plain": sweep.results.plain(),
        "rows": sweep.results.rows(),
        "left_out": [left_out_json(it) for it in sweep.grid.left_out],
    }


def left_out_json(it: LeftOut) -> dict[str, Any]:
    """A combination that was not measured, with its reason."""
    return {**it.point.to_json(), "reason": it.reason}


def csv_text(of: Mapping[str, Any]) -> str:
    """The rows of a report as CSV, the set-up in front of each; texts that a spreadsheet would compute are defused."""
    about = {"model": of["model"], "device": of["device"], "dtype": of["dtype"], "date": of["date"]}
    versions = {f"{name}_version": of["versions"][name] for name in sorted(of["versions"])}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*about, *versions, *COLUMNS])
    for row in of["rows"]:
        cells = [*about.values(), *versions.values(), *(_cell(row, name) for name in COLUMNS)]
        writer.writerow([defused(cell) for cell in cells])
    return text.getvalue()


def defused(cell: Any) -> Any:
    """A text that begins like a formula gets an apostrophe in front (OWASP, CSV injection); numbers stay."""
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip().startswith(_FORMULA) else cell


def _cell(row: Mapping[str, Any], name: str) -> Any:
    if name in ("same", "same_of"):
        same = row["same"] or {}
        return same.get("same" if name == "same" else "n")
    figure, _, end = name.rpartition("_")
    if end in ("low", "high"):
        interval = row[f"{figure}_95"]
        return interval[end == "high"] if interval else None
    return row[name]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
