"""What the engine tells becomes rounds to fit on, and the engine uses what was fitted."""

import json
import math

import pytest
import torch

from dspark_core.calibration.rollout import Countdown, roll_out
from dspark_core.calibration.survival import logits_of
from dspark_core.calibration.told import rounds_of
from dspark_core.decode_loop import DecodeLoop
from dspark_core.engine import Engine
from dspark_core.errors import DSparkError
from dspark_core.event_json import from_line, to_line
from dspark_core.events import DecodeRound
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.event_samples import decode_round, finished, prefilled
from tests.toy import FixedLoad, ToyTarget, ToyTokenizer, toy_calibration, toy_drafters

EVERY_DRAFT = ScheduleParams("fixed", 2, 2)


def toy_events(drafter, schedule=EVERY_DRAFT, *, seed=1, temperature=1.0, max_new_tokens=20):
    target = ToyTarget()
    loop = DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad())
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=max_new_tokens)
    with torch.inference_mode():
        return loop.run(GenerationRequest((1, 2, 0), sampling, schedule, drafter))


def rounds_in(events):
    return [event for event in events if isinstance(event, DecodeRound)]


def test_rounds_hold_the_logits_and_how_many_were_accepted():
    rounds = rounds_of([prefilled(), decode_round("aar"), decode_round("raa".replace("aa", "dd")), finished()], 3)
    assert rounds.accepted.tolist() == [2, 0]
    assert rounds.observed.tolist() == [3, 3]
    assert rounds.logits.tolist() == [pytest.approx([math.log(9)] * 3)] * 2


def test_a_short_draft_and_the_texts_end_are_not_taken_for_rejections():
    rounds = rounds_of([decode_round("aa"), decode_round("add", ended=True), decode_round("r")], 3)
    assert rounds.accepted.tolist() == [2, 1, 0]
    assert rounds.observed.tolist() == [2, 1, 1]


def test_no_round_is_no_rounds():
    assert len(rounds_of([prefilled(), finished()], 3)) == 0


def test_a_calibrated_drafter_gives_the_same_rounds_as_the_plain_one():
    plain, calibrated = (rounds_of(toy_events(name), 2) for name in ("dspark", "calibrated"))
    assert calibrated.logits == pytest.approx(plain.logits)
    assert calibrated.accepted.tolist() == plain.accepted.tolist()
    assert len(plain) > 3


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_the_events_carry_the_calibrated_confidence_the_raw_one_and_the_survival_of_the_former(temperature):
    divisors = toy_calibration().temperatures_for(temperature)
    plain, calibrated = (rounds_in(toy_events(name, temperature=temperature)) for name in ("dspark", "calibrated"))
    assert len(plain) == len(calibrated)
    for ours, theirs in zip(calibrated, plain, strict=True):
        survival = 1.0
        for k, (token, plain_token) in enumerate(zip(ours.draft, theirs.draft, strict=True)):
            assert plain_token.raw_confidence is None
            assert token.raw_confidence == plain_token.confidence
            logit = float(logits_of(token.raw_confidence))
            assert token.confidence == pytest.approx(1 / (1 + math.exp(-logit / divisors[k])))
            survival *= token.confidence
            assert token.survival == pytest.approx(survival)


def test_the_threshold_is_compared_with_the_calibrated_confidence():
    threshold, moved = 0.42, 0
    for seed in range(10):
        for event in rounds_in(toy_events("calibrated", ScheduleParams("threshold", 0, 2, threshold), seed=seed)):
            calibrated, raw = (
                next((k for k, token in enumerate(event.draft) if getattr(token, name) < threshold), len(event.draft))
                for name in ("confidence", "raw_confidence")
            )
            assert event.verify_len == calibrated
            moved += calibrated != raw
    assert moved


def test_the_raw_confidence_survives_the_journey_through_json():
    for event in toy_events("calibrated"):
        assert from_line(to_line(event)) == event


def test_a_record_from_before_raw_confidences_reads_as_without_them():
    event = rounds_in(toy_events("dspark"))[0]
    data = json.loads(to_line(event))
    for token in data["draft"]:
        assert token.pop("raw_confidence") is None
    assert from_line(json.dumps(data)) == event


def test_every_request_of_a_rollout_is_answered_and_counted():
    target = ToyTarget()
    engine = Engine(DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad()))
    requests = [
        GenerationRequest((1, 2, 0), SamplingParams(temperature=1.0, seed=s, max_new_tokens=12), EVERY_DRAFT, "dspark")
        for s in range(3)
    ]
    answered = []
    try:
        parts = roll_out(engine, requests, 2, lambda: answered.append(1))
    finally:
        engine.close()
    assert len(answered) == 3
    for seed, part in enumerate(parts):
        alone = rounds_of(toy_events("dspark", seed=seed, max_new_tokens=12), 2)
        assert part.logits == pytest.approx(alone.logits)
        assert part.accepted.tolist() == alone.accepted.tolist()


def test_an_answer_that_fails_ends_the_rollout_with_its_reason(monkeypatch, caplog):
    target = ToyTarget()
    drafters = toy_drafters(target)

    def broken(*_):
        raise RuntimeError("a broken weight")

    monkeypatch.setattr(drafters["dspark"], "hidden_states", broken)
    engine = Engine(DecodeLoop(target, ToyTokenizer(), drafters, FixedLoad()))
    request = GenerationRequest((1, 2, 0), SamplingParams(max_new_tokens=12), EVERY_DRAFT, "dspark")
    try:
        with pytest.raises(DSparkError, match="a broken weight"):
            roll_out(engine, [request], 2, lambda: None)
    finally:
        engine.close()
    assert caplog.records


def test_the_time_left_is_told_from_the_speed_so_far(monkeypatch):
    clock = iter([0.0, 10.0, 30.0, 90.0])
    monkeypatch.setattr("dspark_core.calibration.rollout.time.monotonic", lambda: next(clock))
    told = []
    countdown = Countdown(lambda stage, fraction: told.append((stage, fraction)), 3)
    countdown.stage = "rollout"
    for _ in range(3):
        countdown.step()
    assert told == [
        ("rollout: 0:20 left in all", pytest.approx(1 / 3)),
        ("rollout: 0:15 left in all", pytest.approx(2 / 3)),
        ("rollout: 0:00 left in all", 1.0),
    ]
