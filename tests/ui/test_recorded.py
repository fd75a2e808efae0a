"""Recorded answers on the server: those that ship, those that are loaded, and one's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dspark_core.errors import DSparkError, ParameterError
from dspark_core.events import DecodeRound, Finished
from dspark_core.recording import lines, parse, read
from dspark_core.telemetry import fold
from tests.test_recording import answer, header, whole
from ui.kept import KeptAnswers
from ui.recorded import MAX_BYTES, SHIPPED, TRACES, loaded_json, saved_json, shipped_json
from ui.rounds import Rounds
from ui.trace import figures_json


@pytest.mark.parametrize("key", SHIPPED)
def test_a_shipped_answer_was_made_by_the_real_model_and_tells_its_laws(key):
    recording = read(TRACES / f"{key}.jsonl.gz")
    rounds = [event for event in recording.events if isinstance(event, DecodeRound)]
    assert recording.header.model == "smollm2-135m"
    assert all(event.inspection is not None for event in rounds)
    body = shipped_json(key)
    assert body["device"] == recording.header.device
    assert body["answer"]["figures"] == figures_json(fold(recording.events))
    assert len(body["answer"]["laws"]) == len(body["answer"]["rounds"]) == len(rounds)


def test_shipped_answers_show_what_they_promise_and_stay_small():
    headers = {key: read(TRACES / f"{key}.jsonl.gz").header for key in SHIPPED}
    assert (headers["maths"].schedule.threshold, headers["maths"].sampling.temperature) == (0.6, 1.0)
    assert headers["prefix"].schedule.policy == "prefix"
    assert sum(path.stat().st_size for path in TRACES.iterdir()) < 300_000
    assert {path.name for path in TRACES.iterdir()} == {f"{key}.jsonl.gz" for key in SHIPPED}


def test_a_saved_answer_loads_again_as_it_was():
    made = whole()
    file = saved_json(made)
    assert file["name"].endswith(".jsonl")
    body = loaded_json(file["text"], file["name"])
    assert body["turns"] == [["user", "Why?"]]
    assert body["text"] == made.events[-1].text
    assert body["answer"]["full"] is True
    assert (body["device"], body["model"]) == (made.header.device, made.header.model)
    windows = file["text"].replace("\n", "\r\n")
    assert loaded_json(windows, "w")["text"] == body["text"]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "x", "must be a text file"),
        ("", 3, "must be a text file"),
        ("", "x", "'x' has no header"),
        ("not\njson", "<b>", "Line 1 of '<b>'"),
        ("x" * (MAX_BYTES + 1), "x", "at most 20,000,000 are read"),
    ],
)
def test_what_is_loaded_is_checked_and_refused_in_words(text, name, message):
    with pytest.raises(ParameterError, match=message) as caught:
        loaded_json(text, name)
    assert len(str(caught.value)) < 600


def test_an_answer_that_still_runs_is_not_saved():
    with pytest.raises(ParameterError, match="still runs"):
        saved_json(parse(lines(answer()[:-1], header()), "x"))


def test_kept_answers_are_each_visitors_own_and_bounded():
    kept = KeptAnswers(max_events=10)
    growing = []
    kept.put("one", header(), growing)
    growing.extend(answer())
    assert kept.of("one").events[-1] == answer()[-1]
    assert isinstance(kept.of("one").events[-1], Finished)
    kept.put("two", header(), answer())
    kept.put("two", header(), answer())
    assert len(kept) == 2
    kept.put("three", header(), answer())
    assert len(kept) == 2
    with pytest.raises(ParameterError, match="no answer to save"):
        kept.of("one")
    kept.drop("two")
    kept.drop("nobody")
    assert len(kept) == 1


@pytest.mark.parametrize("asked", [None, "x", {}, {"do": "format"}, {"do": "show", "name": "../chat"}, {"do": "load"}])
def test_whatever_a_page_asks_for_gets_an_answer_in_words(asked):
    rounds = Rounds()
    rounds._deck = SimpleNamespace(visitors=SimpleNamespace(kept=KeptAnswers()), host=SimpleNamespace(session=None))
    told = rounds.act(SimpleNamespace(session_hash="s"), SimpleNamespace(_data=asked))
    assert '"kind": "recorded-error"' in told
    assert "<" not in told


def test_without_a_session_the_first_answer_is_offered_whole_and_with_one_only_the_names():
    rounds = Rounds()
    rounds._deck = SimpleNamespace(host=SimpleNamespace(session=None))
    assert f'"name": "{next(iter(SHIPPED))}"' in rounds.offer()
    rounds._deck = SimpleNamespace(host=SimpleNamespace(session=object()))
    assert '"first": null' in rounds.offer()
    with pytest.raises(DSparkError, match="no recorded answer"):
        shipped_json("none")
