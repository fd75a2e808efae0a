"""What a job came to: one JSON-able dict, and the same as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dspark_core.evaluate.measure import Cell, Job, Measured
from dspark_core.evaluate.resampled import Resampled
from dspark_core.telemetry import LATE_POSITION, Summary, merge

ALL_SETS = "all sets"


def cell_report(summaries: Sequence[Summary]) -> dict[str, Any]:
    """The figures of one cell, from one summary a prompt.

    All are telemetry's, over the prompts together. ``acceptance_by_position`` is conditional: of the rounds that
    verified position k and accepted all before it (their number is in ``n_by_position``), the share that accepted k
    too. ``accepted_lengths[j]`` rounds accepted j drafts. ``draft_s`` and ``verify_s`` are totals. The intervals are
    95 % bootstrap intervals over the prompts, None where there are too few.
    """
    total, others = merge(summaries), Resampled(summaries)
    return {
        "prompts": len(summaries),
        "tau": total.tau if total.rounds else None,
        "tau_interval": others.interval(lambda summary: summary.tau),
        "acceptance_by_position": [at.share for at in total.conditional],
        "acceptance_intervals": [others.interval(_acceptance_at(index)) for index in range(len(total.conditional))],
        "n_by_position": [at.n for at in total.conditional],
        "suffix_decay": total.suffix_decay,
        "suffix_decay_interval": others.interval(lambda summary: summary.suffix_decay),
        "accepted_lengths": list(total.accepted_lengths),
        "acceptance_rate": total.acceptance_rate,
        "rounds": total.rounds,
        "tokens": total.tokens,
        "draft_s": total.draft_s,
        "verify_s": total.verify_s,
        "draft_to_verify": total.draft_to_verify,
    }


def _acceptance_at(index: int) -> Callable[[Summary], float | None]:
    return lambda summary: summary.conditional[index].share


def results(job: Job, measured: Measured) -> dict[str, Any]:
    """``results`` and ``all_sets`` (all prompts together), ``failures`` and ``partial``.

    ``results[drafter][set][temperature]`` is a `cell_report`; ``all_sets[drafter][temperature]`` is there when the job
    has several sets.
    """
    keys = {law.temperature: temperature_key(law.temperature) for law in job.laws}

    def of(drafter: str, kinds: Iterable[str], temperature: float) -> dict[str, Any]:
        cells = [Cell(drafter, kind, temperature) for kind in kinds]
        return cell_report([summary for cell in cells for summary in measured.summaries.get(cell, [])])

    found: dict[str, Any] = {
        "results": {
            drafter: {kind: {key: of(drafter, [kind], t) for t, key in keys.items()} for kind in job.prompts}
            for drafter in job.drafters
        },
        "failures": [
            {
                "drafter": failure.drafter,
                "set": failure.kind,
                "temperature": failure.temperature,
                "prompt": failure.number,
                "turn": failure.turn,
                "reason": failure.reason,
            }
            for failure in measured.failures
        ],
        "partial": measured.partial,
    }
    if len(job.prompts) > 1:
        found["all_sets"] = {
            drafter: {key: of(drafter, job.prompts, t) for t, key in keys.items()} for drafter in job.drafters
        }
    return found


def temperature_key(temperature: float) -> str:
    """The temperature as a key: "0", "1", "0.7"."""
    return str(int(temperature)) if temperature == int(temperature) else str(temperature)


def rows(report: Mapping[str, Any], temperature: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(set, drafter, cell) at one temperature, set by set, then all sets together."""
    results = report["results"]
    for kind in report["settings"]["prompts"]:
        for drafter in results:
            yield kind, drafter, results[drafter][kind][temperature]
    for drafter, cells in report.get("all_sets", {}).items():
        yield ALL_SETS, drafter, cells[temperature]


def temperature_title(temperature: str) -> str:
    """The temperature as a heading."""
    return "greedy (T = 0)" if temperature == "0" else f"T = {temperature}"


def measured_on(report: Mapping[str, Any]) -> str:
    """Where, when and with which settings, in one sentence: what stands with every table and chart."""
    settings, machine = report["settings"], report["machine"]
    lengths = str(settings["l_max"]) if settings["policy"] == "fixed" else f"{settings['l_min']} to {settings['l_max']}"
    threshold = f" {settings['threshold']}" if settings["policy"] == "threshold" else ""
    partial = "Partial, the run was interrupted. " if report["partial"] else ""
    return (
        f"{partial}Measured by `python -m dspark_core evaluate` on {report['device']}, torch {machine['torch']}, "
        f"{report['dtype']}, {report['date'][:10]}: {report['model']}, policy {settings['policy']}{threshold}, "
        f"L {lengths}, γ = {settings['num_draft_tokens']}, up to {settings['max_new_tokens']} tokens a turn, "
        f"seed {settings['seed']}."
    )


def tables(report: Mapping[str, Any]) -> str:
    """One table a temperature, with acceptance by position and accepted lengths below it; then what failed."""
    lines = [measured_on(report)]
    for temperature in report["settings"]["temperatures"]:
        of_temperature = list(rows(report, temperature))
        lines += ["", temperature_title(temperature), *_table(of_temperature), ""]
        lines += ["accepted at position, given those before:", *_by_position(of_temperature), ""]
        lines += ["rounds by number of accepted drafts:", *_lengths(of_temperature)]
    notes = {name: note for name, note in report["settings"]["drafters"].items() if note}
    lines += ["", *(f"{name}: {note}" for name, note in notes.items()), *failure_lines(report)]
    return "\n".join(lines).rstrip() + "\n"


def failure_lines(report: Mapping[str, Any]) -> list[str]:
    """One sentence a prompt that failed."""
    return [
        f"Left out: {failure['set']} {failure['prompt']}, turn {failure['turn']}, {failure['drafter']}, "
        f"T = {failure['temperature']:g}: {failure['reason']}"
        for failure in report["failures"]
    ]


def _table(cells: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[str]:
    head = (
        f"{'set':<14}{'drafter':<14}{'prompts':>8}{'τ':>7}{'95 %':>13}{'accepted':>10}"
        f"{f'pos. {LATE_POSITION} / pos. 1':>24}{'T_draft/T_verify':>18}"
    )
    return [head, *(_line(*cell) for cell in cells)]


def _line(kind: str, drafter: str, cell: Mapping[str, Any]) -> str:
    rate = cell["acceptance_rate"]
    decay = with_interval(cell["suffix_decay"], cell["suffix_decay_interval"])
    return (
        f"{kind:<14}{drafter:<14}{cell['prompts']:>8}{number(cell['tau']):>7}{span(cell['tau_interval']):>13}"
        f"{'–' if rate is None else f'{rate:.0%}':>10}{decay:>24}{number(cell['draft_to_verify']):>18}"
    )


def _by_position(cells: Sequence[tuple[str, str, Mapping[str, Any]]]) -> Iterator[str]:
    for kind, drafter, cell in cells:
        shares = zip(cell["acceptance_by_position"], cell["n_by_position"], strict=True)
        shown = "  ".join(f"{k}: {number(share)} (n={n})" for k, (share, n) in enumerate(shares, start=1))
        yield f"{kind:<14}{drafter:<14}{shown or 'nothing was verified'}"


def _lengths(cells: Sequence[tuple[str, str, Mapping[str, Any]]]) -> Iterator[str]:
    for kind, drafter, cell in cells:
        yield f"{kind:<14}{drafter:<14}" + "  ".join(f"{j}: {n}" for j, n in enumerate(cell["accepted_lengths"]))


def number(value: float | None) -> str:
    """Two decimals, or a dash for what was not observed."""
    return "–" if value is None else f"{value:.2f}"


def span(interval: Sequence[float] | None) -> str:
    """An interval as low–high, or a dash."""
    return "–" if interval is None else "{:.2f}–{:.2f}".format(*interval)


def with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    """A figure with its interval where it has one."""
    return number(value) if interval is None else f"{number(value)} ({span(interval)})"
