"""Many answers a few at a time: all of them come, stop keeps what is there, nothing runs on."""

import threading

import pytest

from dspark_core.errors import DSparkError, ResourceError
from dspark_core.events import DecodeRound
from dspark_core.lab.crowd import answers
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.ui.fake_session import FakeSession


def requests(count, tokens=8):
    sampling = SamplingParams(temperature=1.0, max_new_tokens=tokens)
    return [GenerationRequest((65, 66), sampling, ScheduleParams("fixed", 0, 4), "dspark") for _ in range(count)]


def come(engine, wanted, stop=None, **options):
    return [told for told in answers(engine, wanted, stop or threading.Event(), **options) if told is not None]


def test_every_request_is_answered_and_only_a_few_at_once():
    engine = FakeSession(0.001).engine
    most, submit = [], engine.submit

    def counted(request):
        generation = submit(request)
        most.append(engine.num_active)
        return generation

    engine.submit = counted
    told = come(engine, requests(12), at_once=3)
    assert sorted(number for number, _ in told) == list(range(12))
    assert max(most) <= 4  # one may have told its end a moment before it leaves
    assert all(events[-1].finish_reason == "length" for _, events in told)


def test_stop_gives_up_what_runs_and_keeps_what_is_there():
    engine, stop = FakeSession(0.02).engine, threading.Event()
    told = []
    for answer in answers(engine, requests(50), stop, at_once=4):
        told += [answer] if answer else []
        if len(told) == 5:
            stop.set()
    assert 5 <= len(told) < 50
    assert all(generation.cancelled.is_set() for generation in engine.active)


def test_a_reader_who_leaves_leaves_nothing_running():
    engine = FakeSession(0.05).engine
    reading = answers(engine, requests(50), threading.Event(), at_once=4)
    next(reading)
    reading.close()
    assert len(engine.submitted) == 4
    assert all(generation.cancelled.is_set() for generation in engine.submitted)


def test_an_answer_that_has_enough_ends_there():
    engine = FakeSession(0.001).engine
    told = come(engine, requests(6, tokens=500), enough=lambda events: any(isinstance(e, DecodeRound) for e in events))
    assert len(told) == 6
    assert all(generation.cancelled.is_set() for generation in engine.submitted)


def test_a_failed_answer_ends_the_run_and_says_why():
    engine = FakeSession(0.001).engine
    engine.fail_at = 1
    with pytest.raises(DSparkError, match="An answer failed: scripted failure"):
        come(engine, requests(6))


def test_a_full_house_is_waited_for_while_something_runs_and_told_when_nothing_does():
    engine = FakeSession(0.001, max_active=2).engine
    assert len(come(engine, requests(9), at_once=8)) == 9
    with pytest.raises(ResourceError):
        come(FakeSession(0.001, max_active=0).engine, requests(2))
