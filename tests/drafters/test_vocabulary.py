"""The draft vocabulary's file: read back as written, refused when it does not fit."""

import pytest

from dspark_core.drafters.vocabulary import FILE_NAME, read_draft_vocabulary, write_draft_vocabulary
from dspark_core.errors import CheckpointError


def test_round_trip_in_rising_order(tmp_path):
    write_draft_vocabulary(tmp_path, [5, 1, 3])
    assert read_draft_vocabulary(tmp_path, 6) == (1, 3, 5)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_no_file_means_every_token(tmp_path):
    assert read_draft_vocabulary(tmp_path, 6) is None


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "5",
        '{"token_ids": 5}',
        '{"token_ids": [Infinity]}',
        "",
        "[]",
        "{}",
        '{"token_ids": []}',
        '{"token_ids": [1, 1]}',
        '{"token_ids": [6]}',
        '{"token_ids": ["a"]}',
    ],
)
def test_a_broken_or_foreign_file_is_refused_by_name(tmp_path, content):
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(CheckpointError, match=FILE_NAME):
        read_draft_vocabulary(tmp_path, 6)
