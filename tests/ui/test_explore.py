"""Explore's handlers over the scripted session: direct calls meet them too, and a sweep never outlives its visitor."""

import json
import time
from types import SimpleNamespace

import pytest

from dspark_core.sweep.read import MAX_CHARACTERS, read_report
from tests.ui.fake_session import FakeSession
from ui.explore.asked import MAX_ANSWERS, MAX_PROMPTS
from ui.explore.desk import Desk
from ui.explore.sweeps import MAX_WAITING
from ui.host import SessionHost

ME, OTHER = SimpleNamespace(session_hash="me"), SimpleNamespace(session_hash="other")
ASK = {"axes": {"threshold": "0,0.6"}, "prompts": "tell me\nand me", "tokens": 12, "repeats": 1}
ROW = {
    "drafter": "dspark", "policy": "threshold", "gamma": 7, "l_min": 0, "l_max": 5, "threshold": 0, "temperature": 0.5,
}  # fmt: skip


@pytest.fixture
def session():
    return FakeSession(0.002)


@pytest.fixture
def desk(session):
    host = SessionHost(lambda _: session, "fake")
    host._session = session
    made = Desk(host)
    yield made
    for visitor in ("me", "other"):
        made.sweeps.stop(visitor)
    end = time.monotonic() + 10
    while len(made.sweeps) and time.monotonic() < end:
        time.sleep(0.02)
    assert len(made.sweeps) == 0, "a sweep outlived its visitor"


def idle(engine):
    """Whether the engine has nothing to do any more, a round later."""
    end = time.monotonic() + 5
    while engine.num_active and time.monotonic() < end:
        time.sleep(0.02)
    return engine.num_active == 0


def started(desk, request=ME, **changed):
    return (json.loads(message) for message in desk.start(json.dumps({**ASK, **changed}), request))


def test_a_sweep_tells_its_rows_as_they_come_and_ends_with_its_report(desk, session):
    messages = list(started(desk, axes={"threshold": "0,0.6", "l_min": "0,9"}))
    first, *_, last = messages
    assert first["points"] == 2
    assert len(first["left_out"]) == 2
    assert all("L_max" in it["reason"] or "l_min" in it["reason"] for it in first["left_out"])
    assert last["state"] == "done"
    assert [message["seq"] for message in messages] == sorted({message["seq"] for message in messages})
    assert [row["threshold"] for row in last["report"]["rows"]] == [0, 0.6]
    assert last["report"]["settings"]["prompts"] == {"own prompts": 2}
    assert read_report(json.dumps(last["report"]))["rows"][0]["ratio"] == last["report"]["rows"][0]["ratio"]
    assert len(last["csv"].splitlines()) == 3
    assert idle(session.engine)
    plain = [request for *_, request in session.requests if request == "none"]
    assert len(plain) >= 2, "plain decoding is run, not estimated"


def test_a_sweep_stopped_half_way_keeps_what_is_done(desk, session):
    session.engine.pace_s = 0.02
    messages = []
    for message in started(desk, axes={"threshold": "0:0.9:0.1"}):
        messages.append(message)
        if message.get("done", 0) >= 4:
            desk.stop(ME)
    last = messages[-1]
    assert last["state"] == "stopped"
    assert last["report"]["partial"]
    assert 0 < len(last["report"]["rows"]) < 10
    assert idle(session.engine)


def test_closing_the_stream_or_leaving_the_page_frees_the_engine(desk, session):
    session.engine.pace_s = 0.05
    stream = started(desk, tokens=512)
    next(stream)
    messages = desk.start(json.dumps({**ASK, "tokens": 512}), OTHER)
    assert json.loads(next(messages))["state"] == "waiting"
    desk.leave(ME)
    list(stream)
    while (told := json.loads(next(messages)))["state"] == "waiting":
        pass
    assert told["state"] == "running", "the next in the line has its turn"
    messages.close()
    assert idle(session.engine)


def test_a_visitor_has_one_sweep_and_the_line_has_an_end(desk, session):
    session.engine.pace_s = 0.05
    stream = started(desk, tokens=512)
    next(stream)
    (refused,) = started(desk)
    assert "still runs" in refused["error"]
    waiting = [desk.start(json.dumps(ASK), SimpleNamespace(session_hash=f"w{n}")) for n in range(MAX_WAITING)]
    for other in waiting:
        assert json.loads(next(other))["state"] == "waiting"
    (refused,) = started(desk, OTHER)
    assert "run or wait" in refused["error"]
    for other in waiting:
        other.close()
    stream.close()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"axes": {"threshold": "x"}}, "threshold"),
        ({"axes": {"threshold": 3}}, "each with a text"),
        ({"axes": {"evil": "1"}}, "axes are"),
        ({"axes": []}, "axes"),
        ({"tokens": 0}, "tokens"),
        ({"tokens": 10**9}, "tokens"),
        ({"repeats": "2"}, "repeats"),
        ({"prompts": "", "sets": []}, "no prompt"),
        ({"prompts": "", "sets": ["../../etc"]}, "no prompt set"),
        ({"prompts": "p\n" * (MAX_PROMPTS + 1)}, "prompts"),
        ({"prompts": 7}, "prompts"),
        ({"prompts": "x" * 5000}, "Prompt 1"),
        ({"axes": {"threshold": "0:1:0.02", "l_max": "1:5"}, "prompts": "p\n" * 20, "repeats": 10}, f"{MAX_ANSWERS:,}"),
        ({"axes": {"drafter": "<img src=x>"}}, "no drafter named"),
    ],
)
def test_what_is_asked_wrongly_is_refused_with_the_way_out(desk, changed, said):
    (message,) = started(desk, **changed)
    assert message["state"] == "refused"
    assert said in message["error"]


@pytest.mark.parametrize("text", [None, "", "[]", "{", "[" * 100_000, 7])
def test_no_json_is_refused(desk, text):
    for message in (*desk.start(text, ME), desk.open(text), desk.apply(text)[0]):
        assert json.loads(message)["state"] == "refused"


def test_a_recorded_sweep_is_opened_as_recorded_and_hostile_text_stays_inert(desk):
    *_, last = started(desk)
    report = last["report"] | {"model": "</script><script>alert(1)</script>"}
    message = desk.open(json.dumps({"file": json.dumps(report)}))
    assert "<" not in message
    told = json.loads(message)
    assert told["state"] == "recorded"
    assert told["report"]["model"].startswith("</script>")
    broken = json.loads(desk.open(json.dumps({"file": '{"kind": "other"}'})))
    assert "holds no sweep" in broken["error"]


def test_every_sweep_that_the_reader_takes_can_be_opened(desk):
    *_, last = started(desk)
    left = {**ROW, "reason": 'of "these" too many'}
    long = json.dumps(last["report"] | {"left_out": [left] * 4096})
    long += " " * (MAX_CHARACTERS - len(long))
    told = json.loads(desk.open(json.dumps({"file": long})))
    assert told["state"] == "recorded"
    assert len(told["report"]["left_out"]) == 4096
    told = json.loads(desk.open(json.dumps({"file": long + " "})))
    assert "at most 2,000,000 are read" in told["error"]


def test_a_row_becomes_the_controls_of_chat(desk):
    message, *values = desk.apply(json.dumps(ROW))
    assert json.loads(message)["applied"].startswith("dspark, threshold")
    assert values == ["dspark", "threshold", 0, 5, 0.0, 0.5, False]


@pytest.mark.parametrize(
    "changed",
    [{"drafter": "other"}, {"policy": "prefix"}, {"l_max": 9}, {"l_min": 6}, {"threshold": 2}, {"temperature": None}],
)
def test_a_row_of_another_model_is_not_applied(desk, changed):
    message, *values = desk.apply(json.dumps({**ROW, **changed}))
    assert json.loads(message)["state"] == "refused"
    assert len(values) == 7


def test_before_the_model_is_ready_the_visitor_is_told():
    desk = Desk(SessionHost(lambda _: None, "fake"))
    (message,) = started(desk)
    assert "not ready" in message["error"]
