"""The drafters that ship: whole, small enough for any host, and with the record of how they came about."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

import dspark_core
from dspark_core.catalog import find_model
from dspark_core.drafters.vocabulary import read_draft_vocabulary
from dspark_core.loading import load_drafters

SHIPPED = sorted(path.parent for path in (Path(dspark_core.__file__).parent / "checkpoints").glob("*/config.json"))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_a_shipped_drafter_is_whole_and_recorded(folder):
    tensors = load_file(folder / "model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    assert max(file.stat().st_size for file in folder.iterdir()) < 50_000_000
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert read_draft_vocabulary(folder, config["vocab_size"]) is not None
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert record["held_out"]
    assert (folder / "training_log.csv").read_text(encoding="utf-8").startswith("stage,anchors,")


def test_the_logs_of_earlier_runs_are_kept_beside_the_last():
    folder = next(folder for folder in SHIPPED if folder.name == "dspark-smollm2-135m")
    record, runs = json.loads((folder / "training.json").read_text(encoding="utf-8")), 0
    while record := record.get("started_from"):
        runs += 1
        log = (folder / f"training_log_run_{runs}.csv").read_text(encoding="utf-8")
        assert log.startswith("stage,anchors,")
    assert len(list(folder.glob("training_log_run_*.csv"))) == runs > 0


def test_all_that_ships_is_at_most_90_megabytes():
    assert SHIPPED
    assert sum(file.stat().st_size for folder in SHIPPED for file in folder.iterdir()) <= 90_000_000


def test_all_that_ships_is_loaded_for_its_model(smollm2):
    drafters = load_drafters(find_model("smollm2-135m"), "auto", smollm2)
    assert len({*drafters} - {"none", "ngram"}) >= len(SHIPPED)
    assert next(iter(drafters)) == "dspark"
