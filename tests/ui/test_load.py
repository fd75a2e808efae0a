"""The tab Load over the scripted session: one run at a time, steered by its owner alone, gone when it is stopped."""

import json
import time
from itertools import pairwise
from types import SimpleNamespace

import gradio as gr
import pytest

import ui.load.watch
from dspark_core.params import PRESETS
from tests.ui.fake_session import FakeSession
from tests.ui.pages import in_a_loop
from ui.address import Address
from ui.host import SessionHost
from ui.layout import build_layout
from ui.load import Load
from ui.page import QUIET, Wiring
from ui.tab import Deck
from ui.visitors import Visitors

ME, OTHER = SimpleNamespace(session_hash="me"), SimpleNamespace(session_hash="other")
CONTROLS = {
    "users": 3, "drafter": "dspark", "policy": "threshold", "l_min": 0, "l_max": 7, "threshold": 0.6, "temperature": 0,
    "max_tokens": 16, "sets": ["chat", "code"], "seconds": 2, "against_plain": True,
}  # fmt: skip


class Page:
    """The tab without a server."""

    def __init__(self, max_active=36):
        self.session = FakeSession(0.01, max_active=max_active)
        self.host = SessionHost(lambda _: self.session, "fake")
        self.host._session = self.session
        self.tab = Load()
        self.signs = {}
        in_a_loop(self._build)

    def _build(self):
        with gr.Blocks(analytics_enabled=False) as demo:
            parts = build_layout([self.tab])
            visitors = Visitors()
            self.tab.connect(Deck(demo, self.host, visitors, parts, QUIET, self.signs, Address(("chat", "load"))))
            self.wiring = Wiring(self.host, visitors, parts, gr.Timer(1), self.signs)

    def start(self, request=ME, walk=False, **changed):
        ask = self.tab.walk if walk else self.tab.start
        for changes in ask(request, *(CONTROLS | changed).values()):
            yield json.loads(changes[self.tab._feed])

    def steer(self, request=ME, **changed):
        return self.tab.steer(request, *(CONTROLS | changed).values())


@pytest.fixture
def page():
    made = Page()
    yield made
    for owner in ("me", "other"):
        made.tab.desk.end(owner)
    assert made.session.engine.num_active == 0


def reached(stream, check, most=200):
    for _, message in zip(range(most), stream, strict=False):
        if message["kind"] == "load" and check(message):
            return message
    raise AssertionError("never reached")


def test_users_ask_until_they_are_stopped_and_leave_nobody(page):
    stream = page.start()
    message = reached(stream, lambda it: it["cells"])
    assert message["moments"][-1]["users"] == 3
    assert message["moments"][-1]["throughput"] > 0
    assert page.session.engine.num_active <= 3
    page.tab.stop(ME)
    assert page.session.engine.num_active == 0
    rest = list(stream)
    assert rest[-1]["state"] == "stopped"
    assert rest[-1]["cells"][0]["users"] == 3


def test_no_moment_is_told_of_users_who_are_leaving(page, monkeypatch):
    stream = page.start()
    message = reached(stream, lambda it: it["cells"])
    run = page.tab.desk.of("me")
    poll = run.poll

    def stopped_meanwhile():
        poll()
        run.stop()

    monkeypatch.setattr(run, "poll", stopped_meanwhile)
    assert list(stream)[-1]["moments"] == message["moments"]


def test_a_browser_that_goes_away_takes_its_users_along(page):
    stream = page.start()
    reached(stream, lambda it: it["moments"])
    stream.close()
    assert page.session.engine.num_active == 0
    assert page.tab.desk.sign() is None


def test_leaving_the_page_ends_the_run_and_another_visitors_leaving_does_not(page):
    stream = page.start()
    reached(stream, lambda it: it["moments"])
    page.tab.leave(OTHER)
    assert page.tab.desk.sign() == {"users": 3}
    page.tab.leave(ME)
    assert page.session.engine.num_active == 0
    assert list(stream)[-1]["state"] == "stopped"


def test_only_one_run_goes_on_and_others_learn_of_it_but_not_whose_it_is(page):
    stream = page.start()
    reached(stream, lambda it: it["moments"])
    refused = list(page.start(OTHER))
    assert [it["kind"] for it in refused] == ["load_note"]
    assert refused[0]["level"] == "error"
    assert "Another visitor's goes on" in refused[0]["text"]
    status = json.loads(page.wiring.status())
    assert status["load_run"] == {"users": 3}
    page.tab.stop(OTHER)
    page.steer(OTHER, users=1)
    assert page.tab.desk.sign() == {"users": 3}, "who does not own it cannot steer it"
    stream.close()
    assert json.loads(page.wiring.status())["load_run"] is None
    again = page.start(OTHER)
    reached(again, lambda it: it["moments"])
    again.close()


def test_the_number_of_users_and_the_schedule_are_moved_while_they_ask(page):
    stream = page.start()
    reached(stream, lambda it: it["cells"])
    assert json.loads(page.steer(users=6))["text"] == ""
    message = reached(stream, lambda it: any(cell["users"] == 6 for cell in it["cells"]))
    assert {cell["users"] for cell in message["cells"]} == {3, 6}
    page.steer(users=6, l_max=2, threshold=0.1)
    message = reached(stream, lambda it: len({cell["lane"] for cell in it["cells"]}) == 2)
    budgets = {cell["lane"]: cell["budget"] for cell in message["cells"] if cell["users"] == 6}
    assert budgets["dspark, threshold 0–2, threshold 0.1"] <= 3 < budgets["dspark, threshold 0–7, threshold 0.6"]
    refused = json.loads(page.steer(users=33))
    assert refused["level"] == "error"
    assert "The users go on as before." in refused["text"]
    stream.close()


def test_a_walk_measures_every_number_of_users_with_and_without_drafts(page, monkeypatch):
    monkeypatch.setattr("ui.load.asked.WALKED", (1, 2))
    messages = list(page.start(walk=True))
    last = messages[-1]
    assert last["state"] == "done"
    assert {(cell["users"], cell["lane"]) for cell in last["cells"]} == {
        (users, lane) for users in (1, 2) for lane in ("plain", "dspark, threshold 0–7, threshold 0.6")
    }
    assert all(cell["window_s"] >= 2 for cell in last["cells"])
    drafted = [cell for cell in last["cells"] if cell["lane"] != "plain"]
    assert all(cell["over"]["plain"]["throughput"] > 1 for cell in drafted)
    assert all(later["seq"] >= earlier["seq"] for earlier, later in pairwise(messages[1:]))


def test_the_last_places_stay_free_for_visitors():
    page = Page(max_active=8)
    fitted = page.tab.fit(page.session)
    assert fitted[page.tab._users]["maximum"] == 7
    refused = list(page.start(users=8))
    assert "from 1 to 7" in refused[0]["text"]
    stream = page.start(users=7)
    reached(stream, lambda it: it["moments"][-1]["throughput"])
    request = page.session.request([{"role": "user", "content": "me too"}], *_law(), "dspark")
    page.session.engine.submit(request).cancel()
    message = reached(stream, lambda it: it["moments"][-1]["users"] == 7)
    assert message["state"] == "running"
    stream.close()


def _law():
    from dspark_core.params import SamplingParams, ScheduleParams

    return SamplingParams(), ScheduleParams()


def test_a_run_ends_by_itself_after_the_longest_time(page, monkeypatch):
    monkeypatch.setattr(ui.load.watch, "MAX_RUN_S", 0.6)
    begun = time.monotonic()
    assert list(page.start())[-1]["state"] == "stopped"
    assert time.monotonic() - begun >= 0.6


def test_an_answer_that_fails_ends_the_run_with_the_reason(page):
    page.session.engine.fail_at = 3
    last = list(page.start())[-1]
    assert last["state"] == "failed"
    assert "scripted failure" in last["failure"]
    assert page.tab.desk.sign() is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"users": 0}, "from 1 to 32"),
        ({"users": None}, "number of users is empty"),
        ({"users": 2.5}, "whole number"),
        ({"drafter": None}, "Choose a drafter"),
        ({"drafter": "nobody"}, "nobody"),
        ({"policy": "nothing"}, "nothing"),
        ({"l_min": 5, "l_max": 2}, "l_min must not be above l_max"),
        ({"threshold": "much"}, "threshold"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_new_tokens"),
        ({"sets": []}, "at least one set"),
        ({"sets": ["chat", "poems"]}, "poems"),
        ({"sets": "chat"}, "at least one set"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name_and_blocks_nobody(page, changed, said):
    refused = list(page.start(**changed))
    assert [it["level"] for it in refused] == ["error"]
    assert said in refused[0]["text"]
    assert page.tab.desk.sign() is None


@pytest.mark.parametrize("seconds", [0, 61, None, "x", float("nan")])
def test_a_walks_seconds_are_bounded(page, seconds):
    refused = list(page.start(walk=True, seconds=seconds))
    assert "seconds for each step" in refused[0]["text"]


def test_before_the_model_is_ready_nothing_starts(page):
    page.host._session = None
    assert "not ready" in next(iter(page.start()))["text"]
    page.host._session = page.session


def test_presets_keep_within_what_the_drafter_drafts(page):
    changes = page.tab.preset(PRESETS[1])
    assert changes[page.tab._l_max] == 7
    assert "γ = 7" in json.loads(changes[page.tab._feed])["text"]


def test_the_machine_is_told_with_its_curve_and_the_articles_table(page):
    told = json.loads(page.tab.machine())
    assert told["curve"] == []
    assert told["curve_note"] == "not profiled: scripted"
    assert told["published"] == [[1, 9, 51, 100], [10, 50, 100, 200], [51, None, 200, 400]]
