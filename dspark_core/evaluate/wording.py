"""How a report's figures are worded wherever they are shown: terminal, README, charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ALL_SETS = "all sets"
CONFIDENCE_POSITIONS = (1, 3, 5)  # at which tables show the confidences; the report has them all


def temperature_key(temperature: float) -> str:
    """The temperature as a key: "0", "1", "0.7"."""
    return str(int(temperature)) if temperature == int(temperature) else str(temperature)


def temperature_title(temperature: str) -> str:
    """The temperature as a heading."""
    return "greedy (T = 0)" if temperature == "0" else f"T = {temperature}"


def rows(report: Mapping[str, Any], temperature: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(set, drafter, cell) at one temperature, set by set, then all sets together."""
    results = report["results"]
    for kind in report["settings"]["prompts"]:
        for drafter in results:
            yield kind, drafter, results[drafter][kind][temperature]
    for drafter, cells in report.get("all_sets", {}).items():
        yield ALL_SETS, drafter, cells[temperature]


def pooled(report: Mapping[str, Any], temperature: str) -> dict[str, Mapping[str, Any]]:
    """Each drafter's cell of all prompts together, at one temperature."""
    if "all_sets" in report:
        return {drafter: cells[temperature] for drafter, cells in report["all_sets"].items()}
    return {drafter: cells[temperature] for drafter, of in report["results"].items() for cells in of.values()}


def measured_on(report: Mapping[str, Any]) -> str:
    """Where, when and with which settings, in one sentence: what stands with every table and chart."""
    settings, machine = report["settings"], report["machine"]
    lengths = str(settings["l_max"]) if settings["policy"] == "fixed" else f"{settings['l_min']} to {settings['l_max']}"
    threshold = f" {settings['threshold']}" if settings["policy"] == "threshold" else ""
    partial = "Partial, the run was interrupted. " if report["partial"] else ""
    at_once = f", {settings['at_once']} answers side by side" if settings["at_once"] > 1 else ""
    prompts = ", ".join(f"{n} {kind}" for kind, n in settings["prompts"].items())
    return (
        f"{partial}Measured on {report['device']}, torch {machine['torch']}, Python {machine['python']}, "
        f"{report['dtype']}, {report['date'][:10]}: {report['model']}, policy {settings['policy']}{threshold}, "
        f"L {lengths}, {_gammas(settings)}, up to {settings['max_new_tokens']} tokens a turn, seed "
        f"{settings['seed']}{at_once}; "
        f"prompts: {prompts}."
    )


def _gammas(settings: Mapping[str, Any]) -> str:
    """γ, and which drafters have another one."""
    most = settings["num_draft_tokens"]
    others = [f"{name} {n}" for name, n in settings["num_draft_tokens_by_drafter"].items() if n != most]
    return f"γ = {most}" + (f" ({', '.join(others)})" if others else "")


def notes(report: Mapping[str, Any]) -> list[str]:
    """What a reader should know about the drafters, one sentence each."""
    return [f"{name}: {note}" for name, note in report["settings"]["drafters"].items() if note]


def failure_lines(report: Mapping[str, Any]) -> list[str]:
    """One sentence a prompt that failed."""
    return [
        f"Left out: {failure['set']} {failure['prompt']}, turn {failure['turn']}, {failure['drafter']}, "
        f"T = {failure['temperature']:g}: {failure['reason']}"
        for failure in report["failures"]
    ]


def number(value: float | None) -> str:
    """Two decimals, or a dash for what was not observed."""
    return "–" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """One decimal, or a dash for what was not observed."""
    return "–" if value is None else f"{value:.1%}".replace("%", " %")


def span(interval: Sequence[float] | None) -> str:
    """An interval as low–high, or a dash."""
    return "–" if interval is None else "{:.2f}–{:.2f}".format(*interval)


def with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    """A figure with its interval where it has one."""
    return number(value) if interval is None else f"{number(value)} ({span(interval)})"


def by_n(values: Sequence[float | None], n: Sequence[int]) -> list[str]:
    """Each value with its n in brackets."""
    return [f"{number(value)} ({count})" if count else "–" for value, count in zip(values, n, strict=True)]


def position_cells(cell: Mapping[str, Any], count: int) -> list[str]:
    """Conditional acceptance at positions 1 … ``count``, with n; a dash where nothing was verified."""
    shown = by_n(cell["acceptance_by_position"], cell["n_by_position"])
    return [*shown, *["–"] * (count - len(shown))]


def confidence_head() -> list[str]:
    """Names of the `confidence_cells`."""
    return [*(f"AUC at {k}" for k in CONFIDENCE_POSITIONS), "ECE as given", "ECE calibrated"]


def confidence_cells(confidence: Mapping[str, Any]) -> list[str]:
    """AUC with n at the positions shown, then the survival's mean ECE without and with the calibration in force."""
    raw, calibrated = confidence["raw"], confidence["calibrated"]
    ranked = dict(enumerate(by_n(raw["auc_by_position"], raw["auc_n_by_position"]), start=1))
    return [
        *(ranked.get(k, "–") for k in CONFIDENCE_POSITIONS),
        percent(raw["mean_ece"]),
        percent(calibrated and calibrated["mean_ece"]),
    ]
