"""Self-written conversations on disk: parts are whole or absent, and a run goes on where one stopped."""

import itertools

import pytest

from dspark_core.errors import ResourceError
from dspark_core.training import synthesise as module
from dspark_core.training.data import read_conversations
from dspark_core.training.synthesise import synthesise
from tests.training.setup import conversations


@pytest.fixture
def _small_parts(monkeypatch):
    monkeypatch.setattr(module, "PART", 3)


def writer(seeds):
    def write(seed):
        seeds.append(seed)
        return itertools.cycle(conversations(50, seed=seed))

    return write


@pytest.mark.usefixtures("_small_parts")
def test_the_folder_is_filled_in_parts_and_told(tmp_path):
    told = []
    assert synthesise(tmp_path, 7, writer([]), seed=2, report=lambda done, count: told.append((done, count))) == 7
    assert told == [(3, 7), (6, 7), (7, 7)]
    assert sorted(path.name for path in tmp_path.glob("self-*")) == [f"self-2-0000{n}.jsonl.gz" for n in (1, 2, 3)]
    assert read_conversations(tmp_path) == conversations(50, seed=200_001)[:7]


@pytest.mark.usefixtures("_small_parts")
def test_a_killed_run_keeps_its_parts_and_writes_no_conversation_twice(tmp_path):
    seeds = []

    def killed(seed):
        yield from conversations(4, seed=seed)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesise(tmp_path, 9, killed)
    assert len(read_conversations(tmp_path)) == 3
    (tmp_path / ".self-0-00002.jsonl.gz.tmp").write_bytes(b"half")
    assert synthesise(tmp_path, 9, writer(seeds)) == 9
    assert seeds == [2]
    assert len({c.ids for c in read_conversations(tmp_path)}) == 9


def test_what_is_there_is_not_written_again(tmp_path):
    synthesise(tmp_path, 5, writer([]))
    seeds = []
    assert synthesise(tmp_path, 5, writer(seeds)) == 5
    assert seeds == []
    assert synthesise(tmp_path, 5, writer(seeds), seed=1) == 5  # another seed adds its own
    assert len(read_conversations(tmp_path)) == 10


def test_two_runs_of_one_seed_never_write_into_one_folder_at_once(tmp_path):
    def second_run(seed):
        with pytest.raises(ResourceError, match="Another run"):
            synthesise(tmp_path, 2, writer([]))
        return writer([])(seed)

    assert synthesise(tmp_path, 2, second_run) == 2
    assert synthesise(tmp_path, 4, writer([])) == 4
