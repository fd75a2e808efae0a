"""Holding an answer from the page: only one's own, with a word where it cannot be, and told to the panels."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from dspark_core.events import DecodeRound
from dspark_core.pace import Held
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.ui.fake_session import FakeSession
from ui.answering import Answering, paced
from ui.trace import Trace
from ui.visitors import Visitors

ME = SimpleNamespace(session_hash="me")


@pytest.fixture
def running():
    """A visitor's running answer, and what the page's stepper calls."""
    session, visitors = FakeSession(0.01), Visitors()
    session.engine.patience = 100
    request = GenerationRequest((1,), SamplingParams(max_new_tokens=50), ScheduleParams(), "dspark")
    generation = session.engine.submit(request)
    visitors.begin("me", generation)

    def asks(who=ME, **asked):
        told = Answering(SimpleNamespace(session=session), visitors, None).pace(who, SimpleNamespace(_data=asked))
        return json.loads(told)

    yield generation, asks
    generation.cancel()


def test_the_stepper_steers_the_visitors_own_answer_alone(running):
    generation, asks = running
    assert asks(do="pace", rate=0)["level"] == "none"
    assert generation.held.rate == 0
    assert asks(do="step")["level"] == "none"
    assert asks(do="pace", rate=2)["level"] == "none"
    assert generation.held == Held(2.0)
    assert asks(do="pace", rate=None)["level"] == "none"
    assert generation.held == Held()
    stranger = asks(SimpleNamespace(session_hash="you"), do="pace", rate=0)
    assert (stranger["level"], generation.held.rate) == ("error", None)
    assert "No answer of yours runs" in stranger["text"]


@pytest.mark.parametrize("rate", [-1, "full", [0], 1e9, True])
def test_a_rate_that_is_none_is_refused_in_words(running, rate):
    generation, asks = running
    told = asks(do="pace", rate=rate)
    assert told["level"] == "error"
    assert "rounds a second" in told["text"]
    assert generation.held == Held()


def test_what_holds_an_answer_is_told_to_its_panels_without_a_round(running):
    generation, _ = running
    trace = Trace("a")
    drawing = paced(generation, trace)
    while not any(isinstance(event, DecodeRound) for event in trace.events):
        next(drawing)
    generation.pause()
    while trace.body()["held"][0] != 0:
        next(drawing)
    generation.resume()
    while trace.body()["held"][0] is not None:
        next(drawing)
