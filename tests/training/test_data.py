"""Reading, splitting and counting conversations."""

import pytest

from dspark_core.errors import ParameterError
from dspark_core.training.data import commonest_tokens, read_conversations, split
from tests.training.setup import conversations, write_jsonl


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_conversations_survive_a_file(tmp_path, name):
    items = conversations(3)
    write_jsonl(tmp_path / name, items)
    assert read_conversations(tmp_path / name) == items


def test_a_folder_is_read_in_name_order(tmp_path):
    items = conversations(4)
    write_jsonl(tmp_path / "b.jsonl", items[2:])
    write_jsonl(tmp_path / "a.jsonl.gz", items[:2])
    assert read_conversations(tmp_path) == items


def test_a_broken_line_is_named(tmp_path):
    file = tmp_path / "a.jsonl"
    write_jsonl(file, conversations(1))
    file.write_text(file.read_text() + '{"p": [1]}\n')
    with pytest.raises(ParameterError, match="line 2"):
        read_conversations(file)


def test_missing_data_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="No conversations"):
        read_conversations(tmp_path / "none.jsonl")
    with pytest.raises(ParameterError, match="No conversations"):
        read_conversations(tmp_path)


def test_held_out_lines_are_the_last_and_never_trained_on():
    items = conversations(40)
    train, held_out = split(items, 0.05)
    assert train + held_out == items
    assert len(held_out) == 2


@pytest.mark.parametrize(("count", "share"), [(1, 0.5), (10, 0.0), (10, 1.0)])
def test_impossible_splits_are_refused(count, share):
    with pytest.raises(ParameterError):
        split(conversations(count), share)


def test_commonest_tokens_by_count_then_by_id():
    assert commonest_tokens([[5, 5, 1], [7, 7, 5]], 10, 3) == [1, 5, 7]
    assert commonest_tokens([], 10, 2) == [0, 1]
