"""N users on the toy's real engine: all are served all the time, each question has its own seed, nothing is left."""

import pytest

from dspark_core.bench.paired import Case
from dspark_core.errors import DSparkError, ParameterError
from dspark_core.load_test.figures import counted, mean_users
from dspark_core.load_test.lane import PLAIN, default_lanes, lane_named
from dspark_core.load_test.users import Users
from dspark_core.params import SamplingParams, ScheduleParams
from tests.toy_session import ToySession

SCHEDULE = ScheduleParams("threshold", 0, 64, 0.6)
CASES = [Case("chat", (1, 2)), Case("code", (2, 3)), Case("maths", (3, 1))]
SAMPLING = SamplingParams(temperature=1.0, seed=7, max_new_tokens=12)


@pytest.fixture
def session():
    with ToySession() as opened:
        yield opened


def ask(session, lane, sampling=SAMPLING, **options):
    return Users(session.engine, lane_named(lane, "dspark", SCHEDULE), CASES, sampling, **options).run()


def test_every_question_of_the_list_is_answered_whole_and_once(session):
    cell = ask(session, "fixed", users=3, answers=8)
    assert sorted(answer.index for answer in counted(cell)) == list(range(8))
    assert all(answer.tokens == 12 for answer in counted(cell))
    assert [answer.kind for answer in sorted(counted(cell), key=lambda it: it.index)][:4] == [
        "chat",
        "code",
        "maths",
        "chat",
    ]
    assert len({answer.index for answer in cell.answers}) == len(cell.answers)


def test_the_users_first_answers_are_of_different_lengths_and_do_not_count(session):
    cell = ask(session, PLAIN, users=4, answers=8)
    lengths = {answer.index: answer.tokens for answer in cell.answers if answer.index < 0}
    assert lengths == {-1: 1, -2: 3, -3: 6, -4: 9}


def test_in_the_window_all_users_are_there_and_have_had_a_token(session):
    cell = ask(session, "fixed", users=4, answers=12)
    assert mean_users(cell) > 2
    firsts = [answer.commits[0].at_s for answer in cell.answers if answer.index < 0]
    assert cell.start_s == max(firsts)
    assert cell.end_s == max(answer.ended_s for answer in counted(cell))


def test_a_round_is_told_as_its_event_told_it(session):
    fixed = ask(session, "fixed@3", users=1, answers=2)
    rounds = [commit for answer in counted(fixed) for commit in answer.commits]
    assert max(commit.verified for commit in rounds) == 3
    assert all(commit.tokens == commit.accepted + 1 for answer in counted(fixed) for commit in answer.commits[:-1])
    assert all(commit.round_s >= commit.draft_s + commit.schedule_s for commit in rounds)
    plain = ask(session, PLAIN, users=1, answers=2)
    assert all(commit.verified == 0 for answer in plain.answers for commit in answer.commits)


def test_a_question_has_the_same_seed_whoever_asks_it(session):
    def rounds(users):
        cell = ask(session, "fixed", users=users, answers=6)
        return {
            answer.index: [(commit.tokens, commit.verified, commit.accepted) for commit in answer.commits]
            for answer in counted(cell)
        }

    assert rounds(1) == rounds(3)


def test_a_time_limit_ends_the_window_and_cuts_what_runs(session):
    endless = SamplingParams(max_new_tokens=8000)
    cell = ask(session, PLAIN, endless, users=2, seconds=0.05)
    assert cell.wall_s == pytest.approx(0.05)
    assert all(answer.ended_s is None for answer in cell.answers if answer.index >= 0)
    assert len(cell.answers) == 3, "the first answer of user 1 has one token, then comes a question of the list"
    assert counted(cell) == []
    assert session.engine.num_active == 0


def test_nothing_runs_any_more_when_the_last_counted_answer_has_ended(session):
    ask(session, "fixed", users=5, answers=5)
    assert session.engine.num_active == 0


def test_an_answer_that_fails_ends_the_test_with_the_reason_and_leaves_nobody_behind(session, monkeypatch, caplog):
    caplog.set_level("CRITICAL")

    def broken(*_, **__):
        raise RuntimeError("the device fell off")

    monkeypatch.setattr("tests.toy.ToyTarget.forward", broken)
    with pytest.raises(DSparkError, match=r"The lane fixed failed with 3 users: .*RuntimeError: the device fell off"):
        ask(session, "fixed", users=3, answers=3)
    assert session.engine.num_active == 0


def test_an_interruption_leaves_nobody_behind(session, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Users, "_go_on", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(session, "fixed", users=3, answers=3)
    assert session.engine.num_active == 0


def test_an_interruption_at_the_moment_an_answer_has_ended_leaves_nobody_waiting_for_it(session, monkeypatch):
    def interrupted(self, asked):
        if not asked.over.is_set() or not interruptions:
            return leave(self, asked)
        raise interruptions.pop()

    leave, interruptions = Users._leave, [KeyboardInterrupt()]
    monkeypatch.setattr(Users, "_leave", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(session, "fixed", users=3, answers=3)
    assert session.engine.num_active == 0


def test_a_lane_is_a_policy_with_or_without_drafter_and_number():
    plain = lane_named("plain", "dspark", SCHEDULE)
    assert (plain.drafter, plain.schedule.l_max) == ("none", 0)
    fixed = lane_named("fixed", "dspark", SCHEDULE)
    assert (fixed.drafter, fixed.schedule.policy, fixed.schedule.l_max) == ("dspark", "fixed", 64)
    assert fixed.own_drafter
    assert lane_named("fixed@4", "dspark", SCHEDULE).schedule.l_max == 4
    assert lane_named("fixed@0", "dspark", ScheduleParams("threshold", 2, 8)).schedule.l_min == 0
    dflash = lane_named("dflash+threshold@0.25", "dspark", SCHEDULE)
    assert (dflash.drafter, dflash.schedule.threshold, dflash.own_drafter) == ("dflash", 0.25, False)
    assert lane_named("my+drafter+prefix", "dspark", SCHEDULE).drafter == "my+drafter"
    assert lane_named("dspark+prefix", "dspark", SCHEDULE).own_drafter


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("warp", "no lane named 'warp'"),
        ("dspark", "no lane named 'dspark'"),
        ("+fixed", "no lane named '\\+fixed'"),
        ("prefix@3", "no lane named 'prefix@3'"),
        ("fixed@many", "'many' is no number"),
        ("fixed@", "'' is no number"),
        ("fixed@2.5", "'2.5' is no number"),
        ("fixed@-1", "l_max is -1"),
        ("threshold@2", "threshold is 2.0"),
        ("retrospective", "no lane named"),
    ],
)
def test_a_lane_that_cannot_be_is_refused_by_name(name, message):
    with pytest.raises(ParameterError, match=message):
        lane_named(name, "dspark", SCHEDULE)


def test_by_default_there_is_every_policy_once_and_dflash_where_it_is():
    assert default_lanes(["dspark", "none"]) == ["plain", "fixed", "threshold", "banded", "prefix", "delayed"]
    assert default_lanes(["dspark", "dflash", "none"])[2] == "dflash+threshold"
