"""A profile's values: which passes are measured, and what a scheduler reads of them."""

from dataclasses import replace

import pytest

from dspark_core.errors import ParameterError
from dspark_core.profiling.profile import (
    DraftProbe,
    ProfileKey,
    StepProbe,
    StepProfile,
    check_profile,
    mix,
    spread_counts,
    token_counts,
)
from dspark_core.profiling.report import line, report, table
from dspark_core.scheduling.step_curve import LARGEST_S

KEY = ProfileKey("toy", "ab" * 32, "float64", "CPU (toy, 1 thread)", 1, "2.x", (0, 2))


def steps(cost, counts=(1, 2, 4), contexts=(10, 20, 40)):
    return tuple(StepProbe(context, tokens, 1, cost(context, tokens)) for context in contexts for tokens in counts)


PROFILE = StepProfile(
    KEY,
    "2026-11-30",
    3,
    steps(lambda context, tokens: context / 1000 + tokens / 100),
    tuple(StepProbe(20, r * t, r, r * (0.01 + 0.02 * t)) for r in (2, 4) for t in (1, 2)),
    tuple(
        DraftProbe("dspark", 4, drafts, 20, requests, seconds)
        for drafts, requests, seconds in ((1, 1, 0.01), (1, 4, 0.02), (4, 1, 0.03), (4, 4, 0.06))
    ),
)


def test_token_counts_begin_densely_and_end_with_the_most():
    assert token_counts(144) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 144)
    assert token_counts(9) == (1, 2, 3, 4, 6, 8, 9)
    assert token_counts(2) == (1, 2)
    assert token_counts(1) == (1,)


@pytest.mark.parametrize("block", [1, 2, 5, 9])
@pytest.mark.parametrize("max_requests", [1, 3, 16])
def test_a_mix_is_a_round_that_can_come_up(block, max_requests):
    for tokens in range(1, max_requests * block + 1):
        shares = mix(tokens, max_requests, block)
        assert sum(shares) == tokens
        assert len(shares) <= max_requests
        assert all(1 <= share <= block for share in shares)
        assert max(shares) - min(shares) <= 1
        assert (len(shares) == 1) == (tokens <= block)


def test_mixes_by_hand():
    assert mix(9, 16, 9) == (9,)
    assert mix(16, 16, 9) == (3, 3, 3, 3, 2, 2)
    assert mix(144, 16, 9) == (9,) * 16


def test_the_curve_is_the_median_over_the_contexts():
    odd = replace(PROFILE, steps=steps(lambda context, tokens: {10: 1.0, 20: 3.0, 40: 90.0}[context] + tokens))
    assert odd.curve().measured_s == (4.0, 5.0, 7.0)
    assert odd.curve_at(40).measured_s == (91.0, 92.0, 94.0)
    assert odd.curve().source == "measured on CPU (toy, 1 thread), 2026-11-30"


def test_the_curve_of_a_round_knows_how_many_requests_share_it():
    """Of R = 2 and 4 with t each, R (0.01 + 0.02 t) seconds were measured; one request alone takes 0.03 and 0.04."""
    curve = PROFILE.curve()
    assert curve.among(1).tokens == (1, 2)
    assert curve.among(1).smoothed_s == pytest.approx((0.03, 0.04))
    assert curve.among(2).tokens == (2, 4)
    assert curve.among(2).smoothed_s == pytest.approx((0.06, 0.10))
    assert curve.among(3).smoothed_s == pytest.approx((0.09, 0.15)), "midway between the rows of two and of four"
    assert curve.among(6).smoothed_s == pytest.approx((0.18, 0.30)), "on beyond the last row"
    assert curve.among(4).seconds(6) == pytest.approx(0.16), "half of them with one token, half with two"
    assert curve.among(4).drafting == curve.drafting
    assert replace(PROFILE, spread=()).curve().among(4) == replace(PROFILE, spread=()).curve()


def test_a_row_that_noise_has_made_faster_leads_no_step_below_what_was_measured():
    faster = tuple(replace(probe, seconds=0.05) if probe.requests == 4 else probe for probe in PROFILE.spread)
    assert replace(PROFILE, spread=faster).curve().among(32).smoothed_s == pytest.approx((0.05, 0.05))


@pytest.mark.parametrize("requests", [1, 3, 5, 7, 1000, 10**9])
@pytest.mark.parametrize("slowest", [0.3, LARGEST_S])
@pytest.mark.parametrize("rows", [(2, 4), (3,)])
def test_any_number_of_requests_has_steps_that_never_get_faster_with_more_tokens(requests, slowest, rows):
    spread = [StepProbe(20, r * t, r, r * (0.01 + 0.02 * t)) for r in rows for t in (1, 2)]
    spread = (*spread[:-1], replace(spread[-1], seconds=slowest))
    profile = replace(PROFILE, spread=spread)
    check_profile(profile)
    curve = profile.curve().among(requests)
    times = [curve.seconds(tokens) for tokens in (requests, 2 * requests, 4 * requests)]
    assert 0 < times[0] <= times[1] <= times[2]


@pytest.mark.parametrize(("max_requests", "block"), [(1, 1), (1, 9), (3, 3), (16, 9), (32, 16)])
def test_spread_passes_are_every_number_of_tokens_for_every_number_of_requests(max_requests, block):
    pairs = spread_counts(max_requests, block)
    assert (not pairs) == (max_requests == 1)
    rows = {requests: [tokens // requests for tokens, r in pairs if r == requests] for _, requests in pairs}
    assert all(2 <= requests <= max_requests for requests in rows)
    assert len({tuple(row) for row in rows.values()}) <= 1
    for requests, row in rows.items():
        assert row == sorted(set(row))
        assert (row[0], row[-1]) == (1, block)
        assert all((requests * share, requests) in pairs for share in row)
    if rows:
        assert max(rows) == max_requests


def test_the_curve_has_the_drafting_by_requests_and_drafts():
    drafting = PROFILE.curve().drafting["dspark"]
    assert [drafting.seconds(requests, 4) for requests in (1, 2, 4)] == pytest.approx([0.03, 0.04, 0.06])
    assert [drafting.seconds(1, drafts) for drafts in (1, 2.5, 4)] == pytest.approx([0.01, 0.02, 0.03])
    alone = replace(PROFILE, drafting=PROFILE.drafting[2:3]).curve().drafting["dspark"]
    assert alone.seconds(3, 4) == pytest.approx(0.09), "one request alone was measured: others cost in proportion"


def test_a_drafter_that_was_not_measured_is_named_and_plain_decoding_needs_nothing():
    assert PROFILE.lacks([("dspark", 4), ("none", 0)]) == []
    assert PROFILE.lacks([("dspark", 5), ("lm", 8), ("none", 0)]) == ["dspark", "lm"]


def test_the_drafting_of_a_drafter_of_another_block_size_is_no_part_of_its_curve():
    assert set(PROFILE.curve_for([("dspark", 4), ("none", 0)]).drafting) == {"dspark"}
    other = PROFILE.curve_for([("dspark", 5)])
    assert (dict(other.drafting), other.smoothed_s) == ({}, PROFILE.curve().smoothed_s)
    assert line(PROFILE, ["dspark"]).endswith("; not profiled: the drafting of dspark")
    assert "not profiled" not in line(PROFILE)


def test_what_was_measured_passes_the_check():
    check_profile(PROFILE)


@pytest.mark.parametrize(
    "change",
    [
        {"measured_on": "yesterday"},
        {"measured_on": "2026-13-01"},
        {"measured_on": "2026-11-30\x1b[2J"},
        {"repeats": 0},
        {"steps": ()},
        {"steps": PROFILE.steps[:-1]},
        {"steps": PROFILE.steps[::-1]},
        {"steps": steps(lambda *_: 0.1, counts=(3,))},
        {"steps": steps(lambda *_: 0.0)},
        {"steps": steps(lambda *_: 1e9)},
        {"steps": steps(lambda *_: 0.1, contexts=(0,))},
        {"spread": PROFILE.spread[:-1]},
        {"spread": PROFILE.spread[::-1]},
        {"spread": PROFILE.spread[::2]},
        {"spread": (replace(PROFILE.spread[0], requests=1), *PROFILE.spread[1:])},
        {"spread": (*PROFILE.spread[:-1], replace(PROFILE.spread[-1], tokens=9))},
        {"spread": (*PROFILE.spread[:-1], replace(PROFILE.spread[-1], context=10))},
        {"spread": (*PROFILE.spread[:-1], replace(PROFILE.spread[-1], seconds=0.0))},
        {"spread": tuple(replace(probe, context=30) for probe in PROFILE.spread)},
        {"drafting": PROFILE.drafting[::-1]},
        {"drafting": PROFILE.drafting[:2]},
        {"drafting": (DraftProbe("dspark", 4, 4, 20, 1, -1.0),)},
        {"drafting": (DraftProbe("dspark", 4, 4, 20, 0, 1.0),)},
        {"drafting": (DraftProbe("dspark", 4, 0, 20, 1, 1.0), *PROFILE.drafting)},
        {"drafting": (*PROFILE.drafting[:2], DraftProbe("dspark", 5, 5, 20, 1, 1.0))},
    ],
)
def test_what_no_measurement_gives_is_refused(change):
    with pytest.raises(ParameterError):
        check_profile(replace(PROFILE, **change))


def test_table_and_report_show_every_probe_and_the_curve_in_use():
    falling = replace(PROFILE, steps=steps(lambda _, tokens: {1: 0.1, 2: 0.4, 4: 0.2}[tokens], contexts=(10, 20)))
    shown = table(falling)
    for words in ("ms at 10", "SPS at 20", "medians of 3", "measured on CPU (toy, 1 thread)", "ms of 2 each", "dspark"):
        assert words in shown
    row = next(text.split() for text in shown.splitlines() if text.split()[:1] == ["4"])
    assert row == ["4", "1", "200.0", "200.0", "5.0", "5.0", "300.0", "3.3"]
    curve = report(falling)["curve"]
    assert curve["measured_s"] == [0.1, 0.4, 0.2]
    assert curve["seconds"] == [0.1, pytest.approx(0.3), pytest.approx(0.3)]
    assert report(falling)["largest_smoothing"] == pytest.approx(0.5)
    assert "one was moved by 50 %" in shown
    assert line(falling).endswith("; the times jump")
    assert "jump" not in table(PROFILE) + line(PROFILE)
    assert report(PROFILE)["largest_smoothing"] == 0
    assert curve["per_second"][0] == pytest.approx(10)
    assert "profiled: measured on CPU (toy, 1 thread), 2026-11-30; a pass of 1 token takes 100.0 ms" in line(falling)
    assert "; dspark drafts 4 in 30.0 ms, for 4 answers in 60.0 ms" in line(PROFILE)
    assert "drafts each" in table(PROFILE)
    assert "drafts" not in line(replace(PROFILE, drafting=()))
