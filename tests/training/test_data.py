"""Reading, splitting and counting conversations; what cannot be trained on is refused by file and line."""

import gzip
import re

import pytest

from dspark_core.errors import ParameterError
from dspark_core.training.data import Conversation, commonest_tokens, read_conversations, split
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


def line(p="[1, 2]", r="[3]", T="0.7"):  # noqa: N803 (the key's own name)
    return f'{{"p": {p}, "r": {r}, "T": {T}}}\n'.encode()


def test_blank_lines_other_keys_and_a_byte_order_mark_do_no_harm(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(
        b"\xef\xbb\xbf" + line() + b"\n  \r\n" + line(T='0, "source": "self"').replace(b"\n", b"\r\n") + b"\n"
    )
    assert read_conversations(file) == [Conversation((1, 2), (3,), 0.7), Conversation((1, 2), (3,), 0.0)]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (b'{"p": [1], "r": [2], "T"', "not JSON"),
        (b"\xff\xfe{}", "not JSON in UTF-8"),
        (line().replace(b"p", b"\xe9"), "not JSON in UTF-8"),
        (b"\x00" * 20, "not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (line(p="1" * 5000), "not JSON"),
        (b"[[1], [2], 0.7]", "list, not an object"),
        (b'"p r T"', "str, not an object"),
        (b"null", "not an object"),
        (b'{"p": [1]}', "lacks r and T"),
        (line(p='"abc"'), "p is 'abc'; it must be a list"),
        (line(p="null"), "p is None"),
        (line(r="7"), "r is 7"),
        (line(p="[]"), r"p is \[\]; it must be a list of at least one"),
        (line(r="[]"), r"r is \[\]; it must be a list of at least one"),
        (line(p="[1, 2.0]"), "p holds 2.0"),
        (line(r="[true]"), "r holds True"),
        (line(r='[1, "2"]'), "r holds '2'"),
        (line(r="[[1]]"), r"r holds \[1\]"),
        (line(p="[4, -1]"), "p holds the token id -1"),
        (line(r="[4, 97, 5]"), "r holds the token id 97.*0 to 96"),
        (line(r="[1" + "0" * 30 + "]"), "r holds the token id 10+, and"),
        (line(T="NaN"), "T is nan"),
        (line(T="Infinity"), "T is inf"),
        (line(T="1e999"), "T is inf"),
        (line(T="1" + "0" * 400), "T is 1"),
        (line(T="-0.5"), "T is -0.5"),
        (line(T='"0.7"'), "T is '0.7'"),
        (line(T="true"), "T is True"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_line_that_is_no_conversation_is_named(tmp_path, name, broken, words):
    file = tmp_path / name
    content = line() + line(T="0") + broken
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    with pytest.raises(ParameterError, match=re.escape(f"{file} line 3") + f".*{words}"):
        read_conversations(file, 97)


def test_ids_are_held_to_the_targets_own_vocabulary(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(line(r="[96]"))
    assert read_conversations(file, 97)[0].answer_ids == (96,)
    with pytest.raises(ParameterError, match=r"96.*0 to 95"):
        read_conversations(file, 96)


def packed(count):
    """An archive whose lines cannot be packed well, so that a cut falls among them."""
    ids = iter(range(10**6))
    return gzip.compress(b"".join(line(p=str([next(ids) * 7919 % 97 for _ in range(50)])) for _ in range(count)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],  # EOFError
        lambda whole: whole[:-6],
        lambda whole: whole[:40] + bytes(byte ^ 255 for byte in whole[40:60]) + whole[60:],  # zlib.error
        lambda whole: whole[:-8] + b"\x00" * 4 + whole[-4:],  # a wrong checksum
        lambda whole: b"PK" + whole[2:],  # BadGzipFile
        lambda _: line(),
    ],
    ids=["half", "end cut", "middle", "checksum", "another archive", "plain text"],
)
def test_a_damaged_archive_is_told(tmp_path, damage):
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(damage(packed(400)))
    with pytest.raises(ParameterError, match=re.escape(str(file)) + ".*(cannot be read beyond line|not JSON in UTF-8)"):
        read_conversations(file)


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\n\t\n"])
def test_a_file_without_a_conversation_is_refused_by_name(tmp_path, content):
    write_jsonl(tmp_path / "a.jsonl", conversations(2))
    (tmp_path / "b.jsonl").write_bytes(content)
    with pytest.raises(ParameterError, match=r"b.jsonl holds no conversation"):
        read_conversations(tmp_path)


def test_an_empty_archive_is_refused_by_name(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(b"")
    with pytest.raises(ParameterError, match=r"a.jsonl.gz holds no conversation"):
        read_conversations(tmp_path)


def test_a_folders_other_files_are_no_data(tmp_path):
    """Neither what a killed writer left, nor copies that an editor keeps."""
    items = conversations(2)
    write_jsonl(tmp_path / "a.jsonl", items)
    for name in (".b.jsonl", ".b.jsonl.gz.part", "b.jsonl.tmp", "b.jsonl.gz.part", "b.jsonl.bak", "README.md"):
        (tmp_path / name).write_bytes(b"unfinished")
    assert read_conversations(tmp_path) == items


@pytest.mark.parametrize("name", ["none.jsonl", ".", "empty", "x" * 300])
def test_missing_data_are_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no data")
    with pytest.raises(ParameterError, match=r"Give a .jsonl or .jsonl.gz file"):
        read_conversations(tmp_path / name)


def test_a_folder_in_a_files_place_is_refused(tmp_path):
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(ParameterError, match=r"a.jsonl cannot be read"):
        read_conversations(tmp_path)


def test_held_out_lines_are_the_last_and_never_trained_on():
    items = conversations(40)
    train, held_out = split(items, 0.05)
    assert train + held_out == items
    assert len(held_out) == 2


@pytest.mark.parametrize(("count", "share"), [(0, 0.5), (1, 0.5), (10, 0.0), (10, 1.0), (10, float("nan"))])
def test_impossible_splits_are_refused(count, share):
    with pytest.raises(ParameterError):
        split(conversations(count), share)


def test_commonest_tokens_by_count_then_by_id():
    assert commonest_tokens([[5, 5, 1], [7, 7, 5]], 10, 3) == [1, 5, 7]
    assert commonest_tokens([], 10, 2) == [0, 1]
