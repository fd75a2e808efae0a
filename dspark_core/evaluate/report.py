"""What a job came to, as one JSON-able dict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dspark_core.evaluate.compared import over_baseline
from dspark_core.evaluate.confidence import all_of, confidence_report
from dspark_core.evaluate.measure import Cell, Job, Measured, Outcome
from dspark_core.evaluate.resampled import resampled
from dspark_core.evaluate.wording import temperature_key
from dspark_core.telemetry import LATE_POSITION, Summary, merge

Outcomes = Mapping[tuple[str, int], Outcome]


def cell_report(outcomes: Outcomes, baseline: Outcomes | None = None, *, one_at_a_time: bool = True) -> dict[str, Any]:
    """The figures of one cell, from its prompts' outcomes by (set, number); ``baseline``: another drafter's.

    All are telemetry's, over the prompts together. ``acceptance_by_position`` is conditional: of the rounds that
    verified position k and accepted all before it (their number is in ``n_by_position``), the share that accepted k
    too. ``accepted_lengths[j]`` rounds accepted j drafts. ``suffix_decay_n`` are the two n that ``suffix_decay`` stands
    on, at positions 1 and 4. ``draft_s`` and ``verify_s`` are totals, None unless the answers came ``one_at_a_time``:
    side by side each tells the whole time of the rounds that it shared. The intervals are 95 % bootstrap intervals over
    the prompts, None where there are too few. ``confidence`` is a `confidence_report`, ``over_baseline`` a comparison
    (see `compared`), None without a baseline.
    """
    summaries = {key: outcome.summary for key, outcome in outcomes.items()}
    total, others = merge(summaries.values()), resampled(tuple(summaries.values()))
    return {
        "prompts": len(summaries),
        "tau": total.tau if total.rounds else None,
        "tau_interval": others.interval(lambda summary: summary.tau),
        "acceptance_by_position": [at.share for at in total.conditional],
        "acceptance_intervals": [others.interval(_acceptance_at(index)) for index in range(len(total.conditional))],
        "n_by_position": [at.n for at in total.conditional],
        "suffix_decay": total.suffix_decay,
        "suffix_decay_interval": others.interval(lambda summary: summary.suffix_decay),
        "suffix_decay_n": [_n_at(total, 1), _n_at(total, LATE_POSITION)],
        "accepted_lengths": list(total.accepted_lengths),
        "acceptance_rate": total.acceptance_rate,
        "rounds": total.rounds,
        "tokens": total.tokens,
        "draft_s": total.draft_s if one_at_a_time else None,
        "verify_s": total.verify_s if one_at_a_time else None,
        "draft_to_verify": total.draft_to_verify,
        "over_baseline": None
        if baseline is None
        else over_baseline(summaries, {key: outcome.summary for key, outcome in baseline.items()}),
        "confidence": confidence_report(all_of(outcome.confidence for outcome in outcomes.values())),
    }


def _acceptance_at(index: int) -> Callable[[Summary], float | None]:
    return lambda summary: summary.conditional[index].share


def _n_at(total: Summary, position: int) -> int:
    return next((at.n for at in total.conditional if at.position == position), 0)


def results(job: Job, measured: Measured) -> dict[str, Any]:
    """``results`` and ``all_sets`` (all prompts together), ``failures`` and ``partial``.

    ``results[drafter][set][temperature]`` is a `cell_report`; ``all_sets[drafter][temperature]`` is there when the job
    has several sets.
    """
    keys = {law.temperature: temperature_key(law.temperature) for law in job.laws}

    def outcomes(drafter: str, kinds: Collection[str], temperature: float) -> Outcomes:
        cells = [(kind, measured.outcomes.get(Cell(drafter, kind, temperature), {})) for kind in kinds]
        return {(kind, number): outcome for kind, of in cells for number, outcome in of.items()}

    def of(drafter: str, kinds: Collection[str], temperature: float) -> dict[str, Any]:
        rival = None if drafter == job.baseline else job.baseline
        theirs = None if rival is None else outcomes(rival, kinds, temperature)
        return cell_report(outcomes(drafter, kinds, temperature), theirs, one_at_a_time=job.at_once == 1)

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
