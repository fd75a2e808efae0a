"""Prompt look-up: the longest and latest match is copied, and its confidence is its record on the text so far."""

import pytest
import torch

from dspark_core.drafters.base import EMPTY_BLOCK
from dspark_core.drafters.ngram import NgramDrafter
from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice

NOTHING = torch.empty(0, 0)


def drafted(seen, anchor, count=4, **settings):
    state = NgramDrafter(**settings).open(100)
    state.observe(tuple(seen), NOTHING)
    return state.draft(anchor, count, SamplingParams(temperature=1.0), SeededDice(0))


def test_the_longest_match_wins_over_a_later_shorter_one():
    assert drafted([1, 2, 3, 50, 9, 3, 60, 1, 2], 3, count=1).token_ids == (50,)
    assert drafted([1, 2, 3, 50, 9, 3, 60, 8, 2], 3, count=1, longest=1).token_ids == (60,)


def test_of_equal_matches_the_latest_is_copied():
    assert drafted([1, 2, 10, 1, 2, 20, 1], 2, count=2).token_ids == (20, 1)


def test_a_copy_that_reaches_the_end_goes_on_with_itself():
    assert drafted([5, 6, 7, 5, 6], 7, count=5).token_ids == (5, 6, 7, 5, 6)
    assert drafted([4, 4], 4, count=3).token_ids == (4, 4, 4)


@pytest.mark.parametrize(("seen", "anchor"), [([], 3), ([1, 2], 3), ([1, 2, 3], 4)])
def test_nothing_is_drafted_where_nothing_matches(seen, anchor):
    assert drafted(seen, anchor) is EMPTY_BLOCK


def test_no_drafts_are_made_when_none_are_wanted():
    assert drafted([4, 4], 4, count=0) is EMPTY_BLOCK


def test_the_draft_law_is_all_on_the_drafted_token():
    block = drafted([1, 2, 3, 1, 2], 3)
    assert block.candidate_ids.tolist() == [[token] for token in block.token_ids]
    assert block.candidate_probs.tolist() == [[1.0]] * 4
    assert block.shown_probs == (1.0,) * 4


def test_confidence_is_the_share_of_right_look_ups_by_length():
    # 1 2 | 1 → "1" was followed by 2. Then 1 is followed by 9: the look-up of length 1 was wrong once.
    once_wrong = drafted([1, 2, 1, 9], 1, count=1)
    assert once_wrong.confidences == (pytest.approx(1 / 3),)
    # 4 4 4 4: the look-ups after the second token are right, of lengths 1, 2 and 3 in turn.
    block = drafted([4, 4, 4, 4, 4], 4, count=2)
    assert block.confidences == (pytest.approx((1 + 1) / (1 + 2)),) * 2


def test_one_confidence_decides_how_far_the_copy_goes():
    def copy_of(known):
        state = NgramDrafter().open(100)
        state.observe((1, 2, 3, 1, 2), NOTHING)
        return state.draft(3, 4, SamplingParams(), SeededDice(0), lambda confidences: len(confidences) <= known)

    whole = copy_of(4)
    assert whole.stopped_at is None
    for known in range(4):
        block = copy_of(known)
        assert block.token_ids == whole.token_ids[:known]
        assert len(block.candidate_ids) == len(block.candidate_probs) == known
        assert block.known_confidences == whole.confidences[: known + 1]


def test_text_told_in_pieces_equals_text_told_at_once():
    whole, pieces = (NgramDrafter().open(50) for _ in range(2))
    text = (1, 2, 3, 1, 2, 4, 1, 2, 3, 3)
    whole.observe(text, NOTHING)
    for start, end in ((0, 1), (1, 6), (6, 10)):
        pieces.observe(text[start:end], NOTHING)
    blocks = [state.draft(1, 5, SamplingParams(), SeededDice(0)) for state in (whole, pieces)]
    assert blocks[0].token_ids == blocks[1].token_ids
    assert blocks[0].confidences == blocks[1].confidences


def test_drafting_leaves_the_state_as_it_was():
    state = NgramDrafter().open(50)
    state.observe((1, 2, 3, 1, 2), NOTHING)
    blocks = [state.draft(3, 4, SamplingParams(), SeededDice(0)) for _ in range(2)]
    assert blocks[0].token_ids == blocks[1].token_ids
    assert blocks[0].confidences == blocks[1].confidences
