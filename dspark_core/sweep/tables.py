"""A sweep's report for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = (
    f"{'ratio':>6}{'95 %':>14}{'tok/s':>8}{'τ':>6}{'accepted':>10}{'waste':>7}{'budget':>8}{'n':>4}  setting"
    " (* on the front of speed against waste, ! best, ~ not told apart from it, & beside other answers)"
)


def table(report: Mapping[str, Any]) -> str:
    """The rows by falling speed, and what was left out by reason."""
    rows = sorted(report["rows"], key=lambda row: -(row["ratio"] or 0))
    plain = ", ".join(
        f"{of['tokens_per_s']:.1f} tokens/s at temperature {temperature}" for temperature, of in report["plain"].items()
    )
    lines = [
        f"{report['model']} in {report['dtype']} on {report['device']}, {report['date']}",
        f"plain decoding: {plain or 'not measured'}; ratio: tokens/s over plain decoding's beside it; waste: drafts "
        "verified in vain per token; budget: tokens in the target's pass per round",
        "",
        _HEAD,
        *(_line(row) for row in rows),
    ]
    return "\n".join([*lines, *_left_out(report["left_out"])])


def _line(row: Mapping[str, Any]) -> str:
    marks = "".join(
        mark for mark, on in (("!", row["best"]), ("*", row["front"]), ("~", row["near"]), ("&", row["beside"])) if on
    )
    interval = "–" if row["ratio_95"] is None else "{:.2f}–{:.2f}".format(*row["ratio_95"])
    rate = "–" if row["acceptance"] is None else f"{row['acceptance']:.0%}"
    figures = (
        f"{_of(row['ratio']):>6}{interval:>14}{_of(row['tokens_per_s'], 1):>8}{_of(row['tau']):>6}{rate:>10}"
        f"{_of(row['waste']):>7}{_of(row['budget']):>8}{row['n']:>4}"
    )
    return f"{figures}  {setting_words(row)} {marks}{' failed: ' + row['failure'] if row['failure'] else ''}".rstrip()


def setting_words(row: Mapping[str, Any]) -> str:
    """A row's setting in a few words."""
    return (
        f"{row['drafter']} {row['policy']} γ {row['gamma']} L {row['l_min']}–{row['l_max']} "
        f"c {row['threshold']:g} T {row['temperature']:g}"
    )


def _left_out(left_out: Sequence[Mapping[str, Any]]) -> list[str]:
    if not left_out:
        return []
    lines = ["", f"left out: {len(left_out)} combinations"]
    for reason, count in Counter(it["reason"] for it in left_out).items():
        lines.append(f"  {count} × {reason}")
    return lines


def _of(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
