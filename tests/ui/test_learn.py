"""The lessons' recorded figures: complete, consistent with what the engine defines, and made by a command."""

import json

import pytest

from dspark_core.errors import DSparkError
from dspark_core.scheduling.step_curve import StepCurve
from ui.learn.record import PLACE, USERS, acceptance, with_users
from ui.panels import STATIC


@pytest.fixture(scope="module")
def recorded():
    return json.loads(PLACE.read_text(encoding="utf-8"))


def test_the_figures_say_where_and_when_they_were_recorded(recorded):
    assert "CPU" in recorded["made"] or "cuda" in recorded["made"]
    assert recorded["acceptance"]["date"].startswith("20")


def test_the_telling_round_has_accepted_rejected_and_wasted_drafts_and_its_laws(recorded):
    chosen = recorded["rounds"][recorded["telling"]]
    fates = [draft[2] for draft in chosen["draft"]]
    assert {"accepted", "rejected", "discarded"} <= set(fates)
    assert fates.count("accepted") == chosen["acc"]
    candidates, *_ = recorded["laws"][recorded["telling"]]
    assert len(candidates) == len(fates)


def test_every_recorded_round_verified_all_its_drafts_so_that_a_threshold_can_be_applied_afterwards(recorded):
    assert all(len(each["draft"]) == each["len"] for each in recorded["rounds"])


def test_lengths_under_load_are_within_the_drafts_of_their_round(recorded):
    assert [entry["users"] for entry in recorded["users"]] == list(USERS)
    for entry in recorded["users"]:
        for lengths, each in zip(entry["lengths"], recorded["rounds"], strict=True):
            assert len(lengths) == entry["users"]
            assert all(0 <= length <= len(each["draft"]) for length in lengths)


def test_more_users_get_fewer_drafts_where_a_pass_costs_by_the_token(recorded):
    curve = StepCurve.of([1, 256], [0.010, 0.265], source="toy")
    event = recorded["rounds"][recorded["telling"]]
    confidences = [draft[3] for draft in event["draft"]]
    alone, crowd = (sum(with_users(users, [confidences], curve)["lengths"][0]) / users for users in (1, 32))
    assert crowd < alone


def test_a_file_that_is_no_evaluation_is_refused_with_the_command_that_makes_one(tmp_path):
    path = tmp_path / "nothing.json"
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(DSparkError, match="python -m dspark_core evaluate"):
        acceptance(path)


def test_every_lesson_has_a_picture_a_question_and_a_source():
    html = (STATIC / "learn.html").read_text(encoding="utf-8")
    lessons = html.split("<article")[1:]
    assert len(lessons) == 8
    for lesson in lessons:
        for part in ("data-widget=", "ds-question", "<details>", "data-go=", "ds-source"):
            assert part in lesson
