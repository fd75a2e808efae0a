"""Recorded traces: what is written is read again with its header; what is no whole answer is refused."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dspark_core.errors import ParameterError
from dspark_core.events import Candidate, Fate, Finished, Inspection, LoadSample
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.recording import Bias, Recording, file_name, header_of, lines, parse, read, write
from dspark_core.telemetry import record, replay
from dspark_core.trace_check import check_answer
from tests.event_samples import decode_round, finished, prefilled, waiting

INFO = SimpleNamespace(model="toy", device_label="CPU (test)", dtype="float32")
CANDIDATE = Candidate(1, "a", 0.5, 0.5, 0.5, 0.5)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


def header(**sampling):
    request = GenerationRequest((1, 2), SamplingParams(**sampling), ScheduleParams("prefix", 0, 7), "dspark")
    return header_of(INFO, request, MESSAGES)


def answer():
    """The events of one whole answer whose sums are right."""
    rounds = [replace(decode_round(fates), index=at) for at, fates in enumerate(("aaru", "r", "aa"))]
    committed = [token for event in rounds for token in event.committed]
    text = "".join(token.text for token in committed)
    end = replace(finished(text), token_ids=tuple(token.id for token in committed), rounds=len(rounds), text_delta="")
    return [waiting(1), prefilled(), *rounds, end]


def whole():
    return Recording(header(), tuple(answer()))


@pytest.mark.parametrize("name", ["answer.jsonl", "answer.jsonl.gz"])
def test_a_recording_is_read_as_it_was_written_header_included(tmp_path, name):
    made = Recording(header(temperature=0.7, seed=2**62, stop=("\n",)), tuple(answer()))
    write(made, tmp_path / name)
    assert read(tmp_path / name) == made
    assert replay(tmp_path / name) == list(made.events)
    assert [item.name for item in tmp_path.iterdir()] == [name]
    record(made.events, tmp_path / name, made.header)
    assert read(tmp_path / name) == made


def test_the_same_recording_gives_the_same_compressed_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        write(whole(), tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).decode() == "".join(lines(whole().events, whole().header))


def test_a_header_tells_the_whole_law_banned_tokens_too():
    told = header(logit_bias=((3, -math.inf), (5, 1.5)), temperature=1.0, min_p=0.1)
    assert told.logit_bias == (Bias(3, None), Bias(5, 1.5))
    again = parse(lines([], told), "x").header
    assert again == told
    assert (again.sampling.temperature, again.sampling.min_p) == (1.0, 0.1)
    assert again.messages[-1].content == "Why?"


def test_a_file_without_header_is_read_and_not_shown_as_an_answer_of_somewhere():
    old = parse(lines(answer()), "old.jsonl")
    assert (old.header, list(old.events)) == (None, answer())
    with pytest.raises(ParameterError, match=r"no header.*infer --record"):
        check_answer(old, "old.jsonl")


def test_a_header_stands_in_the_first_line_only():
    first, *rest = lines(answer(), header())
    with pytest.raises(ParameterError, match="Line 2 of x is not a recorded event: its type is 'header'"):
        parse([first, first, *rest], "x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "measured"}, r"header\.kind must be one of"),
        ({"date": "yesterday"}, "must be a date"),
        ({"model": 3}, r"header\.model must be of type str"),
        ({"messages": [{"role": "root", "content": ""}]}, r"header\.messages\[0\]\.role"),
        ({"schedule": {}}, r"header\.schedule must have the keys"),
        ({"x" * 10_000: 1}, "unknown"),
    ],
)
def test_a_header_that_is_none_is_refused_by_name_and_briefly(changes, message):
    data = json.loads(next(lines([], header()))) | changes
    with pytest.raises(ParameterError, match=message) as caught:
        parse([json.dumps(data)], "x")
    assert len(str(caught.value)) < 1000


def test_one_whole_answer_passes_the_check():
    made = whole()
    assert check_answer(made, "x") is made.header


def _changed(at, **changes):
    events = answer()
    events[at] = replace(events[at], **changes)
    return events


def _first_draft(**changes):
    events = answer()
    first, *rest = events[2].draft
    events[2] = replace(events[2], draft=(replace(first, **changes), *rest))
    return events


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "no beginning"),
        (answer()[2:], "no beginning"),
        (answer()[:-1], "no end"),
        ([*answer()[:-1], *answer()], "more than one answer"),
        (_changed(3, index=5), "round 2 calls itself number 6"),
        (_changed(1, num_draft_tokens=10**400), "drafts"),
        (_changed(2, l_max=10**30), "bounds"),
        (_changed(2, num_accepted=1), "1 accepted drafts, but other fates"),
        (_changed(2, verify_len=4), "4 verified drafts, but other fates"),
        (_changed(2, committed=()), "committed tokens are not"),
        (_changed(2, threshold=7.0), "a probability outside 0 to 1"),
        (_first_draft(draft_prob=-0.5), "a probability outside 0 to 1"),
        (_first_draft(target_prob=None), "a target's probability"),
        (_first_draft(fate=Fate.DISCARDED), "accepted drafts, but other fates"),
        (_changed(-1, text="another"), "its text is not what its rounds committed"),
        (_changed(-1, token_ids=(1,)), "its end counts other rounds or tokens"),
        (_changed(-1, rounds=9), "its end counts other rounds or tokens"),
        (_changed(1, drafter_note="\u202eegnp"), "a note on its drafter is"),
        (_changed(2, reason="cut \u200b"), "a reason of round 1 is"),
        (_changed(2, reason="w" * 1001), "a reason of round 1 is"),
        (_changed(2, load=LoadSample("\x1b[31m", "cpu")), "a source of the load of round 1 is"),
        (_changed(-1, detail="\u2066"), "a reason of it is"),
        (_first_draft(text="x" * 4001), "a token of more than 4,000 characters"),
        (_changed(2, inspection=Inspection((), (), (1.0,) * 1026, None, 0.0)), "laws of more positions"),
        (
            _changed(2, inspection=Inspection((), (CANDIDATE,) * 1001, (), None, 0.0)),
            "more than 1,000 tokens of one law",
        ),
    ],
)
def test_what_is_not_one_answer_that_adds_up_is_refused_with_what_is_wrong(events, why):
    with pytest.raises(ParameterError, match=why) as caught:
        check_answer(Recording(header(), tuple(events)), "some file")
    assert "some file" in str(caught.value)
    assert "Load a file as Rounds saves it" in str(caught.value)


@pytest.mark.parametrize("of", ["model", "device", "dtype", "drafter", "versions"])
@pytest.mark.parametrize("bad", ["CPU \u202eereh ton", "\u200b", "a\x00b", "D" * 1001])
def test_a_header_cannot_bend_the_words_that_say_where_it_was_recorded(of, bad):
    with pytest.raises(ParameterError, match=f"its {of} is"):
        check_answer(replace(whole(), header=replace(header(), **{of: bad})), "x")


def test_a_conversation_without_end_is_not_shown():
    endless = replace(header(), messages=header().messages * 2001)
    with pytest.raises(ParameterError, match="at most 2,000 are shown"):
        check_answer(replace(whole(), header=endless), "x")


def test_a_line_that_is_refused_says_what_to_do_next():
    with pytest.raises(ParameterError, match=r"Line 1 of x is not.*Load a file as Rounds saves it"):
        parse(["[" * 100_000], "x")


def test_a_name_for_the_file_is_safe_whatever_the_model_is_called():
    told = replace(header(), model='../../etc/$(x) "<b>" 你', drafter="..\\nul\n", date="2026-11-30T12:00:00+00:00")
    name = file_name(told)
    assert name == "dspark-..-..-etc-x-b-..-nul-prefix-2026-11-30t12-00-00.jsonl"
    assert len(file_name(replace(told, model="m" * 500))) < 140


def test_an_answer_of_every_kind_of_end_is_whole():
    for reason in ("stop", "length", "cancelled", "error"):
        events = _changed(-1, finish_reason=reason)
        assert isinstance(events[-1], Finished)
        check_answer(Recording(header(), tuple(events)), "x")


@pytest.mark.parametrize("damage", [lambda data: data[:40] + b"\xff" * 20 + data[60:], lambda data: data[:-20], len])
def test_a_compressed_file_that_is_damaged_is_refused_in_words(tmp_path, damage):
    made = whole()
    path = tmp_path / "answer.jsonl.gz"
    record(made.events, path, made.header)
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged if isinstance(damaged, bytes) else b"no gzip")
    with pytest.raises(ParameterError, match="damaged or no gzip file"):
        replay(path)
