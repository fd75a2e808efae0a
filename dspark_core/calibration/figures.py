"""How good confidences are, position by position, always with n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_core.calibration.ranking import auc
from dspark_core.calibration.reliability import Bin, calibration_error, reliability_bins
from dspark_core.calibration.rounds import Rounds
from dspark_core.calibration.survival import confidences, survival


@dataclass(frozen=True, slots=True)
class PositionFigures:
    """One draft position.

    Attributes:
        position: k = 1, 2, …
        n: rounds in which the prefix survival at k was observed.
        mean_survival: mean of a_k over them; None for n = 0.
        survived: share of them in which 1 … k were all accepted; None for n = 0.
        ece: ECE of a_k over them, see `reliability`; None for n = 0.
        reached: rounds that came to k: 1 … k-1 were all accepted and k was observed.
        auc: of c_k over those, against k's acceptance; None when all were accepted or none. No temperature changes
            it, since dividing the logits of one position by one number keeps their order.
        bins: reliability bins of a_k.
    """

    position: int
    n: int
    mean_survival: float | None
    survived: float | None
    ece: float | None
    reached: int
    auc: float | None
    bins: tuple[Bin, ...]


def figures_by_position(rounds: Rounds, temperatures: Sequence[float]) -> tuple[PositionFigures, ...]:
    """The figures of the confidences that these temperatures [γ] give on these rounds; ones are no calibration."""
    c = confidences(rounds.logits, temperatures)
    a = survival(c)
    figures = []
    for k in range(rounds.num_positions):
        known, reached = rounds.known[:, k], rounds.reached[:, k]
        said, came = a[known, k], rounds.survived[known, k]
        figures.append(
            PositionFigures(
                position=k + 1,
                n=len(said),
                mean_survival=float(said.mean()) if len(said) else None,
                survived=float(came.mean()) if len(said) else None,
                ece=calibration_error(said, came),
                reached=int(reached.sum()),
                auc=auc(c[reached, k], rounds.survived[reached, k]),
                bins=reliability_bins(said, came),
            )
        )
    return tuple(figures)


def mean_ece(figures: Sequence[PositionFigures]) -> float | None:
    """Mean ECE over the positions that were observed; None when none was."""
    errors = [at.ece for at in figures if at.ece is not None]
    return sum(errors) / len(errors) if errors else None
