"""The command: data to checkpoint, resumable, with refusals that name the option."""

import argparse
import json

import pytest
from safetensors.torch import save_file

from dspark_core.checkpoint import load_drafter
from dspark_core.errors import ModelUnavailableError, ParameterError
from dspark_core.training.command import add_arguments, run
from tests.training.setup import TARGET, conversations, target_state, write_jsonl


@pytest.fixture
def folder(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(TARGET))
    save_file(target_state(), target / "model.safetensors")
    write_jsonl(tmp_path / "data.jsonl.gz", conversations(30))
    return tmp_path


def options(folder, *more):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    paths = [f"--data={folder / 'data.jsonl.gz'}", f"--work={folder / 'work'}", f"--out={folder / 'out'}"]
    small = ["--stage1-anchors=40", "--stage2-anchors=40", "--markov-rank=4", "--common-tokens=30", "--block-size=4"]
    return parser.parse_args([*paths, *small, f"--target-path={folder / 'target'}", "--taps", "0", "2", *more])


def test_data_become_a_checkpoint_with_its_record(folder, capsys):
    assert run(options(folder)) == 0
    loaded = load_drafter(folder / "out")
    assert loaded.config.block_size == 4
    assert loaded.config.target_layer_ids == (0, 2)
    record = json.loads((folder / "out" / "training.json").read_text())
    assert record["data"]["validation"]["conversations"] == 2
    assert record["held_out"]["law"]["expected_tau"] >= 1
    assert (folder / "out" / "training_log.csv").read_text().startswith("stage,anchors,")
    told = capsys.readouterr()
    assert "features" in told.err
    assert told.out == ""


def test_a_finished_run_can_be_repeated(folder):
    run(options(folder))
    before = (folder / "out" / "model.safetensors").read_bytes()
    run(options(folder))
    assert (folder / "out" / "model.safetensors").read_bytes() == before


def test_another_run_in_the_same_folder_is_refused(folder):
    run(options(folder))
    with pytest.raises(ParameterError, match="seed"):
        run(options(folder, "--seed=5"))


def test_refusals_come_before_the_work(folder):
    with pytest.raises(ParameterError, match="--threads"):
        run(options(folder, "--threads=0"))
    with pytest.raises(ParameterError, match="hours"):
        run(options(folder, "--hours=-1"))
    with pytest.raises(ModelUnavailableError, match="no target"):
        run(options(folder, f"--target-path={folder / 'work'}"))
    assert not (folder / "work").exists()
