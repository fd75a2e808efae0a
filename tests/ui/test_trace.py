"""Messages to the page: small, overlapping, complete at the end, inert."""

import json

from dspark_core.events import Finished
from dspark_core.params import SamplingParams, ScheduleParams
from dspark_core.telemetry import fold
from tests.event_samples import decode_round, drafter_changed, finished, prefilled, waiting
from tests.ui.fake_session import HOSTILE, FakeSession
from ui.trace import OVERLAP_ROUNDS, Trace, to_json


def events_of(text="tell me", tokens=120, drafter="dspark"):
    session = FakeSession(0.0)
    request = session.request(
        [{"role": "user", "content": text}],
        SamplingParams(max_new_tokens=tokens),
        ScheduleParams(threshold=0.6),
        drafter,
    )
    generation = session.engine.submit(request)
    events = []
    while not events or not isinstance(events[-1], Finished):
        events.append(generation.next_event())
    return events


def messages_of(events, every=3):
    trace, messages = Trace("a"), []
    for number, event in enumerate(events):
        trace.add(event)
        if number % every == 0 or trace.finished:
            messages.append(json.loads(trace.message()))
    return messages


def test_messages_carry_the_new_rounds_and_a_few_before_and_the_last_one_all():
    events = events_of()
    messages = messages_of(events)
    total = len(events) - 2
    assert [part["i"] for part in messages[-1]["rounds"]] == list(range(total))
    assert messages[-1]["full"]
    assert all(len(message["rounds"]) <= OVERLAP_ROUNDS + 3 for message in messages[:-1])
    assert [message["seq"] for message in messages] == list(range(1, len(messages) + 1))


def test_figures_are_telemetrys():
    events = events_of()
    figures = messages_of(events)[-1]["figures"]
    summary = fold(events)
    for name, value in figures.items():
        assert value == getattr(summary, name)


def test_rounds_joined_are_the_text_that_was_streamed():
    events = events_of("hostile")
    last = messages_of(events)[-1]
    assert "".join(part["text"] for part in last["rounds"]) == last["text"] == events[-1].text
    assert any(piece in last["text"] for piece in HOSTILE)


def test_a_message_holds_no_markup_and_survives_the_way():
    text = "<img src=x onerror=alert(1)>${1}`\u2028\ud800"
    packed = to_json({"text": text})
    assert "<" not in packed
    assert packed.isascii()
    assert json.loads(packed)["text"] == text


def test_plain_decoding_has_rounds_without_drafts():
    last = messages_of(events_of(drafter="none"))[-1]
    assert last["prefilled"]["num_draft_tokens"] == 0
    assert all(part["draft"] == [] for part in last["rounds"])
    assert last["figures"]["acceptance_rate"] is None


def test_a_seed_beyond_javascripts_numbers_arrives_whole():
    assert messages_of(events_of())[-1]["prefilled"]["seed"] == str(2**62)


def test_the_place_in_the_line_is_told_until_the_prompt_is_read_or_the_answer_ends():
    start = [waiting(2), waiting(0)]
    told = [message["waiting"] for message in messages_of([*start, prefilled(), finished()], every=1)]
    reason = "(32 answers are running, the most at once)."
    assert told == [f"Waiting: 2 ahead of you {reason}", f"Waiting: you are next {reason}", "", ""]
    assert [message["waiting"] for message in messages_of([*start, finished()], every=1)][1:] == [told[1], ""]


def test_after_a_change_of_drafter_the_page_hears_of_the_new_one():
    first, *_, last = messages_of([prefilled(), decode_round("ar"), drafter_changed("none"), finished()], every=1)
    assert (first["prefilled"]["drafter"], last["prefilled"]["drafter"]) == ("dspark", "none")
    assert (last["prefilled"]["num_draft_tokens"], last["prefilled"]["seed"]) == (0, "1")


def test_a_round_carries_its_bands_and_the_load_that_its_policy_judged_by():
    (part,) = messages_of([prefilled(), decode_round("ar"), finished()], every=1)[-1]["rounds"]
    assert part["sched"][-2:] == [0.6, 0.9]
    assert part["signal"] == ["simulated", 0.4, "simulated: set by the user, not measured", ""]
    assert part["load"][-4:] == [12.5, 0.25, 0.75, 0.4]
    unheeding = messages_of(events_of())[-1]["rounds"]
    assert {part["signal"] for part in unheeding} == {None}


def test_laws_are_sent_once_and_all_at_the_end():
    rounds = [decode_round("ar", index=index) for index in range(4)]
    messages = messages_of([prefilled(), *rounds, finished()], every=2)
    assert [[index for index, _ in message["laws"]] for message in messages] == [[], [0, 1], [2, 3], [0, 1, 2, 3]]
    candidates, bonus, throughputs, stopped_at, temperature = messages[-1]["laws"][0][1]
    assert candidates == [[[10, "t0", 0.1, 0.5, 0.4, None]], [[11, "t1", 0.1, 0.5, 0.4, None]]]
    assert (bonus, throughputs, stopped_at, temperature) == ([], [30, 31.5], 0.2, 0.7)
    assert {tuple(message["laws"]) for message in messages_of(events_of())} == {()}


def test_laws_that_nobody_looks_at_are_left_to_a_later_message():
    trace = Trace("a")
    trace.add(prefilled())
    sent = []
    for index, laws in enumerate((False, False, True, False)):
        trace.add(decode_round("ar", index=index))
        sent.append([number for number, _ in trace.body(0, laws=laws)["laws"]])
    trace.add(finished())
    assert sent == [[], [], [0, 1, 2], []]
    assert [number for number, _ in trace.body(0, laws=False)["laws"]] == [0, 1, 2, 3], "the last message has all"
