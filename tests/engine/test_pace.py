"""Held answers: they keep their place, their text and their law, hold nobody up, and end when they are told to."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace

import pytest

from dspark_core.errors import ParameterError, ResourceError
from dspark_core.events import DecodeRound, Finished
from dspark_core.pace import Held, Pace
from dspark_core.params import ScheduleParams
from tests.engine.counting import ask, wait_until
from tests.engine.test_queue import LONG, next_of


def quiet(generation, seconds=0.15):
    """Whether no event comes for a while, once what was on its way has come."""
    while generation.next_event(seconds) is not None:
        pass
    return generation.next_event(seconds) is None


def test_a_paused_answer_takes_part_in_no_round_until_it_steps_or_goes_on(opened):
    engine = opened()
    generation = engine.submit(ask(LONG))
    next_of(DecodeRound, generation)
    generation.pause()
    assert generation.held == Held(0.0)
    assert quiet(generation)
    assert engine.num_active == 1
    for _ in range(3):
        generation.step()
    for _ in range(3):
        next_of(DecodeRound, generation)
    assert quiet(generation)
    generation.resume()
    assert generation.held == Held()
    next_of(DecodeRound, generation)
    generation.cancel()


def test_an_answer_may_be_paused_before_its_first_round(opened):
    generation = opened().submit(ask(9))
    generation.pause()
    quiet(generation)
    generation.resume()
    assert list(generation)[-1].finish_reason == "length"


def test_cancel_and_close_end_a_paused_answer_at_once(opened):
    engine = opened()
    for end in (lambda g: g.cancel(), lambda _: engine.close()):
        generation = engine.submit(ask(LONG))
        generation.pause()
        quiet(generation)
        end(generation)
        assert list(generation)[-1].finish_reason == "cancelled"


def test_others_go_on_while_one_is_paused(opened):
    engine = opened()
    paused = engine.submit(ask(LONG))
    paused.pause()
    assert list(engine.submit(ask(30)))[-1].finish_reason == "length"
    assert paused.held.rate == 0
    paused.cancel()


def test_a_paused_answer_counts_among_those_that_run_and_goes_on_when_others_wait_for_its_place(opened):
    engine = opened(max_active=1)
    paused = engine.submit(ask(40))
    paused.pause()
    quiet(paused)
    other = engine.submit(ask(5))
    assert list(other)[-1].finish_reason == "length"
    assert paused.held.rate is None
    assert "Others wait" in paused.held.note
    assert list(paused)[-1].finish_reason == "length"


def test_a_paused_answer_stays_paused_when_another_ends_at_a_lower_limit(opened):
    engine = opened()
    paused, other = engine.submit(ask(LONG)), engine.submit(ask(LONG, seed=2))
    next_of(DecodeRound, paused)
    next_of(DecodeRound, other)
    paused.pause()
    quiet(paused)
    other.update_sampling(replace(other.request.sampling, max_new_tokens=1))
    assert list(other)[-1].finish_reason == "length"
    assert quiet(paused)
    assert paused.held == Held(0.0)
    paused.cancel()


def test_an_answer_is_held_for_so_long_only_and_then_says_why_it_goes_on(opened):
    now = [0.0]
    engine = opened(clock=lambda: now[0], max_held_s=60)
    generation = engine.submit(ask(LONG))
    generation.pause()
    quiet(generation)
    now[0] = 59.0
    assert quiet(generation)
    now[0] = 60.0
    next_of(DecodeRound, generation)
    assert generation.held.rate is None
    assert "held for 60 s" in generation.held.note
    with pytest.raises(ResourceError, match="held for 60 s, the most"):
        generation.pause()
    generation.cancel()


def test_time_that_an_answer_is_paused_is_no_time_of_its_rounds(opened):
    generation = opened().submit(ask(20))
    generation.pause()
    time.sleep(0.5)
    generation.resume()
    rounds = [event for event in generation if isinstance(event, DecodeRound)]
    assert sum(event.timings.total_s for event in rounds) < 0.5


@pytest.mark.parametrize("temperature", [0, 1])
def test_texts_are_the_same_with_pauses_and_steps_at_random(opened, temperature):
    asked = [ask(60, seed=seed, temperature=temperature, schedule=ScheduleParams("fixed", 0, 3)) for seed in range(4)]
    alone = opened()
    expected = [list(alone.submit(request))[-1] for request in asked]
    for trial in range(3):
        engine, dice, done = opened(), random.Random(trial), threading.Event()
        generations = [engine.submit(request) for request in asked]

        def disturb(generations=generations, dice=dice, done=done):
            while not done.wait(0.001):
                generation = dice.choice(generations)
                dice.choice(
                    [generation.pause, generation.step, generation.resume, lambda g=generation: g.resume(200)]
                )()

        thread = threading.Thread(target=disturb)
        thread.start()
        time.sleep(0.3)
        done.set()
        thread.join()
        for generation in generations:
            generation.resume()
        ends = [list(generation)[-1] for generation in generations]
        assert [(end.text, end.token_ids) for end in ends] == [(end.text, end.token_ids) for end in expected]
        assert all(isinstance(end, Finished) for end in ends)


def test_a_listener_that_fails_while_its_answer_is_stepped_ends_it_alone(opened):
    engine = opened()

    def listener(event):
        if isinstance(event, DecodeRound):
            raise RuntimeError("deaf")

    engine.submit(ask(LONG), listener).step()
    wait_until(lambda: engine.num_active == 0)
    assert list(engine.submit(ask(5)))[-1].finish_reason == "length"


def pace(max_held_s=100.0):
    now, woken = [0.0], []
    return Pace(lambda: now[0], max_held_s, lambda: woken.append(now[0])), now, woken


def test_a_rate_lets_rounds_begin_so_often_and_no_sooner():
    slow, now, woken = pace()
    slow.set(2)
    begun = []
    for at in range(40):
        now[0] = at / 10
        if slow.may_go(crowded=False):
            slow.went()
            begun.append(now[0])
    assert begun == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    assert slow.due_in() == pytest.approx(0.1)
    assert woken == [0.0]


def test_time_at_a_rate_counts_as_held_and_time_at_full_speed_does_not():
    slow, now, _ = pace(10)
    slow.set(1)
    now[0] = 6
    slow.set(None)
    now[0] = 100
    slow.set(0)
    assert slow.due_in() == 4
    now[0] = 104
    assert slow.may_go(crowded=False)
    assert slow.held.rate is None
    with pytest.raises(ResourceError, match="held for 10 s"):
        slow.step()


@pytest.mark.parametrize("rate", [-1, 1001, float("nan"), float("inf"), "2", True])
def test_what_is_no_rate_is_refused_and_changes_nothing(rate):
    slow, _, woken = pace()
    with pytest.raises(ParameterError, match="The pace is"):
        slow.set(rate)
    assert (slow.held, woken) == (Held(), [])
