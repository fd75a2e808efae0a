"""STS finds a miscalibration that was put in, makes nothing worse, and never looks ahead."""

import numpy as np
import pytest

from dspark_core.calibration.figures import figures_by_position, mean_ece
from dspark_core.calibration.fit import GRID, LEAST_REACHED, fit_sts, notes_on, seldom_reached
from dspark_core.calibration.rounds import Rounds
from dspark_core.errors import ParameterError


def synthetic(true_temperatures, n=6000, seed=0, spread=1.0):
    """Rounds whose logits are the true ones times these temperatures: dividing by them makes c_k exact."""
    rng = np.random.default_rng(seed)
    gamma = len(true_temperatures)
    truth = 1.2 + spread * rng.standard_normal((n, gamma))
    accepted = np.cumprod(rng.random((n, gamma)) < 1 / (1 + np.exp(-truth)), axis=1).sum(axis=1)
    return truth * np.array(true_temperatures), accepted


@pytest.mark.parametrize("true_temperatures", [(2.5, 2.5, 2.5), (0.4, 0.4, 0.4), (3.0, 0.5, 2.0, 1.0)])
def test_a_known_miscalibration_is_undone_also_on_rounds_not_fitted_on(true_temperatures):
    temperatures = fit_sts(*synthetic(true_temperatures))
    assert np.abs(np.log(temperatures / true_temperatures)).max() < np.log(1.3)
    fresh = Rounds.of(*synthetic(true_temperatures, seed=1))
    before, after = (figures_by_position(fresh, t) for t in ([1.0] * len(true_temperatures), temperatures))
    assert mean_ece(after) < 0.02 < 0.04 < mean_ece(before)


def test_confidences_that_are_right_are_left_nearly_alone():
    temperatures = fit_sts(*synthetic((1.0, 1.0, 1.0)))
    assert np.abs(np.log(temperatures)).max() < np.log(1.25)


@pytest.mark.parametrize("seed", range(8))
def test_the_fitted_error_is_never_worse(seed):
    rng = np.random.default_rng(seed)
    gamma, n = int(rng.integers(1, 6)), int(rng.integers(60, 600))
    logits = rng.normal(rng.normal(0, 2), 2, (n, gamma))
    accepted = np.minimum(rng.geometric(rng.uniform(0.1, 0.6), n) - 1, gamma)  # has nothing to do with the logits
    rounds = Rounds.of(logits, accepted)
    temperatures = fit_sts(logits, accepted)
    assert set(temperatures) <= set(GRID)
    fitted = [k for k in range(gamma) if k + 1 not in seldom_reached(rounds)]
    before, after = figures_by_position(rounds, np.ones(gamma)), figures_by_position(rounds, temperatures)
    assert mean_ece([after[k] for k in fitted]) <= mean_ece([before[k] for k in fitted]) + 1e-9
    for k in fitted:
        kept = temperatures.copy()
        kept[k] = 1.0
        assert after[k].ece <= figures_by_position(rounds, kept)[k].ece + 1e-9


def test_a_fit_that_would_raise_the_mean_error_is_dropped(monkeypatch):
    monkeypatch.setattr("dspark_core.calibration.fit._best", lambda *_: 10.0)
    assert fit_sts(*synthetic((1.0, 1.0))).tolist() == [1.0, 1.0]


def errors_at(rounds, temperatures, k):
    """The fitted error at position k + 1 for every temperature of the grid there."""
    errors = []
    for t in GRID:
        tried = temperatures.copy()
        tried[k] = t
        errors.append(figures_by_position(rounds, tried)[k].ece)
    return np.array(errors)


def test_a_clear_miscalibration_is_fitted_to_nearly_the_least_error_of_the_grid():
    logits, accepted = synthetic((2.0, 0.5), n=3000)
    rounds = Rounds.of(logits, accepted)
    temperatures = fit_sts(logits, accepted)
    for k in range(2):
        errors = errors_at(rounds, temperatures, k)
        fitted = errors[temperatures[k] == GRID][0]
        assert fitted <= errors.min() + 0.006  # a standard error of it with so many rounds, and less than that of T = 1
        assert fitted < errors[GRID == 1][0] - 0.02


def test_what_chance_alone_found_is_not_taken():
    """Right confidences and few rounds: the least error is somewhere off 1, and 1 is within its standard error."""
    best, taken = [], []
    for seed in range(10):
        logits, accepted = synthetic((1.0,), n=300, seed=seed)
        errors = errors_at(Rounds.of(logits, accepted), np.ones(1), 0)
        best.append(abs(np.log(GRID[errors.argmin()])))
        taken.append(abs(np.log(fit_sts(logits, accepted)[0])))
    assert np.mean(taken) < 0.3 * np.mean(best)


def test_fewer_rounds_keep_a_temperature_nearer_to_1():
    few, many = (fit_sts(*synthetic((1.3,), n=n, seed=3))[0] for n in (100, 20_000))
    assert 1 <= few < many < 1.5


def test_the_same_rounds_give_the_same_temperatures():
    rounds = synthetic((1.5, 0.7), n=400)
    assert fit_sts(*rounds).tolist() == fit_sts(*rounds).tolist()


def test_a_temperature_depends_on_no_later_position():
    logits, accepted = synthetic((2.5, 0.4, 2.0), n=2000)
    whole = fit_sts(logits, accepted)
    other = logits.copy()
    other[:, 2] = np.random.default_rng(5).normal(size=len(other)) * 9
    assert fit_sts(other, accepted)[:2].tolist() == whole[:2].tolist()
    assert fit_sts(logits[:, :2], np.minimum(accepted, 2)).tolist() == whole[:2].tolist()


def test_what_was_not_observed_has_no_say():
    logits, accepted = synthetic((2.5, 0.4), n=1000)
    cut = np.full((200, 2), np.nan)
    cut[:, 0] = logits[:200, 0]
    lengths = np.minimum(accepted[:200], 1)
    more = fit_sts(np.concatenate([logits, cut[:, :]]), np.concatenate([accepted, lengths]), [2] * 1000 + [1] * 200)
    alone = fit_sts(np.concatenate([logits, logits[:200]])[:, :1], np.minimum(np.concatenate([accepted, lengths]), 1))
    assert more[0] == alone[0]


def test_positions_that_too_few_rounds_came_to_keep_1_and_say_so():
    logits, accepted = synthetic((3.0, 3.0), n=LEAST_REACHED + 30)
    accepted[LEAST_REACHED - 1 :] = 0
    accepted[: LEAST_REACHED - 1] = 1
    rounds = Rounds.of(logits, accepted)
    assert fit_sts(logits, accepted)[1] == 1
    assert seldom_reached(rounds) == {2: LEAST_REACHED - 1}
    note = notes_on(rounds, fit_sts(logits, accepted))[0]
    assert f"fewer than {LEAST_REACHED} rounds" in note
    assert note.endswith(f"position (rounds): 2 ({LEAST_REACHED - 1})")


def test_a_fit_that_changes_nothing_says_so_and_one_that_does_says_nothing():
    rounds = Rounds.of(np.zeros((200, 1)), [1, 0] * 100)
    assert "T stays 1" in notes_on(rounds, np.ones(1))[0]
    assert notes_on(rounds, np.full(1, 2.0)) == ()
    second_seldom = Rounds.of(np.zeros((200, 2)), [1] * 20 + [0] * 180)
    assert len(notes_on(second_seldom, np.ones(2))) == 2
    assert len(notes_on(second_seldom, np.array([2.0, 1.0]))) == 1


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_rounds_change_nothing(n):
    assert fit_sts(np.zeros((n, 3)), [0] * n).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("accepted", "hotter"), [(3, False), (0, True)])
def test_all_accepted_or_none_gives_a_temperature_of_the_grid(accepted, hotter):
    temperatures = fit_sts(np.full((100, 3), 1.0), [accepted] * 100)
    assert set(temperatures) <= set(GRID)
    assert (temperatures[0] > 1) == hotter  # c = 0.73: up towards 1 when all are accepted, down to 0.5 when none is
    assert temperatures[0] != 1


def test_of_equally_good_temperatures_the_one_nearest_to_1_is_taken():
    half_accepted = [1, 0] * 100
    assert fit_sts(np.zeros((200, 1)), half_accepted).tolist() == [1.0]  # σ(0 / T) is ½ for every T


def test_the_grid_rises_and_holds_1():
    assert (np.diff(GRID) > 0).all()
    assert 1.0 in GRID
    assert (GRID[0], GRID[-1]) == (0.1, 10.0)


def test_nan_is_refused_by_name():
    with pytest.raises(ParameterError, match="logits hold nan in round 1 at position 2"):
        fit_sts([[0.0, 0.0], [0.0, np.nan]], [0, 0])
