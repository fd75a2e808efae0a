"""The handlers as direct calls meet them: nothing that is sent crashes, leaks or leaves the engine busy."""

import json
import math
import time
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from dspark_core.params import LOAD_SIGNALS, PRESETS
from tests.ui.fake_session import FakeSession
from tests.ui.pages import in_a_loop
from ui.answering import MAX_YIELDS_PER_S, Answering
from ui.host import SessionHost
from ui.inputs import SCHEDULE_CONTROLS
from ui.layout import LOAD_NAMES, build_layout
from ui.page import Wiring
from ui.tabs import page_tabs
from ui.visitors import Visitors

ME = SimpleNamespace(session_hash="me")
CONTROLS = {
    "system": "", "drafter": "dspark", "policy": "threshold", "l_min": 1, "l_max": 7, "threshold": 0.6,
    "beyond_cut": True, "band_low": 0.6, "band_high": 0.9, "load_signal": "occupancy", "simulated_load": 0.5,
    "temperature": 0, "top_p": 1, "max_tokens": 60, "seed": "",
    "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0,
    "inspect": True,
}  # fmt: skip


class Desk:
    """Handlers over a scripted session, without a server."""

    def __init__(self, pace_s=0.0):
        self.session = FakeSession(pace_s)
        self.host = SessionHost(lambda _: self.session, "fake")
        self.visitors = Visitors()
        in_a_loop(self._build)
        self.answering = Answering(self.host, self.visitors, self.parts)
        self.host._session = self.session

    def _build(self):
        with gr.Blocks(analytics_enabled=False):
            self.parts = build_layout(page_tabs())
            self.wiring = Wiring(self.host, self.visitors, self.parts, gr.Timer(1))

    def send(self, prompt="tell me", history=(), request=ME, **changed):
        controls = {**CONTROLS, **changed}
        return self.answering.send(prompt, list(history), request, *controls.values())

    def reschedule(self, request=ME, **changed):
        controls = {**CONTROLS, "l_min": 0, "l_max": 2, "threshold": 0.1, **changed}
        return json.loads(self.wiring.reschedule(request, *(controls[name] for name in SCHEDULE_CONTROLS)))

    def notice(self, changes):
        return json.loads(changes[self.parts.notice])


@pytest.fixture
def desk():
    return Desk()


def test_an_answer_streams_and_ends_with_its_history(desk):
    yields = list(desk.send())
    last = yields[-1]
    assert [turn["role"] for turn in last[desk.parts.history]] == ["user", "assistant"]
    assert json.loads(last[desk.parts.answer])["full"]
    assert len(desk.visitors) == 0


def test_an_answer_that_a_new_chat_ends_leaves_an_empty_page_whose_send_can_be_pressed(desk):
    desk.session.engine.pace_s = 0.05
    going = desk.send(max_tokens=2000)
    assert desk.parts.stop in next(going)
    changes = desk.wiring.new_chat(ME)
    assert desk.parts.send not in changes
    last = list(going)[-1]
    assert last[desk.parts.history] == []
    assert last[desk.parts.send]["interactive"]
    assert not last[desk.parts.stop]["interactive"]
    assert len(desk.visitors) == 0
    assert desk.wiring.new_chat(ME)[desk.parts.send]["interactive"]


def test_a_message_that_a_new_chat_overtakes_is_not_answered_and_stays(desk):
    begin = desk.visitors.begin

    def overtaken(*values):
        desk.wiring.new_chat(ME)
        begin(*values)

    desk.visitors.begin = overtaken
    (changes,) = desk.send()
    assert "send it again" in desk.notice(changes)["text"]
    assert desk.parts.prompt not in changes
    assert desk.session.engine.submitted[-1].cancelled.is_set()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"prompt": "  "}, "empty"),
        ({"prompt": None}, "empty"),
        ({"prompt": 7}, "must be text"),
        ({"prompt": "x" * 100_000}, "Start a new chat"),
        ({"l_min": 6, "l_max": 3}, "l_min must not be above l_max"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"beyond_cut": None}, "beyond the cut"),
        ({"policy": "nope"}, "nope"),
        ({"policy": None}, "policy"),
        ({"band_low": 0.95}, "band_low must not be above band_high"),
        ({"band_high": None}, "upper band is empty"),
        ({"load_signal": "moon"}, "load signal is 'moon'"),
        ({"load_signal": ["device"]}, "load signal"),
        ({"simulated_load": 7}, "simulated_load is 7"),
        ({"drafter": "nope"}, "nope"),
        ({"drafter": ["dspark"]}, "drafter"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": None}, "Max tokens is empty"),
        ({"min_p": 2}, "min_p is 2"),
        ({"repetition_penalty": None}, "The repetition penalty is empty"),
        ({"presence_penalty": 3}, "presence_penalty is 3"),
        ({"frequency_penalty": "x"}, "The frequency penalty is 'x'"),
        ({"seed": "x"}, "seed"),
        ({"system": {"a": 1}}, "system prompt"),
        ({"inspect": "yes"}, "Collect the laws"),
    ],
)
def test_bad_input_is_answered_with_a_clear_word_and_the_engine_stays_idle(desk, sent, words):
    changes = list(desk.send(**sent))
    assert len(changes) == 1
    message = desk.notice(changes[0])
    assert message["level"] == "error"
    assert words in message["text"]
    assert desk.session.engine.submitted == []


def test_before_the_model_is_ready_the_message_stays(desk):
    desk.host._session = None
    (changes,) = desk.send()
    assert "not ready" in desk.notice(changes)["text"]
    assert desk.parts.prompt not in changes


def test_closing_the_generator_frees_the_engine_within_a_round():
    desk = Desk(0.05)
    answer = desk.send()
    next(answer)
    next(answer)
    assert desk.session.engine.num_active == 1
    answer.close()
    time.sleep(0.3)
    assert desk.session.engine.num_active == 0
    assert len(desk.visitors) == 0


def test_a_second_answer_of_the_same_visitor_is_refused_while_one_runs():
    desk = Desk(0.05)
    first = desk.send()
    next(first)
    (refused,) = desk.send("again")
    assert "Press Stop first" in desk.notice(refused)["text"]
    (stranger, *_) = desk.send("hello", request=SimpleNamespace(session_hash="you", x=1), max_tokens=1)
    assert desk.parts.answer in stranger
    first.close()


def test_drawing_is_paced_and_loses_no_event():
    desk = Desk(0.01)
    begun = time.monotonic()
    yields = list(desk.send(max_tokens=400))
    seconds = time.monotonic() - begun
    # One more at each end, and those between begin at once, of which one may come half a period early.
    assert len(yields) <= 2 + seconds * MAX_YIELDS_PER_S + 1.5
    last = json.loads(yields[-1][desk.parts.answer])
    assert [part["i"] for part in last["rounds"]] == list(range(last["total"]))


def test_an_engine_error_is_told_and_the_next_answer_runs(desk):
    desk.session.engine.fail_at = 3
    last = list(desk.send())[-1]
    assert "scripted failure" in desk.notice(last)["text"]
    desk.session.engine.fail_at = None
    assert "error" not in str(desk.notice(next(iter(desk.send()))))


def test_a_fault_of_ours_is_told_without_its_inside(desk, monkeypatch):
    def broken(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(desk.session, "request", broken)
    (changes,) = desk.send()
    assert "RuntimeError" in desk.notice(changes)["text"]
    assert "secret" not in desk.notice(changes)["text"]


def test_an_engine_that_is_full_says_so(desk):
    desk.session.engine._max_active = 0
    (changes,) = desk.send()
    assert "Try again in a moment" in desk.notice(changes)["text"]


def test_regenerate_drops_the_last_answer_and_needs_a_message(desk):
    (nothing,) = desk.answering.regenerate([], ME, *CONTROLS.values())
    assert "no message" in desk.notice(nothing)["text"]
    history = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "old"}]
    last = list(desk.answering.regenerate(history, ME, *CONTROLS.values()))[-1]
    assert last[desk.parts.history][0] == history[0]
    assert last[desk.parts.history][1]["content"] != "old"


def test_sliders_steer_the_running_answer_and_refuse_what_is_crossed():
    desk = Desk(0.05)
    answer = desk.send()
    next(answer)
    note = desk.reschedule()
    assert note["level"] == "info"
    assert "running answer" in note["text"]
    crossed = desk.reschedule(l_min=5)
    assert crossed["level"] == "error"
    unknown = desk.reschedule(policy="nope")
    assert unknown["level"] == "error"
    strangers = desk.reschedule(SimpleNamespace(session_hash="you"), l_max=1)
    assert "next answer" in strangers["text"]
    schedule = desk.session.engine.submitted[0].schedule
    assert (schedule.l_min, schedule.l_max, schedule.stop_early) == (0, 2, False)
    note = desk.reschedule(beyond_cut=False)
    assert "drafting ends at the cut" in note["text"]
    assert desk.session.engine.submitted[0].schedule.stop_early
    answer.close()


def test_bands_and_load_signal_bind_the_running_answer_and_a_simulated_load_is_called_so():
    desk = Desk(0.05)
    answer = desk.send(policy="banded", load_signal="device")
    next(answer)
    running = desk.session.engine.submitted[0]
    assert (running.schedule.policy, running.schedule.load_signal) == ("banded", "device")
    note = desk.reschedule(policy="banded", band_low=0.3, load_signal="simulated", simulated_load=0.8)
    assert (running.schedule.band_low, running.schedule.load_signal) == (0.3, "simulated")
    assert running.schedule.simulated_load == 0.8
    assert "bands 0.30 to 0.90, simulated load 0.80" in note["text"]
    assert note["shown"] == {"policy": "banded", "load_signal": "simulated"}
    crossed = desk.reschedule(policy="banded", band_low=0.95)
    assert (crossed["level"], crossed["shown"]["policy"]) == ("error", "banded")
    assert running.schedule.band_low == 0.3
    assert "bands" not in desk.reschedule()["text"]
    answer.close()


def test_the_page_offers_every_load_signal():
    assert tuple(LOAD_NAMES.values()) == LOAD_SIGNALS


@pytest.mark.parametrize("beyond_cut", [True, False])
def test_what_the_checkbox_says_goes_with_the_answer_and_presets_leave_it(beyond_cut):
    desk = Desk(0.05)
    answer = desk.send(beyond_cut=beyond_cut)
    next(answer)
    running = desk.session.engine.submitted[0]
    assert running.schedule.stop_early is not beyond_cut
    desk.wiring.preset(PRESETS[0], beyond_cut, ME)
    assert running.schedule == replace(PRESETS[0].schedule, l_max=7, stop_early=not beyond_cut)
    answer.close()


def test_status_is_plain_json_in_every_phase(desk):
    desk.host._session = None
    assert json.loads(desk.wiring.status())["phase"] == "loading"
    desk.host._session = desk.session
    status = json.loads(desk.wiring.status())
    assert status["info"][3] == 7
    assert status["load"][1] == "cpu"
    assert status["load"][-4:] == [None, 0.0, 0.9, None]
    assert status["step_curve"] == "not profiled: scripted"


def test_every_visitor_gets_the_controls_fitted_whatever_gradio_does_to_an_update(desk):
    request = SimpleNamespace(query_params={}, session_hash="me")
    for _ in range(2):
        fitted = desk.wiring.configure(request)[desk.parts.l_max]
        assert (fitted.pop("maximum"), fitted.pop("value")) == (7, 7)
