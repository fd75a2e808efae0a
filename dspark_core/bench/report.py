"""What the race came to: one JSON-able dict, and the same as a table."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from dspark_core.bench.paired import same_answers, speed_ratio
from dspark_core.bench.run import Run
from dspark_core.telemetry import merge

if TYPE_CHECKING:
    from dspark_core.loading import SessionInfo

BASELINE = "plain"


def lane_report(runs: Sequence[Run], baseline: Sequence[Run], *, greedy: bool, note: str = "") -> dict[str, Any]:
    """One lane's figures.

    ``tokens_per_s`` and ``tau`` are telemetry's, over all prompts together (prefill left out); ``ratio`` is the median
    over the prompts of tokens/s here over tokens/s of the plain lane, without an interval where it is one prompt's.
    ``wall_tokens_per_s`` counts the prefill too.
    ``answers`` compares with the plain lane's tokens (greedy only: elsewhere lanes draw differently).
    """
    summary = merge(run.summary for run in runs)
    ratio = speed_ratio(runs, baseline)
    wall_s = sum(run.wall_s for run in runs)
    return {
        "tokens_per_s": summary.tokens_per_s,
        "tau": summary.tau,
        "ratio": ratio and ratio.median,
        "ratio_95": ratio and ([ratio.low, ratio.high] if ratio.n > 1 else None),
        "wall_tokens_per_s": sum(len(run.token_ids) for run in runs) / wall_s if wall_s else 0.0,
        "prompts": len(runs),
        "answers": same_answers(runs, baseline) if greedy else None,
        "note": note,
        **{name: value for name, value in summary.to_json().items() if name not in ("tokens_per_s", "tau")},
    }


def machine_report(device_label: str, dtype: str, threads: int, torch_version: str) -> dict[str, Any]:
    """Where the figures were measured."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "device": device_label,
        "dtype": dtype,
        "threads": threads,
        "torch": torch_version,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "load_average_at_start": load,
    }


def measured_on(info: SessionInfo) -> dict[str, Any]:
    """What was measured, where and when: the head of a report. Keys: model, device, dtype, date, machine."""
    import torch

    machine = machine_report(info.device_label, info.dtype, torch.get_num_threads(), str(torch.__version__))
    return {
        "model": info.model,
        "device": machine.pop("device"),
        "dtype": machine.pop("dtype"),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine,
    }


def table(lanes: Mapping[str, Mapping[str, Any]]) -> str:
    """The lanes' figures, one line a lane, then the times of a round, then acceptance by position with n."""
    head = (
        f"{'lane':<22}{'tokens/s':>9}{'ratio':>7}{'95 %':>14}{'τ':>6}{'accepted':>10}"
        f"{'draft':>7}{'sched.':>7}{'verify':>7}{'wall t/s':>10}{'same text':>11}"
    )
    lines = [head, *(_line(name, lane) for name, lane in lanes.items()), ""]
    lines += [_round_line(name, lane) for name, lane in lanes.items() if lane["drafted"]]
    for name, lane in lanes.items():
        if lane["conditional"]:
            shares = "  ".join(f"{at['position']}: {at['share']:.2f} (n={at['n']})" for at in lane["conditional"])
            lines.append(f"{name}, accepted at position, given those before:  {shares}")
    return "\n".join(lines)


def _round_line(name: str, lane: Mapping[str, Any]) -> str:
    rounds, ratio = lane["rounds"], lane["draft_to_verify"]
    return (
        f"{name}, a round: T_draft {1000 * lane['draft_s'] / rounds:.2f} ms for {lane['drafted'] / rounds:.1f} drafts, "
        f"T_verify {1000 * lane['verify_s'] / rounds:.2f} ms for {lane['verified'] / rounds:.1f} of them, "
        f"T_draft / T_verify {'–' if ratio is None else f'{ratio:.3f}'}"
    )


def _line(name: str, lane: Mapping[str, Any]) -> str:
    interval = "–" if lane["ratio_95"] is None else "{:.2f}–{:.2f}".format(*lane["ratio_95"])
    rate = lane["acceptance_rate"]
    answers = lane["answers"]
    round_s = lane["round_s"] or 1.0
    return (
        f"{name:<22}{lane['tokens_per_s']:>9.1f}{lane['ratio'] or 0:>7.2f}{interval:>14}"
        f"{lane['tau']:>6.2f}{'–' if rate is None else f'{rate:.0%}':>10}"
        f"{lane['draft_s'] / round_s:>7.0%}{lane['schedule_s'] / round_s:>7.0%}{lane['verify_s'] / round_s:>7.0%}"
        f"{lane['wall_tokens_per_s']:>10.1f}{'–' if answers is None else '{same}/{n}'.format(**answers):>11}"
    )
