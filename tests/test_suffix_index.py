"""The look-up of a text's end in the text itself: what matches, how long, and that drafts leave no trace."""

import random

import pytest

from dspark_core.suffix_index import SuffixIndex, followers


def index_of(tokens, longest=8):
    index = SuffixIndex(longest)
    index.extend(tokens)
    return index


def test_the_longest_match_tells_what_followed_and_how_far_the_words_agree():
    index = index_of([1, 2, 3, 4, 9, 1, 2, 3])
    n, place = index.match()
    assert (n, index.tokens[place]) == (3, 4)


def test_a_match_longer_than_its_key_is_counted_to_its_beginning_and_not_beyond_what_is_told_apart():
    text = [*range(10), 99, *range(10)]
    assert index_of(text).match() == (8, 10)
    assert index_of(text, longest=5).match() == (5, 10)
    assert index_of(text, longest=2).match() == (2, 10)


def test_the_latest_of_several_places_counts():
    index = index_of([5, 1, 5, 2, 5])
    assert index.tokens[index.match()[1]] == 2


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3]])
def test_a_text_that_repeats_nothing_matches_nothing(tokens):
    assert index_of(tokens).match() == (0, 0)


def test_drafts_that_are_cut_leave_no_trace():
    rng = random.Random(3)
    for _ in range(200):
        text = [rng.randrange(4) for _ in range(rng.randrange(12))]
        index = index_of(text)
        for token in [rng.randrange(4) for _ in range(6)]:
            index.push(token)
        index.cut(len(text))
        more = [rng.randrange(4) for _ in range(5)]
        index.extend(more)
        plain = index_of([*text, *more])
        assert (index.tokens, index.match()) == (plain.tokens, plain.match())


def test_followers_are_what_matches_foretold_token_by_token():
    rng = random.Random(4)
    text = [rng.randrange(3) for _ in range(40)]
    for at, (n, foretold) in enumerate(followers(text, 8)):
        index = index_of(text[:at])
        length, place = index.match()
        assert (n, foretold) == (length, index.tokens[place] if length else 0)
