"""The handlers of Calibration and Losslessness over the scripted session: bounds, stop, odd input, inert JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.ui.fake_session import FakeSession
from ui.calibration.collecting import Collecting
from ui.calibration.figures import figures_json
from ui.host import SessionHost
from ui.lab.running import Experiments
from ui.lab.toy import exact_json, toy_messages

VISITOR = SimpleNamespace(session_hash="one")
OTHER = SimpleNamespace(session_hash="two")


def host(pace_s=0.0, **info):
    made = SessionHost(lambda _: None, "fake")
    made._session = FakeSession(pace_s, **info)
    return made


def comparison(
    experiments, texts=100, tokens=2, policy="threshold", temperature=1.0, prompt="tell me", visitor=VISITOR
):
    return experiments.compare(prompt, "dspark", policy, 0.3, temperature, tokens, texts, visitor)


def test_a_comparison_counts_every_text_and_judges_every_view():
    messages = [json.loads(message) for message in comparison(Experiments(host()))]
    last = messages[-1]
    assert last["run"]["state"] == "done"
    assert last["run"]["done"] == [100, 100]
    assert [view["places"] for view in last["views"]] == [[1], [2], [1, 2]]
    for view in last["views"]:
        for lane in (1, 2):
            assert sum(row[lane] for row in view["rows"]) + view["rest"][lane] == 100
        assert view["verdict"][3] == 200


def test_stopped_half_way_what_is_there_is_judged_and_the_place_is_free_again():
    experiments = Experiments(host(0.01))
    run = comparison(experiments, texts=5000)
    next(run)
    experiments.stop(OTHER)  # another visitor's Stop is not this one's
    assert json.loads(next(run))["run"]["state"] == "running"
    (busy,) = comparison(experiments, visitor=OTHER)
    assert "Another visitor" in json.loads(busy)["run"]["text"]
    experiments.stop(VISITOR)
    *_, last = run
    told = json.loads(last)
    assert told["run"]["state"] == "stopped"
    assert told["views"] is not None
    assert json.loads(list(comparison(experiments))[-1])["run"]["state"] == "done"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"texts": 10**9}, "take 100 to"),
        ({"texts": None}, "enter a whole number"),
        ({"tokens": 9}, "compare 1 to 3"),
        ({"temperature": 0}, "temperature is 0"),
        ({"temperature": "hot"}, "enter a number"),
        ({"policy": "retrospective"}, "unknown"),
        ({"policy": ["threshold"]}, "Choose a policy"),
        ({"prompt": "  "}, "message is empty"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused_in_words(change, words):
    (message,) = comparison(Experiments(host()), **change)
    told = json.loads(message)["run"]
    assert told["state"] == "failed"
    assert words in told["text"]


def test_an_answer_that_fails_is_told_and_frees_the_place():
    experiments = Experiments(host())
    experiments._host.session.engine.fail_at = 0
    *_, last = comparison(experiments)
    assert "scripted failure" in json.loads(last)["run"]["text"]
    experiments._host.session.engine.fail_at = None
    assert json.loads(list(comparison(experiments))[-1])["run"]["state"] == "done"


def test_hostile_tokens_travel_as_inert_json():
    *_, last = comparison(Experiments(host()), prompt="hostile")
    assert "<" not in last
    assert "onerror" in last


def test_the_toys_samples_come_in_steps_and_near_the_exact_laws(monkeypatch):
    monkeypatch.setattr("ui.lab.toy._REST_S", 0)
    messages = [json.loads(message) for message in toy_messages()]
    assert len(messages) == 32
    assert json.loads(exact_json())["policies"]["retrospective"]["law"] == pytest.approx([0.85, 0.15])
    for policy, (a, b) in messages[-1]["counts"].items():
        assert a + b == 4000
        assert a / 4000 == pytest.approx(messages[-1]["policies"][policy]["law"][0], abs=0.04)


def collection(collecting, prompts=6, setting="T = 1", drafter="dspark", visitor=VISITOR):
    return collecting.collect(setting, prompts, drafter, visitor)


def test_a_collection_is_fitted_on_half_of_its_answers_and_shown():
    messages = [json.loads(message) for message in collection(Collecting(host()))]
    assert {message["run"]["state"] for message in messages[:-1]} == {"running", "fitting"}
    last = messages[-1]
    assert last["about"] == {"source": "collected", "label": "dspark", "setting": "T = 1"}
    figures = last["figures"]
    assert figures["fitted"]
    assert figures["answers"] == 6
    assert len(figures["temperatures"]) == len(figures["positions"]) == len(figures["dials"]) == 7
    n = figures["positions"][0][1]
    assert 0 < n <= figures["rounds"]
    assert sum(at[3] for at in figures["positions"][0][6]) == n


def test_a_collection_stopped_half_way_keeps_what_is_done():
    collecting = Collecting(host(0.002))
    told = []
    for message in collection(collecting, prompts=72):
        told.append(json.loads(message))
        if told[-1]["run"].get("done", 0) >= 3:
            collecting.stop(VISITOR)
    assert told[-1]["run"]["state"] == "stopped"
    assert 3 <= told[-1]["figures"]["answers"] < 72


def test_a_collection_stopped_before_anything_was_done_does_not_say_that_it_kept_something():
    collecting = Collecting(host(0.05))
    told = []
    for message in collection(collecting, prompts=72):
        told.append(json.loads(message))
        collecting.stop(VISITOR)
    assert told[-1] == {"kind": "calibration", "run": {"state": "nothing", "text": ""}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompts": 1}, "take 2 to 72"),
        ({"prompts": 10**6}, "take 2 to 72"),
        ({"setting": "hot"}, "Choose how the answers are drawn"),
        ({"drafter": "none"}, "no confidences"),
        ({"drafter": "dflash"}, "no confidences"),
    ],
)
def test_a_collection_that_cannot_be_is_refused_in_words(change, words):
    *_, last = collection(Collecting(host()), **change)
    told = json.loads(last)["run"]
    assert told["state"] == "failed"
    assert words in told["text"]


def test_the_recorded_set_is_shown_without_a_model_and_says_what_it_is():
    collecting = Collecting(SessionHost(lambda _: None, "fake"))
    told = json.loads(collecting.recorded("T = 0.7"))
    assert told["about"]["source"] == "recorded"
    assert told["about"]["setting"] == "T = 0.7"
    assert "weights" in told["about"]["label"]
    assert told["figures"]["fitted"]
    assert "not ready" in json.loads(next(collection(collecting)))["run"]["text"]


def test_own_answers_are_measured_and_one_alone_is_not_fitted():
    answer = [[1, 2, 0.9, 0.4], [0, 1, 0.3], [2, 2, 0.99, 1.0]]
    body = {"drafter": "dspark", "positions": 2, "answers": [answer, answer]}
    two = json.loads(Collecting(host()).own(json.dumps(body)))["figures"]
    one = json.loads(Collecting(host()).own(json.dumps(body | {"answers": [answer]})))["figures"]
    assert (two["fitted"], two["rounds"]) == (True, 3)
    assert (one["fitted"], one["rounds"]) == (False, 3)
    assert one["positions"][0][2] == pytest.approx(2 / 3, abs=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        None, "", "null", "{", "[]", '{"answers": [[1]]}',
        '{"drafter": "x", "positions": 2, "answers": [[[3, 3, 0.5]]]}',
        '{"drafter": "x", "positions": 10000000, "answers": [[[0, 0]]]}',
        '{"drafter": "x", "positions": 2, "answers": [[["a", "b"]]]}',
        '{"drafter": "x", "positions": 2, "answers": [[[1, 1, 0.5, 0.5, 0.5, 0.5]]]}',
    ],
)  # fmt: skip
def test_whatever_a_browser_sends_as_its_answers_is_refused_in_words(text):
    told = json.loads(Collecting(host()).own(text))["run"]
    assert told["state"] == "failed"
    assert "server failed" not in told["text"]


def test_no_answer_is_no_figure_but_no_failure_either():
    figures = figures_json(0.0, [], 3)
    assert figures["rounds"] == 0
    assert figures["dials"] == [[], [], []]


def test_the_buttons_follow_what_runs_and_a_refusal_leaves_those_of_another_run():
    experiments = Experiments(host(0.01))

    def told(**change):
        messages = comparison(experiments, **change)
        visitor = change.get("visitor", VISITOR).session_hash
        return experiments.runs.told(visitor, messages, "feed", "start", "stop")

    def buttons(changes):
        return [changes[name]["interactive"] if name in changes else None for name in ("start", "stop")]

    run = told(texts=5000)
    assert buttons(next(run)) == [False, True]
    assert buttons(next(run)) == [None, None]
    assert [buttons(changes) for changes in told()] == [[False, True]]  # refused: the first one still runs
    assert [buttons(changes) for changes in told(visitor=OTHER)] == [[None, None]]
    experiments.stop(VISITOR)
    *_, last = run
    assert buttons(last) == [True, False]
