"""Users who come and go on the toy's real engine: who is served, what is measured, and that nobody is left."""

import time
from dataclasses import replace

import pytest

from dspark_core.bench.paired import Case
from dspark_core.errors import ParameterError
from dspark_core.load_test.crowd import Crowd
from dspark_core.load_test.figures import mean_users
from dspark_core.load_test.lane import lane_named
from dspark_core.load_test.live import LiveRun, Part, plain_lane, walk
from dspark_core.load_test.passes import joules_per_token, passes
from dspark_core.load_test.room import check_users, most_users
from dspark_core.load_test.trace import CellTrace, Commit
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.load_test.traces import answer, commit
from tests.toy_session import ToySession

SCHEDULE = ScheduleParams("threshold", 0, 64, 0.6)
CASES = [Case("chat", (1, 2)), Case("code", (2, 3)), Case("maths", (3, 1))]
SAMPLING = SamplingParams(temperature=1.0, seed=7, max_new_tokens=12)
LONG = SamplingParams(max_new_tokens=300)
FIXED = lane_named("fixed", "dspark", SCHEDULE)


@pytest.fixture
def session():
    with ToySession() as opened:
        yield opened


@pytest.fixture
def gather(session):
    """Makes crowds and sends them home in the end."""
    crowds = []

    def gathered(users, lane=FIXED, sampling=SAMPLING):
        crowds.append(Crowd(session.engine, lane, CASES, sampling, users))
        return crowds[-1]

    yield gathered
    for crowd in crowds:
        crowd.stop()


def until(check, seconds=60):
    end = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < end:
        time.sleep(0.01)
    assert found
    return found


def test_users_join_and_leave_while_the_others_go_on(session, gather):
    crowd = gather(2)
    until(lambda: (cell := crowd.measured()) and cell.users == 2 and len(cell.answers) > 4)
    crowd.resize(5)
    until(lambda: (cell := crowd.measured()) and cell.users == 5)
    assert crowd.size == 5
    until(lambda: session.engine.num_active == 5)
    crowd.resize(1)
    until(lambda: (cell := crowd.measured()) and cell.users == 1)
    assert crowd.size == 1
    assert session.engine.num_active <= 1
    assert [cell.users for cell in crowd.take_closed()] == [2, 5]
    assert crowd.take_closed() == []


def test_who_leaves_is_cut_off_and_not_waited_for(session, gather):
    crowd = gather(3, sampling=SamplingParams(max_new_tokens=8000))
    until(crowd.measured)
    crowd.resize(1)
    until(lambda: session.engine.num_active == 1)
    until(lambda: (cell := crowd.measured()) and cell.users == 1)


def test_in_a_window_all_its_users_are_served_and_nobody_else(gather):
    crowd = gather(2, sampling=LONG)
    until(crowd.measured)
    crowd.resize(4)
    cell = until(lambda: (it := crowd.measured()) and it.users == 4 and it.wall_s > 0.3 and it)
    late = [a for a in cell.answers if a.commits and a.submitted_s < cell.start_s and a.ended_s is None]
    assert all(a.commits[0].at_s <= cell.start_s for a in late if a.index < 0)
    assert 2 < mean_users(cell) <= 4


def test_stopping_leaves_nobody_behind(session, gather):
    crowd = gather(6, sampling=SamplingParams(max_new_tokens=8000))
    until(lambda: session.engine.num_active == 6)
    crowd.stop()
    assert session.engine.num_active == crowd.size == 0
    assert crowd.over
    crowd.stop()


def test_a_schedule_is_taken_on_by_running_answers_or_refused_for_all(gather):
    crowd = gather(2, sampling=SamplingParams(max_new_tokens=8000))
    until(lambda: any(c.verified == 4 for a in crowd.now().answers for c in a.commits))
    with pytest.raises(ParameterError):
        crowd.steer(ScheduleParams("no such policy"))
    crowd.steer(ScheduleParams("fixed", 0, 1))
    # Those that had ended before keep their old lengths; on a fast machine there are some by now.
    going = lambda: [a for a in crowd.now().answers if a.ended_s is None]  # noqa: E731
    until(lambda: (all_now := going()) and all(a.commits and a.commits[-1].verified == 1 for a in all_now))


def test_an_engine_that_fails_ends_the_crowd_with_the_reason(session, gather, monkeypatch, caplog):
    caplog.set_level("CRITICAL")

    def broken(*_, **__):
        raise RuntimeError("the device fell off")

    monkeypatch.setattr("tests.toy.ToyTarget.forward", broken)
    crowd = gather(3)
    until(lambda: crowd.over)
    assert "the device fell off" in crowd.failure
    assert session.engine.num_active == 0


def run_of(session, parts, seconds, sampling=SAMPLING):
    return LiveRun(session.engine, parts, CASES, sampling, seconds, session.engine.limits.max_active)


def polled(run, check=lambda: True):
    while not run.over and check():
        run.poll()
        time.sleep(0.01)


def test_a_walk_measures_the_method_and_plain_decoding_at_every_number_of_users(session):
    run = run_of(session, walk(FIXED, plain_lane(), [1, 3]), 1.1, replace(LONG, max_new_tokens=30))
    places = []

    def note():
        places.append((run.part.users, run.part.lane.name))
        return True

    polled(run, note)
    assert list(dict.fromkeys(places)) == [(1, "fixed"), (1, "plain"), (3, "plain"), (3, "fixed")]
    assert session.engine.num_active == 0
    cells = {(it["users"], it["lane"]): it for it in run.figures()}
    assert set(cells) == {(1, "fixed"), (1, "plain"), (3, "plain"), (3, "fixed")}
    for (users, lane), cell in cells.items():
        assert cell["window_s"] >= 1.1
        assert cell["throughput_interval"][0] <= cell["throughput"] <= cell["throughput_interval"][1]
        assert cell["budget"] == 1 if lane == "plain" else cell["budget"] > 1
        assert users / 2 < cell["batch"] <= users
    over = cells[3, "fixed"]["over"]["plain"]
    assert over["throughput"] == pytest.approx(cells[3, "fixed"]["throughput"] / cells[3, "plain"]["throughput"])


def test_a_run_without_an_end_keeps_what_was_measured_at_each_number_of_users(session):
    run = run_of(session, [Part(2, FIXED)], None)
    until(lambda: run.poll() or run.figures())
    run.resize(4)
    until(lambda: run.poll() or len(run.figures()) == 2)
    moment = run.moment()
    assert moment["users"] == 4
    assert moment["throughput"] > 0
    assert moment["budget"] > 1
    run.stop()
    assert [it["users"] for it in run.figures()] == [2, 4]
    assert run.over
    assert not run.failure
    assert session.engine.num_active == 0


def test_another_schedule_is_measured_under_its_own_name(session):
    run = run_of(session, [Part(2, FIXED)], None)
    until(lambda: run.poll() or run.figures())
    run.steer(lane_named("fixed@1", "dspark", SCHEDULE))
    until(lambda: run.poll() or len(run.figures()) == 2)
    run.stop()
    budgets = {it["lane"]: it["budget"] for it in run.figures()}
    assert budgets["fixed"] > budgets["fixed@1"]
    assert 1 < budgets["fixed@1"] <= 2


def test_a_visitor_is_served_beside_the_users(session):
    run = run_of(session, [Part(4, FIXED)], None)
    until(lambda: session.engine.num_active == 4)
    request = GenerationRequest((1, 2), SamplingParams(max_new_tokens=40), SCHEDULE, "dspark")
    events = list(session.engine.submit(request))
    assert events[-1].finish_reason == "length"
    assert not any(event.type == "waiting" for event in events)
    run.stop()


def test_the_last_places_stay_free_for_visitors():
    assert most_users(36, 65_536, 8192, 512) == 32
    assert most_users(32, 65_536, 8192, 512) == 28
    assert most_users(2, 65_536, 8192, 512) == 1
    assert most_users(1, 65_536, 8192, 512) == 0
    assert most_users(36, 10_000, 8192, 512) == 3, "a visitor's whole context stays free"
    check_users(28, 28, 32)
    for users in (0, 29):
        with pytest.raises(ParameterError, match="from 1 to 28"):
            check_users(users, 28, 32)


def cell_of(*answers):
    return CellTrace(len(answers), 0.0, 10.0, tuple(answers))


def of_batch(at_s, size, verified, seconds=(1.0, 0.5, 4.5), energy_j=None):
    return Commit(at_s, 1, verified, 0, *seconds, size / 8, energy_j)


def test_means_are_over_rounds_however_many_answers_tell_of_them():
    alone = answer(0, 0.0, [of_batch(1.0, 1, 3, (0.0, 0.0, 1.0))])
    pair = [answer(i, 0.0, [of_batch(2.0, 2, 3, (0.0, 0.0, 2.0))]) for i in (1, 2)]
    found = passes(cell_of(alone, *pair), 8)
    assert found.batch == pytest.approx(1.5)
    assert found.tokens == pytest.approx(1.5 * 4)
    assert found.seconds == pytest.approx(1.5)
    assert passes(cell_of(answer(0, 0.0, [commit(1.0)])), 8) is None, "these rounds tell no occupancy"


def test_energy_is_counted_between_the_first_and_the_last_round():
    rounds = [of_batch(float(at), 1, 0, energy_j=100.0 + 6 * at) for at in (1, 2, 3)]
    assert joules_per_token(cell_of(answer(0, 0.0, rounds))) == pytest.approx(6)
    assert joules_per_token(cell_of(answer(0, 0.0, [commit(1.0), commit(2.0)]))) is None
    still = [of_batch(float(at), 1, 0, energy_j=5.0) for at in (1, 2, 3)]
    assert joules_per_token(cell_of(answer(0, 0.0, still))) is None
