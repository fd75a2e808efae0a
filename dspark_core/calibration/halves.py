"""One half of the answers is fitted on, the other measured on, so that no text is in both."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_core.calibration.calibration import Setting
from dspark_core.calibration.figures import figures_by_position
from dspark_core.calibration.fit import fit_sts, notes_on
from dspark_core.calibration.rounds import Rounds, joined


def held_out(parts: Sequence[Rounds], num_positions: int) -> Rounds:
    """The rounds of the second, fourth, … answer: the part that nothing is fitted to."""
    return joined(parts[1::2], num_positions)


def fitted_setting(sampling_temperature: float, parts: Sequence[Rounds], num_positions: int) -> Setting:
    """Fit on the first, third, … answer's rounds; measure on the others'.

    Args:
        sampling_temperature: that the answers were drawn at.
        parts: the rounds of each answer.
        num_positions: γ.
    """
    fit, rest = joined(parts[0::2], num_positions), held_out(parts, num_positions)
    temperatures = fit_sts(fit.logits, fit.accepted, fit.observed)
    return Setting(
        sampling_temperature=sampling_temperature,
        confidence_temperatures=tuple(temperatures.tolist()),
        fit_rounds=len(fit),
        held_out_rounds=len(rest),
        notes=notes_on(fit, temperatures),
        before=figures_by_position(rest, [1.0] * num_positions),
        after=figures_by_position(rest, temperatures.tolist()),
    )
