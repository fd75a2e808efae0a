"""A drafter's calibration: temperatures of the confidences for each sampling setting, and what they were fitted on."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_core.calibration.figures import PositionFigures


@dataclass(frozen=True, slots=True)
class FittedOn:
    """Where a calibration comes from.

    Attributes:
        model, dtype: the target and its type of numbers.
        drafter: name of the drafter that was rolled out.
        prompts: the file that the prompts came from.
        fit_prompts, held_out_prompts: how many of them each part had.
        max_new_tokens, seed: of every answer.
    """

    model: str
    dtype: str
    drafter: str
    prompts: str
    fit_prompts: int
    held_out_prompts: int
    max_new_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Setting:
    """The calibration for one way of sampling.

    Attributes:
        sampling_temperature: of the answers that it was fitted on; 0 is greedy.
        confidence_temperatures: T_1 … T_γ.
        fit_rounds, held_out_rounds: rounds of the two parts.
        notes: what a reader should know (positions at which T stays 1).
        before, after: figures on the held-out part without and with the temperatures.
    """

    sampling_temperature: float
    confidence_temperatures: tuple[float, ...]
    fit_rounds: int
    held_out_rounds: int
    notes: tuple[str, ...]
    before: tuple[PositionFigures, ...]
    after: tuple[PositionFigures, ...]

    @property
    def name(self) -> str:
        """For screens: "greedy" or "T=0.7"."""
        return "greedy" if self.sampling_temperature == 0 else f"T={self.sampling_temperature:g}"


@dataclass(frozen=True, slots=True)
class Calibration:
    """All settings of one drafter.

    Attributes:
        weights_sha256: of the ``model.safetensors`` that it belongs to.
        fitted_on: where it comes from.
        settings: at most one for each sampling temperature.
    """

    weights_sha256: str
    fitted_on: FittedOn
    settings: tuple[Setting, ...]

    def temperatures_for(self, sampling_temperature: float) -> tuple[float, ...] | None:
        """T_1 … T_γ for requests of that temperature, or None where confidences stay as they are.

        Greedy requests take the greedy setting and nothing else; all others the sampled setting that is nearest in
        temperature, of two equally near the cooler one. Top-k and top-p play no part in the choice.
        """
        greedy = sampling_temperature == 0
        fitting = [setting for setting in self.settings if (setting.sampling_temperature == 0) == greedy]
        if not fitting:
            return None
        nearest = min(
            fitting, key=lambda s: (abs(s.sampling_temperature - sampling_temperature), s.sampling_temperature)
        )
        return nearest.confidence_temperatures
