"""``python -m ui.learn.record``: has the engine record what the lessons show, into ``ui/static/lessons.json``.

Recorded, not measured on the reader's machine: the file says on which machine and when.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspark_core.errors import DSparkError
from dspark_core.events import DecodeRound, LoadSample
from dspark_core.files import write_whole_text
from dspark_core.params import SamplingParams, ScheduleParams
from dspark_core.scheduling.policies import policy_named
from dspark_core.scheduling.policy import DraftView, RoundView
from dspark_core.scheduling.step_curve import StepCurve
from dspark_core.telemetry import fold
from ui.trace import laws_json, round_json

PLACE = Path(__file__).resolve().parents[1] / "static" / "lessons.json"
PROMPT = "How do I bake bread?"
TOKENS, DRAFTS = 64, 8
USERS = (1, 2, 4, 8, 16, 32)
POSITIONS = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, and write the file whole or not at all. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ui.learn.record", description=__doc__)
    parser.add_argument("--evaluation", type=Path, required=True, help="JSON line that `evaluate --json` wrote")
    options = parser.parse_args(arguments)
    try:
        body = {**_engine_part(), "acceptance": acceptance(options.evaluation)}
    except DSparkError as error:
        sys.exit(str(error))
    write_whole_text(PLACE, json.dumps(body, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n")
    return 0


def _engine_part() -> dict[str, Any]:
    from dspark_core.loading import open_session

    with open_session("smollm2-135m", draft_model="dspark") as session:
        if session.step_curve is None:
            raise DSparkError("Lesson 7 needs step times. Measure them first: python -m dspark_core profile.")
        schedule = ScheduleParams("fixed", 0, DRAFTS)
        request = session.request(
            [{"role": "user", "content": PROMPT}],
            SamplingParams(max_new_tokens=TOKENS),
            schedule,
        )
        generation = session.engine.submit(replace(request, inspect=True))
        events = list(generation)
        rounds = [event for event in events if isinstance(event, DecodeRound) and len(event.draft) == DRAFTS]
        info, curve = session.info, session.step_curve
    figures = fold(events)
    confidences = [[draft.confidence for draft in event.draft if draft.confidence is not None] for event in rounds]
    laws = [event.inspection for event in rounds]
    telling = next(at for at, event in enumerate(rounds) if 2 <= event.num_accepted < event.verify_len)
    return {
        "made": f"{info.model} on {info.device_label}, {info.dtype}, {time.strftime('%Y-%m-%d')}",
        "prompt": PROMPT,
        "tau": figures.tau,
        "curve": [[tokens, curve.seconds(tokens)] for tokens in (1, 2, 4, 8, 16, 32, 64)],
        "rounds": [round_json(event) for event in rounds],
        "telling": telling,
        "laws": [laws_json(seen) if seen and at == telling else None for at, seen in enumerate(laws)],
        "users": [with_users(users, confidences, curve) for users in USERS],
    }


def with_users(users: int, rounds: Sequence[Sequence[float]], curve: StepCurve) -> dict[str, Any]:
    """What `prefix` plans if so many users draft a round of these confidences, for each of the rounds."""
    policy, schedule = policy_named("prefix"), ScheduleParams("prefix", 0, DRAFTS)
    around = RoundView(LoadSample("none", "none"), curve.among(users), curve.drafting_s({"dspark": [DRAFTS] * users}))
    lengths, throughputs, reasons = [], [], []
    for confidences in rounds:
        view = DraftView(len(confidences), tuple(confidences), schedule, room=DRAFTS)
        plans = policy.plan([view] * users, around)
        lengths.append([plan.verify_len for plan in plans])
        throughputs.append(max(value for plan in plans for value in plan.throughputs))
        reasons.append(plans[0].reason)
    return {"users": users, "lengths": lengths, "throughputs": throughputs, "reasons": reasons}


def acceptance(path: Path) -> dict[str, Any]:
    """Greedy acceptance by position over all sets, from the line that `evaluate` wrote. Raises DSparkError."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
        report = json.loads(lines[-1])
        return {
            "date": report["date"],
            "drafters": {
                name: {
                    key: report["all_sets"][name]["0"][key][:POSITIONS]
                    for key in ("acceptance_by_position", "acceptance_intervals", "n_by_position")
                }
                for name in ("dspark", "dflash")
            },
        }
    except (OSError, ValueError, LookupError) as error:
        raise DSparkError(
            f"{path} holds no evaluation of dspark and dflash over all sets ({type(error).__name__}). Make one: "
            "python -m dspark_core evaluate --json --drafter dspark --drafter dflash > FILE."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
