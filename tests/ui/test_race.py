"""Races as direct calls meet them: what is told, what is refused, and that nothing is left running."""

import json
import re
import time
from types import SimpleNamespace

import gradio as gr
import pytest

from dspark_core.bench.duel import MAX_LANES
from tests.ui.fake_session import FakeSession
from tests.ui.pages import in_a_loop
from ui.address import Address
from ui.host import SessionHost
from ui.layout import build_layout
from ui.page import QUIET
from ui.race import Race
from ui.race.offers import first_choice, offered_lanes
from ui.tab import Deck
from ui.visitors import Visitors

ME = SimpleNamespace(session_hash="me")
ASKED = {
    "prompt": "tell me", "lanes": ["plain", "dspark+threshold@0.6", "dflash+fixed@2"], "temperature": 0,
    "max_tokens": 24, "seed": "7", "repeats": 1,
}  # fmt: skip


class Stand:
    """The tab over a scripted session, without a server."""

    def __init__(self, pace_s=0.0):
        self.session = FakeSession(pace_s)
        self.host = SessionHost(lambda _: self.session, "fake")
        self.tab = Race()
        in_a_loop(self._build)
        self.host._session = self.session

    def _build(self):
        with gr.Blocks(analytics_enabled=False) as demo:
            parts = build_layout([self.tab])
            self.deck = Deck(demo, self.host, Visitors(), parts, QUIET, {}, Address(("chat", "race")))
            self.tab.connect(self.deck)

    def start(self, request=ME, **changed):
        return self.tab.start(*{**ASKED, **changed}.values(), request)

    def messages(self, **changed):
        return [self.read(changes) for changes in self.start(**changed)]

    def read(self, changes):
        return json.loads(changes[self.tab._feed])


@pytest.fixture
def stand():
    return Stand()


def test_a_race_is_told_lap_by_lap_and_ends_with_the_whole_report(stand):
    told = stand.messages(repeats=3)
    assert {message["race"] for message in told} == {told[0]["race"]}
    assert [message["seq"] for message in told] == list(range(1, len(told) + 1))
    counts = [sum(len(lane["laps"]) for lane in m["report"]["lanes"]) for m in told if "report" in m]
    assert counts == sorted(counts)
    last = told[-1]
    assert last["state"] == "done"
    assert last["about"] | {"energy_note": ""} == {
        "prompt": "tell me", "temperature": 0, "max_tokens": 24, "seed": "7", "repeats": 3, "model": "fake-target",
        "device": "CPU (scripted)", "dtype": "float32", "energy_note": "", "lanes": ASKED["lanes"],
    }  # fmt: skip
    for lane in last["report"]["lanes"]:
        assert len(lane["laps"]) == 3
        assert lane["track"][-1][1] == 24
    assert [lane["sameness"] and lane["sameness"]["verdict"] for lane in last["report"]["lanes"]] == [
        None, "same", "same",
    ]  # fmt: skip
    assert {g.request.sampling.seed for g in stand.session.engine.submitted} == {7}
    assert len(stand.tab.racing) == 0


def test_without_a_seed_all_lanes_get_the_same_new_one(stand):
    seeds = {stand.messages(seed="")[-1]["about"]["seed"] for _ in range(2)}
    used = {str(g.request.sampling.seed) for g in stand.session.engine.submitted}
    assert used == seeds
    assert len(used) == 2


def test_texts_that_part_are_told_with_the_gap_by_an_extra_pass(stand):
    stand.session.engine.parts = {"dflash": 9}
    same, differs = stand.messages()[-1]["report"]["lanes"][1:]
    assert same["sameness"]["verdict"] == "same"
    assert (differs["sameness"]["verdict"], differs["sameness"]["tokens"]) == ("differs", 9)
    assert differs["gap"]["gap"] == pytest.approx(1.3863, abs=1e-4)
    assert differs["gap"]["ours"] != differs["gap"]["theirs"] != ""


def test_at_a_temperature_nothing_is_compared(stand):
    lanes = stand.messages(temperature=0.7)[-1]["report"]["lanes"]
    assert [lane["sameness"] for lane in lanes] == [None] * 3
    assert all(lane["track"] for lane in lanes)


def test_a_lane_that_fails_shows_its_own_error_and_the_others_go_on(stand):
    stand.session.engine.fails = ("dflash",)
    plain, dspark, dflash = stand.messages()[-1]["report"]["lanes"]
    assert "scripted failure" in dflash["error"]
    assert "track" not in dflash
    assert plain["track"]
    assert dspark["ratio"]


def test_a_lane_that_the_session_refuses_says_why_and_the_others_go_on(stand):
    told = stand.messages(lanes=["plain", "dspark+delayed"])[-1]["report"]["lanes"]
    assert "delayed" in told[1]["error"]
    assert told[0]["track"]


@pytest.mark.parametrize(
    ("lane", "words"),
    [
        ("lm+fixed@4", r"lm\+fixed@4.* cannot run here.*drafter 'lm'"),
        ("dspark+delayed", r"cannot run here.*'delayed'"),
        ("warp", "no lane named 'warp'"),
    ],
)
def test_a_lane_that_cannot_run_here_is_refused_by_name_when_it_is_chosen(stand, lane, words):
    changes = stand.tab.chosen(["plain", lane, "fixed@2"])
    assert re.search(words, stand.read(changes)["text"])
    assert changes[stand.tab._lanes]["value"] == ["plain", "fixed@2"]
    assert stand.tab.chosen(["plain", "fixed@2"]) == {stand.tab._feed: gr.skip()}
    values, problems = stand.deck.address.read({"race_lanes": f"plain,{lane}"}, stand.tab.fit(stand.session))
    assert values == {}
    assert re.search(words, " ".join(problems))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"prompt": "  "}, "empty"),
        ({"prompt": "x" * 100_000}, "The conversation has"),
        ({"lanes": ["plain"]}, "1 lane is chosen"),
        ({"lanes": ["plain", "plain"]}, "twice"),
        ({"lanes": ["plain", "warp"]}, "no lane named"),
        ({"lanes": "plain"}, "list of names"),
        ({"lanes": None}, "list of names"),
        ({"lanes": [1, 2]}, "list of names"),
        ({"lanes": ["plain", "fixed@1", "fixed@2", "fixed@3", "fixed@4"]}, f"2 to {MAX_LANES}"),
        ({"temperature": None}, "temperature is empty"),
        ({"max_tokens": 513}, "at most 512"),
        ({"max_tokens": 0}, "max_new_tokens is 0"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"repeats": 9}, "repeats is 9"),
        ({"repeats": None}, "repeats is empty"),
    ],
)
def test_what_makes_no_race_is_refused_with_the_way_out(stand, changed, words):
    (message,) = stand.messages(**changed)
    assert message["state"] == "refused"
    assert words in message["text"]
    assert stand.session.engine.submitted == []


def test_before_the_model_is_there_a_race_is_refused(stand):
    stand.host._session = None
    (message,) = stand.messages()
    assert "not ready" in message["text"]


def test_a_visitor_has_one_race_and_another_visitor_his_own():
    stand = Stand(0.02)
    mine = stand.start()
    next(mine)
    second = next(stand.start())
    assert "still runs" in stand.read(second)["text"]
    assert stand.tab._stop not in second  # the race that runs can still be stopped
    other = stand.start(SimpleNamespace(session_hash="you"))
    next(other)
    assert len(stand.tab.racing) == 2
    mine.close()
    other.close()
    assert len(stand.tab.racing) == 0


def test_stop_keeps_what_is_done_and_only_stops_ones_own():
    stand = Stand(0.02)
    race = stand.start(max_tokens=60)
    told = []
    for changes in race:
        told.append(stand.read(changes))
        stand.tab.stop(SimpleNamespace(session_hash="you"))
        now = told[-1]["now"]
        if now and now["phase"] == "running" and now["lane"] == ASKED["lanes"][1] and now["tokens"]:
            stand.tab.stop(ME)
    last = told[-1]
    assert last["state"] == "stopped"
    assert last["report"]["lanes"][0]["figures"]["tokens"] == 60
    assert last["report"]["lanes"][1]["finish"] == "cancelled"
    assert last["report"]["lanes"][2]["laps"] == []
    assert stand.session.engine.num_active == 0


@pytest.mark.parametrize("how", ["closed", "left"])
def test_leaving_frees_the_engine(how):
    stand = Stand(0.02)
    race = stand.start(max_tokens=500)
    next(race)
    if how == "closed":
        race.close()
    else:
        stand.tab.leave(ME)
        list(race)
    deadline = time.monotonic() + 5
    while stand.session.engine.num_active and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stand.session.engine.num_active == 0
    assert len(stand.tab.racing) == 0


def test_messages_are_inert_as_markup(stand):
    for changes in stand.start(prompt="hostile <b>"):
        assert "<" not in changes[stand.tab._feed]


def test_offered_are_lanes_that_the_session_takes_and_the_first_choice_is_a_race(stand):
    offered = offered_lanes(stand.session)
    assert offered[0] == "plain"
    assert {name.rpartition("+")[2].partition("@")[0] for name in offered[1:]} == set(stand.session.info.policies)
    chosen = first_choice(offered)
    assert set(chosen) <= set(offered)
    assert 2 <= len(chosen) <= MAX_LANES
    assert stand.messages(lanes=chosen)[-1]["state"] == "done"


def test_the_lanes_are_offered_once_the_session_is_there(stand):
    ((components, fit),) = stand.deck.fits
    changes = fit(stand.session)
    assert changes[stand.tab._lanes]["value"][0] == "plain"
    assert set(changes) == set(components)
