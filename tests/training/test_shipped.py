"""The drafters that ship: whole, small enough for any host, and with the record of how they came about."""

import json
from pathlib import Path

import pytest

import dspark_core
from dspark_core.checkpoint import load_drafter
from dspark_core.drafters.vocabulary import read_draft_vocabulary

SHIPPED = sorted(path.parent for path in (Path(dspark_core.__file__).parent / "checkpoints").glob("*/config.json"))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_a_shipped_drafter_is_whole_and_recorded(folder):
    loaded = load_drafter(folder)
    assert all(bool(parameter.isfinite().all()) for parameter in loaded.modules.parameters())
    assert max(file.stat().st_size for file in folder.iterdir()) < 50_000_000
    vocabulary = read_draft_vocabulary(folder, loaded.config.vocab_size)
    assert vocabulary is not None
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert record["held_out"]
    assert (folder / "training_log.csv").read_text(encoding="utf-8").startswith("stage,anchors,")


def test_something_ships():
    assert SHIPPED
