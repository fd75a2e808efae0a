"""Confidence quality of the measured rounds: calibration's own figures, with and without a calibration in force."""

from dataclasses import replace

import pytest
import torch

from dspark_core.calibration.figures import figures_by_position, mean_ece
from dspark_core.calibration.told import rounds_of
from dspark_core.decode_loop import DecodeLoop
from dspark_core.evaluate.confidence import all_of, confidence_report, confidence_rounds
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.event_samples import decode_round, finished, prefilled
from tests.toy import FixedLoad, ToyTarget, ToyTokenizer, toy_drafters

SURE, UNSURE = 0.9, 0.2


def a_round(fates, confidences, raw=None):
    """A round of these fates and confidences; ``raw``: what they were before calibration."""
    event = decode_round(fates)
    raws = raw or [None] * len(fates)
    told = zip(event.draft, confidences, raws, strict=True)
    return replace(event, draft=tuple(replace(token, confidence=c, raw_confidence=r) for token, c, r in told))


def an_answer(*rounds):
    return [prefilled(), *rounds, finished()]


def report_of(*answers):
    return confidence_report(all_of(map(confidence_rounds, answers)))


def test_the_figures_by_hand():
    good = a_round("aard", [SURE, SURE, UNSURE, UNSURE])
    bad = a_round("rddd", [UNSURE, UNSURE, UNSURE, UNSURE])
    raw = report_of(an_answer(good), an_answer(good, bad))["raw"]
    assert raw["auc_by_position"] == [1, None, None, None], "position 2 was always right once reached, 3 never"
    assert raw["auc_n_by_position"] == [3, 2, 2, 0]
    assert raw["ece_n_by_position"] == [3, 3, 3, 3]
    errors = [(2 * 0.1 + 0.2) / 3, (2 * 0.19 + 0.04) / 3, (2 * 0.162 + 0.008) / 3, (2 * 0.0324 + 0.0016) / 3]
    assert raw["ece_by_position"] == pytest.approx(errors)
    assert raw["mean_ece"] == pytest.approx(sum(errors) / 4)


def test_a_calibration_in_force_is_measured_beside_the_heads_own_confidences():
    rounds = [a_round("aard", [0.8] * 4, raw=[0.5] * 4), a_round("rddd", [0.4] * 4, raw=[0.3] * 4)]
    report = report_of(an_answer(*rounds))
    plain = report_of(an_answer(*(a_round(fates, [c] * 4) for fates, c in (("aard", 0.5), ("rddd", 0.3)))))
    assert report["raw"] == plain["raw"]
    assert plain["calibrated"] is None
    assert report["calibrated"]["ece_by_position"][0] == pytest.approx((0.2 + 0.4) / 2)
    assert report["raw"]["ece_by_position"][0] == pytest.approx((0.5 + 0.3) / 2)


def test_what_was_not_verified_is_not_observed():
    raw = report_of(an_answer(a_round("aauu", [SURE] * 4), a_round("ruuu", [UNSURE] * 4)))["raw"]
    assert raw["auc_n_by_position"] == [2, 1, 0, 0]
    assert raw["ece_n_by_position"] == [2, 1, 0, 0]


def test_a_drafter_without_confidences_has_no_such_figures():
    assert confidence_rounds(an_answer(a_round("aard", [None] * 4))) is None
    assert report_of(an_answer(a_round("aard", [None] * 4)), an_answer()) is None


def test_an_answer_without_rounds_adds_nothing_to_the_others():
    good = an_answer(a_round("aard", [SURE] * 4))
    assert report_of(good, an_answer()) == report_of(good)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_figures_are_those_that_calibrate_gives_to_the_same_rounds(temperature):
    target = ToyTarget()
    loop = DecodeLoop(target, ToyTokenizer(), toy_drafters(target), FixedLoad())
    sampling = SamplingParams(temperature=temperature, seed=3, max_new_tokens=60)
    with torch.inference_mode():
        plain, calibrated = (
            list(loop.run(GenerationRequest((1, 2, 0), sampling, ScheduleParams("fixed", 2, 2), name)))
            for name in ("dspark", "calibrated")
        )
    figures = figures_by_position(rounds_of(plain, 2), [1.0, 1.0])
    report = report_of(calibrated)
    assert report["raw"]["auc_by_position"] == [at.auc for at in figures]
    assert report["raw"]["auc_n_by_position"] == [at.reached for at in figures]
    assert report["raw"]["ece_by_position"] == pytest.approx([at.ece for at in figures])
    assert report["raw"]["mean_ece"] == pytest.approx(mean_ece(figures))
    assert report["calibrated"]["mean_ece"] != pytest.approx(report["raw"]["mean_ece"])
