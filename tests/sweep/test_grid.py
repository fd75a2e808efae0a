"""The grid: what is entered becomes settings; what cannot be measured is listed with its reason."""

import pytest

from dspark_core.errors import ParameterError
from dspark_core.sweep.grid import MAX_POINTS, grid_of
from dspark_core.sweep.values import AXES, MAX_VALUES, read_values
from tests.toy_session import ToySession

AXIS = {axis.name: axis for axis in AXES}


@pytest.fixture(scope="module")
def session():
    with ToySession() as opened:
        yield opened


@pytest.mark.parametrize(
    ("axis", "text", "values"),
    [
        ("l_max", "1,2,4", (1, 2, 4)),
        ("l_max", "1:4", (1, 2, 3, 4)),
        ("gamma", "2:8:3", (2, 5, 8)),
        ("threshold", "0:0.9:0.1", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        ("temperature", "0, 1, 0:1:0.5", (0.0, 1.0, 0.5)),
        ("policy", "fixed, threshold,fixed", ("fixed", "threshold")),
        ("threshold", "", ()),
        ("l_min", " , ", ()),
    ],
)
def test_lists_and_ranges_become_values_each_once(axis, text, values):
    assert read_values(AXIS[axis], text) == values


@pytest.mark.parametrize(
    "text", ["x", "1:", "3:1", "0:1:0", "0:1:-1", "1:2:3:4", "nan", "inf", "1e400", "1e-300", "=1"]
)
def test_what_is_no_number_is_refused_by_name(text):
    with pytest.raises(ParameterError, match="threshold"):
        read_values(AXIS["threshold"], text)


def test_a_count_of_tokens_is_whole_and_an_axis_has_a_most():
    with pytest.raises(ParameterError, match=r"0\.5 is not a whole number"):
        read_values(AXIS["l_max"], "0.5")
    assert len(read_values(AXIS["threshold"], f"0:{MAX_VALUES - 1}")) == MAX_VALUES
    for text in (f"0:{MAX_VALUES}", "0:1:0.000001", ",".join(map(str, range(MAX_VALUES + 1)))):
        with pytest.raises(ParameterError, match="more than"):
            read_values(AXIS["threshold"], text)


def test_without_any_text_the_defaults_are_one_setting(session):
    grid = grid_of(session, {})
    assert [point.to_json() for point in grid.points] == [
        {
            "drafter": "dspark", "policy": "threshold", "gamma": 4, "l_min": 1, "l_max": 4, "threshold": 0.3,
            "temperature": 0.0,
        }
    ]  # fmt: skip
    assert grid.left_out == ()
    assert grid.swept == ()


def test_every_combination_is_a_setting_or_left_out_with_its_reason(session):
    texts = {
        "policy": "threshold,prefix",
        "drafter": "dspark,none",
        "l_min": "0,3",
        "l_max": "2,4,9",
        "threshold": "0.5,2",
    }
    grid = grid_of(session, texts)
    assert len(grid.points) + len(grid.left_out) == 2 * 2 * 2 * 3 * 2
    assert {(point.l_min, point.l_max) for point in grid.points} == {(0, 2), (0, 4), (3, 4)}
    assert grid.swept == ("l_min", "l_max")
    why = {reason.reason: reason.point for reason in grid.left_out}
    for piece, field in (
        ("plain decoding runs beside every", "drafter"),
        ("L_max 9 is above", "l_max"),
        ("l_min is 3 and l_max is 2", "l_min"),
        ("threshold is 2.0", "threshold"),
        ("the policy 'prefix' cannot serve he", "policy"),
    ):
        assert any(reason.startswith(piece) for reason in why), (piece, field)


def test_settings_of_one_effect_are_measured_once_and_the_other_is_named(session):
    grid = grid_of(session, {"policy": "fixed,threshold", "threshold": "0.1,0.5", "gamma": "2,4", "l_max": "2"})
    assert [(p.policy, p.threshold, p.gamma) for p in grid.points] == [
        ("fixed", 0.1, 2), ("threshold", 0.1, 2), ("threshold", 0.5, 2),
    ]  # fmt: skip
    reasons = [it.reason for it in grid.left_out]
    assert sum("does not look at threshold" in reason for reason in reasons) == 1
    assert any("no more than L_max drafts are drawn" in reason for reason in reasons)
    assert all("the same as" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"drafter": "nobody"}, "no drafter named 'nobody'"),
        ({"policy": "retrospective"}, "biased"),
        ({"policy": "guess"}, "no policy named 'guess'"),
        ({"drafter": "none"}, "None of the 1 combinations"),
        ({"l_max": "0:60", "threshold": "0:1:0.02", "temperature": "0,1"}, "at most 4,096 are looked at"),
        ({"threshold": "0:1:0.016", "temperature": "0:1:0.2"}, f"at most {MAX_POINTS} are"),
    ],
)
def test_an_impossible_grid_is_refused_as_a_whole(session, texts, said):
    with pytest.raises(ParameterError, match=said):
        grid_of(session, texts)
