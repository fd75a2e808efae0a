"""ECE, reliability bins and AUC against examples done by hand and against the slow way to compute them."""

import numpy as np
import pytest

from dspark_core.calibration.figures import figures_by_position, mean_ece
from dspark_core.calibration.ranking import auc
from dspark_core.calibration.reliability import calibration_error, reliability_bins, resampled_errors
from dspark_core.calibration.rounds import Rounds, joined
from dspark_core.calibration.survival import confidences, logits_of, survival
from dspark_core.errors import ParameterError

LOGIT_OF = {0.5: 0.0, 0.8: np.log(4), 0.2: -np.log(4)}


def test_the_calibration_error_by_hand():
    # Bins: 0.05 alone; 0.15 twice, one of which happened; 0.95 alone.
    assert calibration_error([0.05, 0.15, 0.15, 0.95], [0, 1, 0, 1]) == pytest.approx((0.05 + 2 * 0.35 + 0.05) / 4)
    assert calibration_error([0.05, 0.15, 0.15, 0.95], [0, 1, 0, 1], bins=1) == pytest.approx(0.5 - 1.3 / 4)


def test_an_edge_belongs_to_the_bin_above_and_one_to_the_last():
    bins = reliability_bins([0.0, 0.5, 0.5, 1.0], [False, True, False, True], bins=2)
    assert [(b.low, b.high, b.n) for b in bins] == [(0.0, 0.5, 1), (0.5, 1.0, 3)]
    assert bins[1].predicted == pytest.approx(2 / 3)
    assert bins[1].happened == pytest.approx(2 / 3)


def test_a_resamples_error_is_that_of_the_cases_it_repeats():
    rng = np.random.default_rng(0)
    said, came = rng.random(50), rng.random(50) < 0.5
    weights = rng.multinomial(50, np.full(50, 1 / 50), 4)
    slow = [calibration_error(np.repeat(said, row), np.repeat(came, row)) for row in weights]
    assert resampled_errors(said, came, weights) == pytest.approx(slow)
    assert resampled_errors(said, came, np.ones((1, 50))) == pytest.approx([calibration_error(said, came)])


def test_bins_that_hold_nothing_are_left_out():
    assert [b.n for b in reliability_bins([0.05, 0.95], [0, 1])] == [1, 1]


@pytest.mark.parametrize("bins", [1, 7, 10])
def test_the_calibration_error_is_the_weighted_gap_of_its_bins(bins):
    rng = np.random.default_rng(1)
    p = rng.random(500)
    y = rng.random(500) < p**2
    gap = 0.0
    for b in range(bins):
        inside = [i for i in range(500) if min(int(p[i] * bins), bins - 1) == b]
        gap += abs(sum(p[i] for i in inside) - sum(y[i] for i in inside)) / 500
    assert calibration_error(p, y, bins) == pytest.approx(gap)
    of_bins = reliability_bins(p, y, bins)
    assert sum(b.n for b in of_bins) == 500
    assert sum(b.n / 500 * abs(b.predicted - b.happened) for b in of_bins) == pytest.approx(gap)


def test_nothing_to_measure_is_none_not_zero():
    assert calibration_error([], []) is None
    assert reliability_bins([], []) == ()
    assert auc([], []) is None


@pytest.mark.parametrize(
    ("p", "y", "words"),
    [
        ([np.nan], [1], "predicted holds NaN"),
        ([1.1], [1], "outside 0 to 1"),
        ([-0.1], [1], "outside 0 to 1"),
        ([0.5], [np.nan], "happened holds NaN"),
        ([0.5], [0.5], "happened holds"),
        ([0.5, 0.5], [1], "one length"),
    ],
)
def test_what_is_no_probability_or_no_outcome_is_refused_by_name(p, y, words):
    for figure in (calibration_error, reliability_bins):
        with pytest.raises(ParameterError, match=words):
            figure(p, y)


def test_no_bin_is_refused():
    with pytest.raises(ParameterError, match="bins is 0"):
        calibration_error([0.5], [1], bins=0)


def test_auc_by_hand():
    assert auc([0.9, 0.8, 0.3], [1, 0, 0]) == 1
    assert auc([0.3, 0.8, 0.9], [1, 0, 0]) == 0
    assert auc([0.5, 0.5], [1, 0]) == 0.5
    assert auc([0.1, 0.4, 0.4, 0.8], [0, 1, 0, 1]) == pytest.approx(3.5 / 4)


@pytest.mark.parametrize("levels", [3, 1000])
def test_auc_is_the_share_of_pairs_in_order(levels):
    rng = np.random.default_rng(2)
    s = rng.integers(levels, size=200) / levels
    y = rng.random(200) < 0.3
    wins = [(a > b) + (a == b) / 2 for a in s[y] for b in s[~y]]
    assert auc(s, y) == pytest.approx(np.mean(wins))


@pytest.mark.parametrize("outcome", [True, False])
def test_auc_of_one_kind_alone_is_none(outcome):
    assert auc([0.1, 0.9], [outcome] * 2) is None


def test_auc_refuses_nan_by_name():
    with pytest.raises(ParameterError, match="NaN"):
        auc([0.1, np.nan], [0, 1])


def test_confidence_is_the_sigmoid_of_the_divided_logit_and_survival_its_product():
    c = confidences([[np.log(4), 2 * np.log(4)]], [1.0, 2.0])
    assert c.tolist() == [pytest.approx([0.8, 0.8])]
    assert survival(c).tolist() == [pytest.approx([0.8, 0.64])]


def test_huge_logits_stay_finite():
    c = confidences([[1e308, -1e308]], [0.1, 0.1])
    assert np.isfinite(c).all()
    assert c[0, 0] > 0.999
    assert 0 < c[0, 1] < 0.001


def test_logits_come_back_from_confidences():
    logits = np.array([[-50.0, -1.0, 0.0, 3.0, 20.0]])
    assert logits_of(confidences(logits, np.ones(5))) == pytest.approx(logits)
    assert np.isfinite(logits_of([0.0, 1.0])).all()


def rounds_by_hand():
    """Three positions. Round 1 accepts all; 2 fails at once; 3 ended after one accepted draft; 4 drafted two."""
    logits = [[LOGIT_OF[0.8], LOGIT_OF[0.5], LOGIT_OF[0.2]]] * 2 + [[LOGIT_OF[0.5]] * 3] * 2
    return Rounds.of(logits, [3, 0, 1, 1], [3, 3, 1, 2])


def test_figures_by_hand_count_only_what_was_observed():
    first, second, third = figures_by_position(rounds_by_hand(), [1.0] * 3)
    assert (first.n, first.reached, first.survived) == (4, 4, 0.75)
    assert first.mean_survival == pytest.approx((0.8 + 0.8 + 0.5 + 0.5) / 4)
    assert first.auc == pytest.approx((0.5 + 0 + 0) / 3)  # the failed round scores as high as one and above two
    assert first.ece == pytest.approx((abs(1.6 - 1) + abs(1.0 - 2)) / 4)
    assert (second.n, second.reached) == (3, 2)  # round 3 tells nothing of 2; round 2 never came to it
    assert second.survived == pytest.approx(1 / 3)
    assert second.auc == 0.5
    assert second.mean_survival == pytest.approx((0.4 + 0.4 + 0.25) / 3)
    assert (third.n, third.reached, third.auc) == (2, 1, None)
    assert third.ece == pytest.approx(abs(0.08 * 2 - 1) / 2)
    assert [sum(b.n for b in at.bins) for at in (first, second, third)] == [4, 3, 2]


def test_a_temperature_moves_the_error_and_leaves_the_auc_of_its_position():
    plain = figures_by_position(rounds_by_hand(), [1.0] * 3)
    hot = figures_by_position(rounds_by_hand(), [3.0] * 3)
    assert [at.auc for at in plain] == [at.auc for at in hot]
    assert plain[0].ece != hot[0].ece


def test_a_position_that_no_round_observed_has_no_figures():
    at = figures_by_position(Rounds.of([[0.0, np.nan]], [1], [1]), [1.0, 1.0])[1]
    assert (at.n, at.mean_survival, at.survived, at.ece, at.reached, at.auc, at.bins) == (
        0,
        None,
        None,
        None,
        0,
        None,
        (),
    )
    assert mean_ece([at]) is None


@pytest.mark.parametrize(
    ("logits", "accepted", "observed", "words"),
    [
        ([[0.0, np.nan]], [1], [2], "logits hold nan in round 0 at position 2"),
        ([[0.0, np.inf]], [1], None, "logits hold inf in round 0 at position 2"),
        ([[0.0]], [np.nan], None, "accepted_length must hold whole numbers"),
        ([[0.0]], [0.5], None, "accepted_length must hold whole numbers"),
        ([[0.0]], [0], [np.nan], "observed_length must hold whole numbers"),
        ([[0.0]], [2], None, "Round 0 has accepted_length 2 of 1"),
        ([[0.0, 0.0]], [2], [1], "Round 0 has accepted_length 2 of 1"),
        ([[0.0]], [-1], None, "accepted_length -1"),
        ([[0.0]], [0], [2], "2 observed of 1"),
        ([[0.0]], [0, 0], None, "accepted_length has the shape"),
        ([0.0], [0], None, "logits have the shape"),
    ],
)
def test_rounds_that_make_no_sense_are_refused_by_name(logits, accepted, observed, words):
    with pytest.raises(ParameterError, match=words):
        Rounds.of(logits, accepted, observed)


def test_joined_rounds_are_the_rounds_in_a_row():
    whole = rounds_by_hand()
    parts = [Rounds.of(whole.logits[a:b], whole.accepted[a:b], whole.observed[a:b]) for a, b in ((0, 1), (1, 4))]
    both = joined(parts, 3)
    assert np.array_equal(both.logits, whole.logits)
    assert np.array_equal(both.accepted, whole.accepted)
    assert np.array_equal(both.observed, whole.observed)
    assert len(joined([], 3)) == 0
    assert joined([], 3).num_positions == 3
