"""The scale of one position's temperature: every point of it is what the figures say of those temperatures."""

import numpy as np
import pytest

from dspark_core.calibration.dial import SCALE, all_positions, dial
from dspark_core.calibration.figures import figures_by_position, mean_ece
from dspark_core.calibration.reliability import reliability_bins
from dspark_core.calibration.rounds import Rounds, joined
from dspark_core.calibration.survival import confidences

FITTED = [1.3, 0.7, 1.0]


@pytest.fixture(scope="module")
def rounds():
    dice = np.random.default_rng(4)
    logits = dice.normal(0.5, 1.5, (400, 3))
    hit = dice.random((400, 3)) < 1 / (1 + np.exp(-logits / 2))
    accepted = np.multiply.accumulate(hit, axis=1).sum(axis=1)
    return Rounds.of(logits, accepted, np.maximum(accepted, dice.integers(1, 4, 400)))


@pytest.mark.parametrize("position", [1, 2, 3])
def test_each_point_of_the_scale_has_the_figures_of_its_temperatures(rounds, position):
    turns = dial(rounds, FITTED, position)
    assert [turn.temperature for turn in turns] == sorted({*SCALE, FITTED[position - 1]})
    for turn in turns[::6]:
        moved = [turn.temperature if k == position else t for k, t in enumerate(FITTED, start=1)]
        figures = figures_by_position(rounds, moved)
        assert turn.bins == figures[position - 1].bins
        assert turn.errors == pytest.approx([at.ece for at in figures])
        assert turn.mean_error == pytest.approx(mean_ece(figures))
        reached = rounds.reached[:, position - 1]
        said = confidences(rounds.logits, moved)[reached, position - 1]
        assert turn.confidences == reliability_bins(said, rounds.survived[reached, position - 1])


def test_the_scale_has_one_and_is_as_wide_both_ways():
    assert SCALE[len(SCALE) // 2] == 1
    assert SCALE[0] * SCALE[-1] == pytest.approx(1)


def test_all_positions_together_hold_every_observed_pair(rounds):
    together = all_positions(rounds, FITTED)
    assert sum(at.n for at in together.bins) == rounds.known.sum()
    assert sum(at.n for at in together.confidences) == rounds.reached.sum()
    assert together.mean_error == mean_ece(figures_by_position(rounds, FITTED))


def test_where_nothing_was_observed_there_is_nothing_to_show():
    nothing = joined([], 2)
    assert {turn.errors for turn in dial(nothing, [1.0, 1.0], 1)} == {(None, None)}
    assert all_positions(nothing, [1.0, 1.0]).bins == ()
