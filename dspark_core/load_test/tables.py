"""A load test's report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_VERDICTS = {True: "met", False: "NOT met", None: "not observed"}
_SUMS = (
    "tokens/s: committed tokens of all users a second while all are served; user t/s: median over answers of the "
    "tokens after the first commit, a second; first token: seconds from asking, waiting included (at once: when all "
    "users ask at the same moment); budget: tokens in the target's pass per request and round (1 + ℓ); wasted: "
    "verified drafts that did not join the answer, of the verified ones, and per committed token; draft, schedule: "
    "share of the rounds' time. In brackets 95 % intervals over repeats and questions."
)


def tables(report: Mapping[str, Any]) -> str:
    """For each number of users a line a lane; then the goals."""
    lines = [measured_on(report), report["settings"]["command"], _SUMS]
    for users in levels(report):
        lines += ["", f"{users} {'user' if users == '1' else 'users'}", *_level(report, users)]
    lines += ["", *goal_lines(report)]
    lines += [f"{name}: {note}" for name, note in report["settings"]["drafters"].items() if note]
    if report["failure"]:
        lines += [f"Ended early: {report['failure']}"]
    return "\n".join(lines).rstrip() + "\n"


def levels(report: Mapping[str, Any]) -> list[str]:
    """The numbers of users that were measured."""
    return list(next(iter(report["results"].values())))


def measured_on(report: Mapping[str, Any]) -> str:
    """Where, when and with which settings, in one sentence: what stands with every table and chart."""
    settings, machine = report["settings"], report["machine"]
    partial = "Partial, the run ended early. " if report["partial"] else ""
    prompts = ", ".join(f"{n} {kind}" for kind, n in settings["prompts"].items())
    load = machine["load_average_at_start"]
    times = "once" if settings["repeats"] == 1 else f"{settings['repeats']} times"
    return (
        f"{partial}Measured on {report['device']}, {machine['threads']} threads of torch {machine['torch']}, "
        f"{report['dtype']}, load average at the start {'unknown' if load is None else f'{load:.1f}'}, "
        f"{report['date'][:10]}: {report['model']}, drafter {settings['drafter']}, "
        f"γ = {settings['num_draft_tokens']}, temperature {settings['temperature']:g}, up to "
        f"{settings['max_new_tokens']} tokens an answer, measured {times}; prompts: {prompts}."
    )


def goal_lines(report: Mapping[str, Any]) -> list[str]:
    """The goals, one line each."""
    if not report["goals"]:
        return []
    rows = [
        [
            goal["goal"],
            goal["users"],
            with_interval(goal["value"], goal["interval"], 3),
            goal["wanted"],
            _VERDICTS[goal["met"]],
        ]
        for goal in sorted(report["goals"], key=lambda goal: str(goal["goal"]))
    ]
    return ["Goals:", *aligned([["goal", "N", "measured (95 %)", "wanted", ""], *rows], left=(0, 3, 4))]


def _level(report: Mapping[str, Any], users: str) -> list[str]:
    """What the users get, then what is verified for it."""
    cells = {name: of[users] for name, of in report["results"].items()}
    baselines = list(dict.fromkeys(other for cell in cells.values() for other in cell["over"]))
    speeds = ["lane", "tokens/s", *(f"over {other}" for other in baselines), "user t/s", "first token", "p95"]
    speeds += ["at once", "p95", "answers"]
    verified = ["lane", "budget", "τ", "wasted", "wasted per token", "draft", "schedule"]
    return [
        *aligned([speeds, *([name, *_speeds(cell, baselines)] for name, cell in cells.items())], left=(0,)),
        *aligned([verified, *([name, *_verified(cell)] for name, cell in cells.items())], left=(0,)),
    ]


def _speeds(cell: Mapping[str, Any], baselines: Iterable[str]) -> list[str]:
    over = [cell["over"].get(other, {"throughput": None, "throughput_interval": None}) for other in baselines]
    return [
        _of(cell, "throughput", 1),
        *(_of(it, "throughput", 2) for it in over),
        _of(cell, "user_tokens_per_s", 1),
        _of(cell, "first_token_s", 2),
        plain(cell["first_token_p95_s"], 2),
        plain(cell["at_once_first_token_s"], 2),
        plain(cell["at_once_first_token_p95_s"], 2),
        str(cell["answers"]),
    ]


def _verified(cell: Mapping[str, Any]) -> list[str]:
    return [
        _of(cell, "budget", 2),
        plain(cell["tau"], 2),
        _of(cell, "wasted_share", 2),
        _of(cell, "wasted_per_token", 2),
        plain(cell["draft_share"], 3),
        _of(cell, "schedule_share", 4),
    ]


def _of(cell: Mapping[str, Any], name: str, digits: int) -> str:
    return with_interval(cell[name], cell[f"{name}_interval"], digits)


def plain(value: float | None, digits: int) -> str:
    """A figure, or a dash for what was not observed."""
    return "–" if value is None else f"{value:.{digits}f}"


def with_interval(value: float | None, interval: Sequence[float] | None, digits: int) -> str:
    """A figure with its interval where it has one."""
    if interval is None or value is None:
        return plain(value, digits)
    return f"{value:.{digits}f} ({interval[0]:.{digits}f}–{interval[1]:.{digits}f})"


def aligned(rows: Sequence[Sequence[object]], left: Sequence[int]) -> list[str]:
    """Each column as wide as it must be; those in ``left`` to the left, the others to the right."""
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            word.ljust(width) if place in left else word.rjust(width)
            for place, (word, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
