"""The session's host: opens in the background, says how far it is, measures plain decoding when idle."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dspark_core.errors import CheckpointError, ResourceError
from dspark_core.params import SamplingParams, ScheduleParams
from tests.ui.fake_session import FakeSession
from ui.host import BASELINE_TOKENS, SessionHost


def until(check, seconds=10.0):
    end = time.monotonic() + seconds
    while not check() and time.monotonic() < end:
        time.sleep(0.01)
    return check()


@pytest.fixture
def host():
    hosts = []

    def make(opener):
        hosts.append(SessionHost(opener, "fake"))
        hosts[-1].start()
        return hosts[-1]

    yield make
    for made in hosts:
        made.close()


def test_progress_is_told_and_the_session_comes(host):
    go = threading.Event()

    def opener(progress):
        progress("fetching", 0.5)
        go.wait(5)
        return FakeSession(0.0)

    opening = host(opener)
    assert until(lambda: opening.state.stage == "fetching")
    assert opening.session is None
    go.set()
    assert until(lambda: opening.state.phase == "ready")
    assert opening.session is not None


def test_plain_decoding_is_measured_without_its_warm_up(host):
    session = FakeSession(0.0)
    ready = host(lambda _: session)
    assert until(lambda: ready.baseline[0] is not None)
    baseline, note = ready.baseline
    assert note == ""
    assert baseline.figures.tokens == BASELINE_TOKENS
    assert baseline.figures.drafted == 0
    assert [request[3] for request in session.requests] == ["none", "none"]


def test_a_measurement_beside_another_answer_is_thrown_away_and_repeated(host):
    session = FakeSession(0.02)
    ready = host(lambda _: session)
    assert until(lambda: session.engine.num_active == 1)
    request = session.request(
        [{"role": "user", "content": "x"}], SamplingParams(max_new_tokens=64), ScheduleParams(), "dspark"
    )
    answer = session.engine.submit(request)
    assert until(lambda: "idle moment" in ready.baseline[1])
    assert ready.baseline[0] is None
    answer.cancel()
    assert until(lambda: ready.baseline[0] is not None)


def test_no_measurement_begins_in_the_pauses_of_what_runs(host):
    session = FakeSession(0.01)
    message = [{"role": "user", "content": "lap"}]
    lap = session.request(message, SamplingParams(max_new_tokens=2), ScheduleParams(), "dspark")
    running = session.engine.submit(lap)
    ready = host(lambda _: session)
    for _ in range(15):  # laps of a race, with pauses between them
        assert until(lambda: session.engine.num_active == 0)
        time.sleep(0.1)
        assert session.engine.submitted[-1] is running
        running = session.engine.submit(lap)
    assert until(lambda: ready.baseline[0] is not None)


def test_an_error_is_shown_and_opening_can_be_tried_again(host):
    tries = []

    def opener(_progress):
        tries.append(1)
        if len(tries) == 1:
            raise ResourceError("The disk is full. Free 300 MB.")
        return FakeSession(0.0)

    opening = host(opener)
    assert until(lambda: opening.state.phase == "failed")
    assert opening.state.stage == "The disk is full. Free 300 MB."
    opening.start()
    assert until(lambda: opening.state.phase == "ready")


def test_errors_do_not_tell_where_the_server_keeps_its_files(host):
    root = Path(__file__).resolve().parents[2]

    def opener(_progress):
        raise CheckpointError(f"{root / 'dspark_core' / 'checkpoints'} holds no drafter.")

    opening = host(opener)
    assert until(lambda: opening.state.phase == "failed")
    assert str(root) not in opening.state.stage
    assert opening.state.stage.startswith("dspark_core")


def test_a_baseline_that_fails_is_said_and_can_be_asked_for_again(host, monkeypatch):
    session = FakeSession(0.0)
    request = session.request

    def broken(*_):
        raise RuntimeError("no luck")

    monkeypatch.setattr(session, "request", broken)
    ready = host(lambda _: session)
    assert until(lambda: "no luck" in ready.baseline[1])
    monkeypatch.setattr(session, "request", request)
    ready.want_baseline()
    assert until(lambda: ready.baseline[0] is not None)


def test_closing_does_not_wait_for_what_is_opened_and_gives_it_back_once_it_is():
    session, go = FakeSession(0.0), threading.Event()
    host = SessionHost(lambda _: go.wait(30) and session, "fake")
    host.start()
    begun = time.monotonic()
    assert not host.close()
    assert time.monotonic() - begun < 10
    go.set()
    assert until(lambda: session.closed)
    assert host.session is None
    assert host.close()


def test_closing_gives_the_session_back():
    session = FakeSession(0.0)
    host = SessionHost(lambda _: session, "fake")
    host.start()
    assert until(lambda: host.session is not None)
    host.close()
    assert session.closed


class Unprofiled(FakeSession):
    """Its first measurement is disturbed, its second fails, or goes on until the host is closed."""

    def __init__(self, *outcomes):
        super().__init__(0.0)
        self.outcomes = list(outcomes)
        self.budgets = []

    def measure_steps(self, budget_s, progress):
        self.budgets.append(budget_s)
        progress("Measuring step times: 0:20 left", 0.1)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        while outcome is None:
            progress("Measuring step times: 0:19 left", 0.2)
            time.sleep(0.01)
        if outcome:
            self.info = replace(self.info, step_times=((1, 0.1), (2, 0.1)))
        return outcome


@pytest.mark.parametrize("outcomes", [(True,), (False, True), (ResourceError("no room"),)])
def test_step_times_are_measured_after_the_baseline_until_they_are_there_or_fail(outcomes):
    session = Unprofiled(*outcomes)
    host = SessionHost(lambda _: session, "fake", profile_s=7.0)
    host.start()
    assert until(lambda: session.budgets)
    assert host.baseline[0] is not None
    assert until(lambda: not session.outcomes and host.profile_note == "")
    assert session.budgets == [7.0] * len(outcomes)
    host.close()


@pytest.mark.parametrize("profile_s", [0.0, 7.0])
def test_step_times_are_left_alone_where_they_are_stored_or_not_wanted(profile_s):
    session = Unprofiled()
    if profile_s:
        session.info = replace(session.info, step_times=((1, 0.1), (2, 0.1)))
    host = SessionHost(lambda _: session, "fake", profile_s)
    host.start()
    assert until(lambda: host.baseline[0] is not None)
    assert host.profile_note == ""
    assert session.budgets == []
    host.close()


def test_a_measurement_of_step_times_ends_when_the_host_is_closed():
    session = Unprofiled(None)
    host = SessionHost(lambda _: session, "fake", profile_s=7.0)
    host.start()
    assert until(lambda: "0:19" in host.profile_note)
    assert host.close()
