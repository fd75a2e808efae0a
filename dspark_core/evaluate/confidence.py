"""How good the confidences were on the very rounds that were measured, in the figures of `dspark_core.calibration`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dspark_core.calibration.figures import figures_by_position, mean_ece
from dspark_core.calibration.rounds import Rounds, joined
from dspark_core.calibration.told import rounds_of
from dspark_core.events import DecodeRound, Event, Prefilled


@dataclass(frozen=True, slots=True)
class ConfidenceRounds:
    """Rounds of a drafter that has confidences.

    Attributes:
        raw: with the head's own confidences.
        calibrated: with those of the calibration in force; None where there is none.
    """

    raw: Rounds
    calibrated: Rounds | None


def confidence_rounds(events: Sequence[Event]) -> ConfidenceRounds | None:
    """The rounds of one answer; None when its drafts had no confidence."""
    drafted = [token for event in events if isinstance(event, DecodeRound) for token in event.draft]
    if not any(token.confidence is not None for token in drafted):
        return None
    (num_positions,) = (event.num_draft_tokens for event in events if isinstance(event, Prefilled))
    in_force = any(token.raw_confidence is not None for token in drafted)
    return ConfidenceRounds(
        rounds_of(events, num_positions), rounds_of(events, num_positions, calibrated=True) if in_force else None
    )


def all_of(parts: Iterable[ConfidenceRounds | None]) -> ConfidenceRounds | None:
    """The rounds of several answers of one drafter in one; None when none had confidences."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    num_positions = known[0].raw.num_positions
    calibrated = [part.calibrated for part in known if part.calibrated is not None]
    return ConfidenceRounds(
        joined([part.raw for part in known], num_positions), joined(calibrated, num_positions) if calibrated else None
    )


def confidence_report(rounds: ConfidenceRounds | None) -> dict[str, Any] | None:
    """``raw`` and ``calibrated`` (None without a calibration in force); None for a drafter without confidences."""
    if rounds is None:
        return None
    calibrated = None if rounds.calibrated is None else _quality(rounds.calibrated)
    return {"raw": _quality(rounds.raw), "calibrated": calibrated}


def _quality(rounds: Rounds) -> dict[str, Any]:
    """AUC of c_k and ECE of the survival a_k by position, each with its n, and the mean ECE over the positions."""
    figures = figures_by_position(rounds, [1.0] * rounds.num_positions)
    return {
        "auc_by_position": [at.auc for at in figures],
        "auc_n_by_position": [at.reached for at in figures],
        "ece_by_position": [at.ece for at in figures],
        "ece_n_by_position": [at.n for at in figures],
        "mean_ece": mean_ece(figures),
    }
