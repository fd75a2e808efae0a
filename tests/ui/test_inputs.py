"""What visitors and direct calls may send: parameters come out, or an error that says what to do."""

import inspect
import math

import pytest

from dspark_core.errors import ParameterError
from ui.inputs import (
    MAX_CHARACTERS,
    SAMPLING_CONTROLS,
    SCHEDULE_CONTROLS,
    read_prompt,
    read_sampling,
    read_schedule,
    read_text,
)

BANDS = (0.6, 0.9, "occupancy", 0.5)


def test_the_names_of_the_controls_are_those_that_the_readers_take():
    for names, reader in ((SCHEDULE_CONTROLS, read_schedule), (SAMPLING_CONTROLS, read_sampling)):
        assert tuple(inspect.signature(reader).parameters) == names


def test_whole_floats_count_as_whole_numbers():
    schedule = read_schedule("threshold", 2.0, 5.0, 0.5, True, *BANDS)
    assert (schedule.l_min, schedule.l_max) == (2, 5)
    assert isinstance(schedule.l_min, int)


@pytest.mark.parametrize("beyond_cut", [True, False])
def test_drafting_stops_early_unless_the_box_is_ticked(beyond_cut):
    assert read_schedule("threshold", 1, 3, 0.5, beyond_cut, *BANDS).stop_early is not beyond_cut


@pytest.mark.parametrize(
    "values",
    [
        ("threshold", 6, 3, 0.5, True, *BANDS),
        ("threshold", -1, 3, 0.5, True, *BANDS),
        ("threshold", 1, 65, 0.5, True, *BANDS),
        ("threshold", 1.5, 3, 0.5, True, *BANDS),
        ("threshold", None, 3, 0.5, True, *BANDS),
        ("threshold", math.nan, 3, 0.5, True, *BANDS),
        ("threshold", 1, math.inf, 0.5, True, *BANDS),
        ("threshold", 1, 10**400, 0.5, True, *BANDS),
        ("threshold", 1, 8, 10**400, True, *BANDS),
        ("threshold", 1, 3, math.nan, True, *BANDS),
        ("threshold", 1, 3, 1.01, True, *BANDS),
        ("threshold", 1, 3, "0.5", True, *BANDS),
        ("threshold", True, 3, 0.5, True, *BANDS),
        (None, 1, 3, 0.5, True, *BANDS),
        ({"a": 1}, 1, 3, 0.5, True, *BANDS),
        ("threshold", [1], 3, 0.5, True, *BANDS),
        ("threshold", 1, 3, 0.5, None, *BANDS),
        ("threshold", 1, 3, 0.5, 1, *BANDS),
        ("banded", 1, 3, 0.5, True, 0.95, 0.9, "occupancy", 0.5),
        ("banded", 1, 3, 0.5, True, math.nan, 0.9, "occupancy", 0.5),
        ("banded", 1, 3, 0.5, True, 0.6, None, "occupancy", 0.5),
        ("banded", 1, 3, 0.5, True, 0.6, 0.9, "moon", 0.5),
        ("banded", 1, 3, 0.5, True, 0.6, 0.9, None, 0.5),
        ("banded", 1, 3, 0.5, True, 0.6, 0.9, {"a": 1}, 0.5),
        ("banded", 1, 3, 0.5, True, 0.6, 0.9, "simulated", 1.5),
        ("banded", 1, 3, 0.5, True, 0.6, 0.9, "simulated", ""),
    ],
)
def test_a_schedule_that_cannot_be_honoured_is_refused_by_name(values):
    with pytest.raises(ParameterError) as caught:
        read_schedule(*values)
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    "values",
    [
        (-0.1, 1, 10, ""),
        (math.nan, 1, 10, ""),
        (None, 1, 10, ""),
        (0, 0, 10, ""),
        (0, 1.5, 10, ""),
        (0, 1, 0, ""),
        (0, 1, 1e9, ""),
        (0, 1, 2.5, ""),
        (0, 1, 10, "abc"),
        (0, 1, 10, "-3"),
        (0, 1, 10, "٣"),
        (0, 1, 10, "9" * 30),
        (0, 1, 10, "9" * 5000),
        (0, 1, 10, math.nan),
        ([], 1, 10, ""),
    ],
)
def test_a_law_that_cannot_be_honoured_is_refused(values):
    with pytest.raises(ParameterError):
        read_sampling(*values)


def test_the_seed_may_be_empty_or_as_large_as_the_engine_takes():
    assert read_sampling(0, 1, 10, "").seed is None
    assert read_sampling(0, 1, 10, None).seed is None
    assert read_sampling(0, 1, 10, f" {2**63 - 1} ").seed == 2**63 - 1
    assert read_sampling(0, 1, 10, 7.0).seed == 7


def test_min_p_and_the_penalties_reach_the_law():
    law = read_sampling(1, 1, 10, "", 0.1, 1.2, 0.3, -0.4)
    assert (law.min_p, law.repetition_penalty, law.presence_penalty, law.frequency_penalty) == (0.1, 1.2, 0.3, -0.4)
    assert read_sampling(1, 1, 10, "") == read_sampling(1, 1, 10, "", 0, 1, 0, 0)


@pytest.mark.parametrize("text", ["", "   \n\t", None])
def test_an_empty_message_is_refused(text):
    with pytest.raises(ParameterError, match="empty"):
        read_prompt(text)


def test_a_message_beyond_all_reason_is_refused_before_the_tokenizer_sees_it():
    with pytest.raises(ParameterError, match="Shorten"):
        read_prompt("x" * (MAX_CHARACTERS + 1))
    with pytest.raises(ParameterError, match="must be text"):
        read_text("The message", {"text": "x"})
