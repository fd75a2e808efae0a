"""The engine's line: who waits is told so and holds nothing, whoever goes frees all, and long prompts stall nobody."""

import threading
from itertools import pairwise

import pytest

from dspark_core.decode_loop import PREFILL_CHUNK
from dspark_core.errors import ResourceError
from dspark_core.events import DecodeRound, Finished, Prefilled, Waiting
from dspark_core.params import ScheduleParams
from tests.engine.counting import ask, held, wait_until

LONG = 3000


def next_of(kind, generation):
    """The next event of that kind; those before it are dropped."""
    while not isinstance(event := generation.next_event(30), kind):
        assert event is not None
        assert not isinstance(event, Finished)
    return event


def test_beyond_the_limit_requests_wait_and_are_told_their_place_until_it_is_their_turn(opened):
    engine = opened(max_active=2)
    running = [engine.submit(ask(LONG)) for _ in range(2)]
    waiting = [engine.submit(ask(20)) for _ in range(3)]
    assert [next_of(Waiting, generation).ahead for generation in waiting] == [0, 1, 2]
    assert engine.num_active == 5
    running[0].cancel()
    second, third = (list(generation) for generation in waiting[1:])
    assert [type(event) for event in second[:3]] == [Waiting, Prefilled, DecodeRound]
    assert [event.ahead for event in second if isinstance(event, Waiting)] == [0]
    assert [event.ahead for event in third if isinstance(event, Waiting)] == [1, 0]
    assert "2 answers are running" in third[0].reason
    assert [list(g)[-1].finish_reason for g in waiting[:1]] == ["length"]
    running[1].cancel()


def test_a_listener_hears_its_place_in_the_engines_thread_and_holds_up_nobody_who_submits(opened):
    engine = opened(max_active=1)
    running, heard, free = engine.submit(ask(LONG)), [], threading.Event()

    def listener(event):
        heard.append((type(event), threading.current_thread()))
        assert free.wait(30)

    engine.submit(ask(5), listener)
    wait_until(lambda: heard)
    assert engine.num_active == 2, "whoever asks need not wait for a listener"
    later = engine.submit(ask(5))
    free.set()
    running.cancel()
    assert list(later)[-1].finish_reason == "length"
    assert heard[0] == (Waiting, engine._thread)
    assert {thread for _, thread in heard} == {engine._thread}


def test_one_that_can_begin_at_once_is_told_of_no_line(opened):
    assert isinstance(next(iter(opened(max_active=1).submit(ask(3)))), Prefilled)


def test_a_full_line_refuses_by_name_and_takes_more_when_one_has_left(opened):
    engine = opened(max_active=1, max_waiting=1)
    engine.submit(ask(LONG))
    waits = engine.submit(ask())
    with pytest.raises(ResourceError, match=r"1 answer is running.* 1 request waits .* Try again"):
        engine.submit(ask())
    waits.cancel()
    wait_until(lambda: engine.num_active == 1)
    engine.submit(ask())


def test_who_has_waited_too_long_gets_an_error_that_says_why(opened):
    now = [0.0]
    engine = opened(clock=lambda: now[0], max_active=1, max_wait_s=60)
    running = engine.submit(ask(LONG))
    waits = engine.submit(ask())
    next_of(Prefilled, running)
    now[0] = 59.0
    later = engine.submit(ask())
    for _ in range(3):
        next_of(DecodeRound, running)
    assert engine.num_active == 3
    now[0] = 60.0
    end = list(waits)[-1]
    assert (end.finish_reason, end.token_ids, end.text) == ("error", (), "")
    assert "waited for 60 s" in end.detail
    assert "1 answer is running" in end.detail
    assert next_of(Waiting, later).ahead == 1
    assert next_of(Waiting, later).ahead == 0
    running.cancel()
    assert list(later)[-1].finish_reason == "length"


def test_tokens_are_limited_too_and_what_fits_later_waits_its_turn(opened):
    engine = opened(max_tokens=1000)
    with pytest.raises(ResourceError, match=r"room for 1002 tokens .* holds 1000"):
        engine.submit(ask(1000))
    first = engine.submit(ask(600))
    big, small = engine.submit(ask(500)), engine.submit(ask(5))
    assert "602 of 1000 tokens are taken, and the next request needs 502" in next_of(Waiting, big).reason
    assert next_of(Waiting, small).ahead == 1
    next_of(Prefilled, first)
    assert engine._loop.target.num_held == 1
    first.cancel()
    assert {list(generation)[-1].finish_reason for generation in (big, small)} == {"length"}
    opened_slots = [slot.capacity for slot in engine._loop.target.slots]
    assert opened_slots == [602, 502, 7]  # in order of arrival: the small one did not overtake


def test_who_waits_holds_no_slot_and_no_drafter_state(opened):
    engine = opened(max_active=1)
    running = engine.submit(ask(LONG))
    waiting = [engine.submit(ask(LONG)) for _ in range(5)]
    for _ in range(4):
        next_of(DecodeRound, running)
        assert held(engine) == (1, 1)
    for generation in waiting[:4]:
        generation.cancel()
        assert list(generation)[-1] == Finished("cancelled", "", "", (), 0, 0.0, 0.0, "stopped by request")
    assert held(engine) == (1, 1)
    assert engine.num_active == 2
    running.cancel()
    next_of(DecodeRound, waiting[4])
    assert held(engine) == (1, 1)


def test_a_cancel_frees_its_place_within_one_round_of_the_others(opened):
    engine = opened(max_active=3)
    target = engine._loop.target
    other = engine.submit(ask(LONG, name=1))
    next_of(DecodeRound, other)
    reading = engine.submit(ask(5, name=3, prompt_tokens=3900))
    wait_until(lambda: any(3 in one for one in target.passes))
    decoding = engine.submit(ask(LONG, name=4))
    reading.cancel()
    before = len(target.passes)
    assert list(reading)[-1].finish_reason == "cancelled"
    assert sum(3 in one for one in target.passes[before:]) <= 1
    next_of(DecodeRound, decoding)
    decoding.cancel()
    before = len(target.passes)
    assert list(decoding)[-1].finish_reason == "cancelled"
    assert sum(4 in one for one in target.passes[before:]) <= 1
    assert held(engine) == (1, 1)


def test_leaving_the_with_block_while_waiting_gives_the_place_up(opened):
    engine = opened(max_active=1)
    engine.submit(ask(LONG))
    with engine.submit(ask()):
        assert engine.num_active == 2
    wait_until(lambda: engine.num_active == 1)


def test_closing_ends_who_waits(opened):
    engine = opened(max_active=1)
    generations = [engine.submit(ask(LONG)) for _ in range(4)]
    engine.close()
    assert [list(generation)[-1].finish_reason for generation in generations] == ["cancelled"] * 4


def test_a_schedule_set_while_waiting_holds_from_the_first_round(opened):
    engine = opened(max_active=1)
    running = engine.submit(ask(LONG))
    waits = engine.submit(ask(40))
    waits.update_schedule(ScheduleParams("threshold", 0, 2, 0.5))
    running.cancel()
    events = list(waits)
    assert [e.policy for e in events if isinstance(e, Prefilled)] == ["threshold"]
    assert {(e.policy, e.l_max) for e in events if isinstance(e, DecodeRound)} == {("threshold", 2)}


def test_where_memory_is_short_a_request_waits_for_those_that_run_and_nobody_overtakes_it(opened):
    engine = opened()
    engine._loop.target.room = 1
    first = engine.submit(ask(LONG, name=1))
    next_of(DecodeRound, first)
    second, third = engine.submit(ask(5, name=3)), engine.submit(ask(5, name=4))
    assert "memory" in next_of(Waiting, second).reason
    first.cancel()
    ends = [list(generation)[-1].finish_reason for generation in (second, third)]
    assert ends == ["length", "length"]
    order = [name for one in engine._loop.target.passes for name in one]
    assert order.index(3) < order.index(4)


def test_where_memory_is_short_for_one_alone_it_ends_with_the_error(opened):
    engine = opened()
    engine._loop.target.room = 0
    end = list(engine.submit(ask()))[-1]
    assert (end.finish_reason, "no memory for the slot" in end.detail) == ("error", True)


def test_prompts_are_read_in_order_of_arrival_and_a_round_lies_between_any_two_chunks(opened):
    engine = opened()
    target = engine._loop.target
    running = engine.submit(ask(LONG, name=1))
    next_of(DecodeRound, running)
    before = len(target.passes)
    target.pause_s = 0.005
    prompts = [engine.submit(ask(3, name=name, prompt_tokens=5 * PREFILL_CHUNK)) for name in (3, 4, 5)]
    for generation in prompts:
        assert list(generation)[-1].finish_reason == "length"
    passes = target.passes[before:]
    chunks = [(at, one) for at, one in enumerate(passes) if sum(one.values()) > PREFILL_CHUNK // 2]
    assert len(chunks) == 3 * 5
    left = dict.fromkeys((3, 4, 5), 5 * PREFILL_CHUNK - 1)
    for _, one in chunks:
        assert sum(one.values()) <= PREFILL_CHUNK
        for name, tokens in one.items():
            left[name] -= tokens
            assert all(not left[earlier] for earlier in left if earlier < name)
    assert set(left.values()) == {0}
    for (at, _), (following, _) in pairwise(chunks):
        assert [1 in one for one in passes[at + 1 : following]] == [True]  # one round of the running answer


def test_short_prompts_share_a_chunk(opened):
    engine = opened()
    target = engine._loop.target
    running = engine.submit(ask(LONG, name=1))
    next_of(DecodeRound, running)
    with engine._wake:  # the loop waits here: all of them arrive at once
        prompts = [engine.submit(ask(3, name=name, prompt_tokens=PREFILL_CHUNK // 4 + 1)) for name in range(2, 8)]
        before = len(target.passes)
    for generation in prompts:
        assert list(generation)[-1].finish_reason == "length"
    chunks = [one for one in target.passes[before:] if sum(one.values()) > 30]
    assert chunks == [dict.fromkeys((2, 3, 4, 5), PREFILL_CHUNK // 4), dict.fromkeys((6, 7), PREFILL_CHUNK // 4)]
