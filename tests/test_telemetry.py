"""Every figure against a count by hand, and the record against what was recorded."""

import json
from dataclasses import replace

import pytest

from dspark_core.errors import ParameterError
from dspark_core.event_json import from_line, to_line
from dspark_core.telemetry import PositionShare, Summary, Telemetry, fold, merge, record, replay
from tests.event_samples import LOAD, decode_round, drafter_changed, finished, prefilled, waiting

STREAM = [
    prefilled(prompt_tokens=5, prefill_s=0.25),
    decode_round("aard", index=0),  # 2 accepted + correction
    decode_round("aaaa", index=1),  # 4 accepted + bonus
    decode_round("ruuu", index=2),  # correction only, three cut by the scheduler
    decode_round("addd", index=3, ended=True),  # the text ended on the first draft
    finished(),
]


def test_counts_and_rates_follow_their_formulas():
    summary = fold(STREAM)
    assert (summary.generations, summary.prompt_tokens, summary.prefill_s) == (1, 5, 0.25)
    assert (summary.rounds, summary.tokens, summary.truncated_rounds) == (4, 3 + 5 + 1 + 1, 1)
    assert (summary.drafted, summary.verified, summary.accepted, summary.wasted) == (16, 13, 7, 6)
    assert summary.tau == 10 / 4
    assert summary.acceptance_rate == 7 / 13
    assert summary.mean_verify_len == 13 / 4
    assert (summary.draft_s, summary.schedule_s, summary.verify_s) == (4, 8, 12)
    assert summary.tokens_per_s == 10 / 24
    assert summary.draft_to_verify == 4 / 12
    assert summary.accepted_lengths == (1, 1, 1, 0, 1)
    assert summary.mean_prefill_s == 0.25


def test_acceptance_by_position_is_conditional_and_carries_n():
    assert fold(STREAM).conditional == (
        PositionShare(1, hits=3, n=4),
        PositionShare(2, hits=2, n=2),
        PositionShare(3, hits=1, n=2),
        PositionShare(4, hits=1, n=1),
    )


def test_suffix_decay_sets_the_fourth_position_against_the_first():
    rounds = ["aaaa", "aaar", "aaar", "rddd"]  # position 1: 3 of 4; position 4, given those before: 1 of 3
    assert fold(map(decode_round, rounds)).suffix_decay == (1 / 3) / (3 / 4)
    assert fold([decode_round("aard")]).suffix_decay is None, "position 4 was never reached"
    assert fold([decode_round("rddd")]).suffix_decay is None


def test_survival_counts_every_round_that_verified_the_position():
    assert fold(STREAM).survival == (
        PositionShare(1, hits=3, n=4),
        PositionShare(2, hits=2, n=2),
        PositionShare(3, hits=1, n=2),
        PositionShare(4, hits=1, n=2),
    )


def test_a_draft_discarded_by_the_texts_end_is_no_rejection():
    cut = fold([decode_round("aaad", ended=True)])
    assert cut.conditional == tuple(PositionShare(position, 1, 1) for position in (1, 2, 3))
    assert cut.survival == cut.conditional
    assert (cut.wasted, cut.truncated_rounds) == (1, 1)
    assert fold([decode_round("dddd", ended=True)]).conditional == ()


def test_plain_decoding_has_tau_one_and_no_acceptance_rate():
    summary = fold([prefilled(), decode_round(""), decode_round("")])
    assert (summary.tau, summary.acceptance_rate, summary.mean_verify_len) == (1.0, None, 0.0)
    assert summary.conditional == ()


def test_nothing_at_all_gives_zeros_and_no_division_by_zero():
    summary = fold([])
    assert summary == Summary()
    assert (summary.tau, summary.tokens_per_s, summary.acceptance_rate) == (0.0, 0.0, None)
    assert (summary.mean_verify_len, summary.mean_prefill_s) == (None, None)
    assert (summary.draft_to_verify, summary.suffix_decay) == (None, None)
    assert PositionShare(1, 0, 0).share is None
    assert fold([decode_round("a", seconds=(0, 0, 0))]).tokens_per_s == 0.0


def test_a_running_summary_agrees_with_the_fold_after_every_event():
    telemetry = Telemetry()
    for count, event in enumerate(STREAM, start=1):
        telemetry.add(event)
        assert telemetry.summary() == fold(STREAM[:count])


def test_merging_generations_equals_folding_them_in_a_row():
    other = [prefilled(), decode_round("aaaaaa"), decode_round("")]
    assert merge([fold(STREAM), fold(other)]) == fold(STREAM + other) == merge([fold(other), fold(STREAM)])
    assert merge([]) == Summary()


def test_the_json_form_holds_counts_derived_figures_and_n():
    data = json.loads(json.dumps(fold(STREAM).to_json(), allow_nan=False))
    assert data["tau"] == 2.5
    assert data["wasted"] == 6
    assert data["conditional"][2] == {"position": 3, "share": 0.5, "hits": 1, "n": 2}


def test_a_record_replays_to_the_same_events(tmp_path):
    path = tmp_path / "answer.jsonl"
    record(STREAM, path)
    assert replay(path) == STREAM
    assert [item.name for item in tmp_path.iterdir()] == ["answer.jsonl"]


def test_waiting_and_a_change_of_drafter_count_in_no_figure_and_are_recorded():
    assert fold([waiting(3), waiting(0), *STREAM[:2], drafter_changed(), *STREAM[2:]]) == fold(STREAM)
    assert from_line(to_line(drafter_changed())) == drafter_changed()
    assert json.loads(to_line(waiting(3))) == {"type": "waiting", "ahead": 3, "reason": waiting(3).reason}
    assert from_line(to_line(waiting(3))) == waiting(3)


def test_a_round_recorded_before_drafting_could_stop_early_says_that_it_did_not():
    event = decode_round("aru")
    old = json.loads(to_line(event))
    assert old.pop("stop_early") is False
    assert from_line(json.dumps(old)) == event
    early = replace(event, stop_early=True)
    assert from_line(to_line(early)) == early != event


def test_a_round_recorded_before_loads_had_names_or_laws_were_told_says_that_nothing_is_known_of_them():
    old = json.loads(to_line(decode_round("aru")))
    for name in ("band_low", "band_high", "signal", "inspection"):
        del old[name]
    for name in ("energy_j", "occupancy", "engine_busy", "simulated"):
        del old["load"][name]
    event = from_line(json.dumps(old))
    assert (event.band_low, event.band_high, event.signal, event.inspection) == (None, None, None, None)
    assert event.load == replace(LOAD, energy_j=None, occupancy=None, engine_busy=None, simulated=None)
    assert from_line(to_line(event)) == event


def test_a_failed_record_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "answer.jsonl"
    record(STREAM, path)

    def broken():
        yield STREAM[0]
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        record(broken(), path)
    assert replay(path) == STREAM
    assert [item.name for item in tmp_path.iterdir()] == ["answer.jsonl"]


def test_a_line_is_plain_ascii_whatever_the_text_holds():
    line = to_line(finished("\x1b[2J 你好 \u2028\n"))
    assert line.isascii()
    assert "\x1b" not in line
    assert "\n" not in line
    assert from_line(line) == finished("\x1b[2J 你好 \u2028\n")


def _changed(**changes):
    return json.dumps(json.loads(to_line(STREAM[1])) | changes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "type is None"),
        ('{"type": ["round"]}', "type is"),
        ('{"type": "finished"}', "missing"),
        (_changed(extra=1), "unknown: .'extra'"),
        (_changed(index=True), r"round\.index must be of type int"),
        (_changed(threshold="0.3"), r"round\.threshold must be a finite number"),
        (_changed(threshold=10**400), r"round\.threshold must be a finite number"),
        (_changed(threshold=float("nan")), r"round\.threshold must be a finite number"),
        (_changed(anchor=None), r"round\.anchor must be an object"),
        (_changed(next={"id": 1, "text": "n", "kind": "gift"}), r"round\.next\.kind must be one of"),
        (_changed(draft=[{}]), r"round\.draft\[0\] must have the keys"),
        (_changed(signal={"signal": "moon", "value": 1, "source": ""}), r"round\.signal must have the keys"),
        (_changed(signal={"signal": "moon", "value": 1, "source": "", "note": ""}), r"round\.signal\.signal must be"),
        (_changed(committed="text"), r"round\.committed must be a list"),
        (_changed(num_accepted=10**9), "accepted of 4 verified"),
        (_changed(num_accepted=-1), "-1 accepted"),
    ],
)
def test_a_line_that_is_no_event_is_refused_by_number_and_name(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(to_line(STREAM[0]) + "\n\n" + line + "\n")
    with pytest.raises(ParameterError, match=message) as caught:
        replay(path)
    assert "Line 3" in str(caught.value)
