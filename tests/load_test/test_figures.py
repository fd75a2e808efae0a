"""Every figure of a load test is what its definition says, on times and counts made by hand."""

import numpy as np
import pytest

from dspark_core.bench.bootstrap import clustered_weights
from dspark_core.load_test.figures import Share, Sums, counted, mean_users, quantile, shares, starting
from dspark_core.load_test.goals import goals
from dspark_core.load_test.lane import lane_named
from dspark_core.load_test.resampled import Figure, Level
from dspark_core.load_test.time_left import TimeLeft
from dspark_core.load_test.trace import CellTrace
from dspark_core.params import ScheduleParams
from tests.load_test.traces import answer, commit, steady

BEFORE = answer(-1, 0.0, [commit(2.0, 9), commit(11.0, 2, verified=3, accepted=1)], ended_s=12.0)
WHOLE = answer(0, 12.0, [commit(14.0, 3, 4, 2), commit(16.0, 2, 4, 1), commit(18.0, 2, 4, 1)], ended_s=18.0)
CUT = answer(1, 18.0, [commit(19.0, 1, 2, 0), commit(21.0, 5, 4, 4)])
CELL = CellTrace(1, 10.0, 20.0, (BEFORE, WHOLE, CUT), counting=2)


def sums(cell):
    return Sums(np.array([list(shares(cell).values())]).sum(axis=1))


def test_time_to_first_token_counts_from_asking_and_speed_from_the_first_commit():
    assert WHOLE.first_token_s == 2.0
    assert WHOLE.tokens_per_s == (2 + 2) / (18.0 - 14.0)
    assert answer(0, 1.0, []).first_token_s is None
    assert answer(0, 1.0, [commit(2.0, 3)]).tokens_per_s is None


def test_throughput_counts_what_was_committed_in_the_window_alone_whoever_got_it():
    found = sums(CELL)
    assert found.throughput == pytest.approx((2 + 7 + 1) / 10.0)
    assert found.tau == pytest.approx(10 / 5)


def test_the_shares_of_the_answers_add_up_to_the_window():
    of = shares(CELL)
    assert sum(share.wall_s for share in of.values()) == pytest.approx(CELL.wall_s)
    assert [of[index].wall_s for index in (-1, 0, 1)] == pytest.approx([2, 6, 2])
    assert mean_users(CELL) == pytest.approx(1)


def test_two_users_share_the_seconds_in_which_both_are_there():
    both = CellTrace(2, 0.0, 10.0, (answer(0, 0.0, [commit(5.0, 4)], 10.0), answer(1, 0.0, [commit(5.0, 6)], 10.0)))
    assert [share.wall_s for share in shares(both).values()] == [5.0, 5.0]
    assert sums(both).throughput == 1.0
    assert mean_users(both) == 2.0


def test_the_budget_is_the_pass_tokens_per_request_and_round():
    assert sums(CELL).budget == pytest.approx(1 + (3 + 4 + 4 + 4 + 2) / 5)
    assert sums(steady(1)).budget == 1


def test_wasted_verification_is_what_was_verified_and_did_not_join_the_answer():
    verified, accepted, tokens = 17, 5, 10
    assert sums(CELL).wasted_share == pytest.approx((verified - accepted) / verified)
    assert sums(CELL).wasted_per_token == pytest.approx((verified - accepted) / tokens)
    assert np.isnan(sums(steady(1)).wasted_share), "nothing was verified"
    assert sums(steady(1)).wasted_per_token == 0


def test_drafting_and_scheduling_are_shares_of_the_rounds():
    assert sums(steady(1, schedule_s=0.5)).schedule_share == 0.5 / 4
    assert sums(steady(1)).draft_share == 1 / 4


def test_answers_count_when_their_question_is_of_the_list_and_they_ended_in_the_window():
    assert counted(CELL) == [WHOLE]
    assert counted(CellTrace(1, 10.0, 20.0, CELL.answers, counting=0)) == []
    assert counted(CellTrace(1, 10.0, 17.0, CELL.answers)) == []
    assert starting(CELL) == [BEFORE]


def test_a_quantile_is_the_smallest_value_that_reaches_the_share_of_the_weight():
    values = np.array([5.0, 1.0, 3.0, 9.0])
    weights = np.array([[1, 1, 1, 1], [0, 0, 0, 2], [0, 0, 0, 0]], dtype=float)
    assert quantile(values, weights, 0.5)[:2].tolist() == [3.0, 9.0]
    assert quantile(values, weights, 0.95)[0] == 9.0
    assert np.isnan(quantile(values, weights, 0.5)[2])
    assert np.isnan(quantile(np.array([]), np.ones((1, 0)), 0.5)).all()


def test_resamples_take_whole_clusters_and_then_items_of_them():
    weights = clustered_weights([3, 2])
    per_cluster = np.stack([weights[:, :3].sum(axis=1) / 3, weights[:, 3:].sum(axis=1) / 2], axis=1)
    assert set(map(tuple, per_cluster.tolist())) == {(0.0, 2.0), (1.0, 1.0), (2.0, 0.0)}
    assert weights[:, 0].max() > 1
    assert weights[:, 0].min() == 0
    assert weights.mean(axis=0) == pytest.approx(np.ones(5), abs=0.1)
    assert (clustered_weights([3, 2]) == weights).all()


def test_a_figure_that_never_moves_has_a_tight_interval_and_a_ratio_is_paired():
    level = Level({"a": [steady(3), steady(6)], "b": [steady(1), steady(2)]})
    alone = level.figure("a", "throughput")
    assert alone.value == 4.5
    assert alone.interval == (3, 6), "the repeats differ"
    paired = level.combined(["a", "b"], lambda of: of[0].throughput / of[1].throughput)
    assert paired.value == pytest.approx(3)
    assert paired.interval == pytest.approx((3, 3)), "in every repeat alike"


def test_what_was_not_observed_has_no_figure_and_one_answer_has_no_interval():
    level = Level({"a": [steady(1, answers=1)]})
    assert level.figure("a", "wasted_share") == Figure(None, None)
    assert level.figure("a", "throughput") == Figure(1.0, None)


def test_a_set_has_its_own_budget():
    maths = answer(1, 10.0, [commit(20.0, 1, verified=8)], 20.0, kind="maths")
    mixed = CellTrace(1, 0.0, 20.0, (answer(0, 0.0, [commit(10.0, 1, verified=2)], 10.0), maths), counting=2)
    assert Level({"a": [mixed]}).figure("a", "budget").value == 1 + 5
    assert Level({"a": [mixed]}, "chat").figure("a", "budget").value == 1 + 2
    assert Level({"a": [mixed]}, "maths").figure("a", "budget").value == 1 + 8
    assert Level({"a": [mixed]}, "code").figure("a", "budget").value is None


def test_an_answer_without_a_round_in_the_window_leaves_its_seconds_to_the_others():
    waiting = answer(1, 5.0, [])
    both = CellTrace(2, 0.0, 10.0, (answer(0, 0.0, [commit(5.0, 4)], 10.0), waiting))
    assert list(shares(both)) == [0]
    assert sums(both).throughput == 0.4


def test_speed_and_waiting_are_quantiles_over_the_answers_that_count():
    level = Level({"a": [CELL]})
    assert level.of_answers("a", lambda it: it.first_token_s, 0.5).value == 2.0
    assert level.of_answers("a", lambda it: it.tokens_per_s, 0.95).value == 1.0
    assert level.first_of_all("a", 0.5) == 2.0


SCHEDULE = ScheduleParams("threshold", 0, 64, 0.6)
LANES = [lane_named(name, "dspark", SCHEDULE) for name in ("plain", "fixed", "prefix", "threshold")]


def held(prefix, **others):
    """The goals at 16 and 32 users, by what they are about."""
    cells = {
        "plain": steady(2),
        "fixed": steady(2, verified=8, accepted=1),
        "threshold": steady(2, verified=3, accepted=1),
    } | others
    levels = {
        users: Level({name: [of] for name, of in cells.items()} | {"prefix": [prefix(users)]}) for users in (16, 32)
    }
    return {(goal["goal"], goal["users"]): goal for goal in goals(LANES, levels)}


def test_the_goals_are_read_off_the_figures():
    found = held(lambda users: steady(3, verified=48 // users, accepted=0))
    assert found["throughput, prefix over the better of plain and fixed", 16]["value"] == 1.5
    assert found["throughput, prefix over fixed", 32]["value"] == 1.5
    assert found["wasted drafts per committed token, prefix over fixed", 16]["value"] == pytest.approx(1 / 3.5)
    assert found["wasted drafts per committed token, threshold over fixed", 16]["value"] == pytest.approx(2 / 7)
    assert found["budget per request, prefix", 32]["value"] == 2
    assert found["scheduling time over the step's, prefix", 32]["value"] == 0
    assert ("scheduling time over the step's, prefix", 16) not in found
    assert all(goal["met"] for goal in found.values())


def test_a_goal_that_is_missed_says_so():
    found = held(lambda users: steady(1, verified=users // 2, accepted=0, schedule_s=0.08))
    assert not any(goal["met"] for (name, _), goal in found.items() if "prefix" in name)
    faster_plain = held(lambda _: steady(3), plain=steady(4))
    assert faster_plain["throughput, prefix over the better of plain and fixed", 16]["value"] == 0.75
    assert faster_plain["throughput, prefix over fixed", 16]["value"] == 1.5


def test_the_time_left_follows_what_like_parts_took():
    clock = iter([0.0, 10.0, 30.0, 40.0])
    left = TimeLeft([(1, "a"), (1, "b"), (4, "a")] * 2, lambda users: 10 * users, lambda: next(clock))
    assert left.seconds is None
    assert left.share == 0
    left.done((1, "a"))
    assert left.seconds == 10 + 3 * 10 + 2 * 40 - 10
    left.done((1, "b"))
    assert left.seconds == 10 + 20 + 2 * 60
    assert left.share == pytest.approx(1 / 3)
    left.done((4, "a"))
    assert left.seconds == 10 + 20 + 10
    assert str(left) == "40 s left"


def test_a_share_has_a_column_for_every_sum():
    assert sums(CELL).of.shape == (1, len(Share._fields))
