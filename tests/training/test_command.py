"""The command: target to checkpoint in steps, resumable, with refusals that name the option, before any long work."""

import argparse
import importlib.util
import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from dspark_core.checkpoint import load_drafter
from dspark_core.errors import CheckpointError, ModelUnavailableError, ParameterError, ResourceError
from dspark_core.training.command import add_arguments, run
from dspark_core.training.data import read_conversations
from dspark_core.training.files import held
from tests.conftest import make_tiny_state
from tests.training.setup import TARGET, conversations, target_state, write_jsonl


@pytest.fixture
def folder(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(TARGET))
    save_file(target_state(), target / "model.safetensors")
    write_jsonl(tmp_path / "data.jsonl.gz", conversations(30))
    return tmp_path


SMALL_LM = ("--lm-hidden=16", "--lm-heads=2", "--lm-mlp=24", "--lm-layers=1")


def options(folder, *more, step="all"):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    paths = [f"--data={folder / 'data.jsonl.gz'}", f"--work={folder / 'work'}", f"--out={folder / 'out'}"]
    small = ["--stage1-anchors=40", "--stage2-anchors=40", "--markov-rank=4", "--common-tokens=30", "--block-size=4"]
    small.append("--mask-token-id=3")
    return parser.parse_args([step, *paths, *small, f"--target-path={folder / 'target'}", "--taps", "0", "2", *more])


def test_data_become_a_checkpoint_with_its_record(folder, capsys):
    assert run(options(folder)) == 0
    loaded = load_drafter(folder / "out")
    assert loaded.config.block_size == 4
    assert loaded.config.target_layer_ids == (0, 2)
    record = json.loads((folder / "out" / "training.json").read_text())
    assert record["optimizers"] == {"matrices 0": "Muon", "matrices 1": "Muon", "others": "AdamW", "tables": "RowAdam"}
    assert record["data"]["validation"]["conversations"] == 2
    assert record["held_out"]["law"]["expected_tau"] >= 1
    assert record["started_from"] is None
    assert (folder / "out" / "training_log.csv").read_text().startswith("stage,anchors,")
    told = capsys.readouterr()
    assert "features" in told.err
    assert told.out == ""


def test_steps_done_one_by_one_give_what_all_of_them_give(folder, capsys):
    run(options(folder, step="cache"))
    assert not (folder / "out").exists()
    before = (folder / "work" / "features" / "features.bin").stat().st_mtime_ns
    run(options(folder, step="fit"))
    assert (folder / "work" / "features" / "features.bin").stat().st_mtime_ns == before
    stepwise = (folder / "out" / "model.safetensors").read_bytes()
    capsys.readouterr()
    run(options(folder, step="evaluate"))
    figures = json.loads(capsys.readouterr().out)
    assert figures["law"]["expected_tau"] >= 1
    shutil.rmtree(folder / "work")
    run(options(folder))
    assert (folder / "out" / "model.safetensors").read_bytes() == stepwise


def test_a_finished_run_can_be_repeated(folder):
    run(options(folder))
    before = (folder / "out" / "model.safetensors").read_bytes()
    run(options(folder))
    assert (folder / "out" / "model.safetensors").read_bytes() == before


def test_a_run_may_begin_with_another_drafters_weights(folder):
    run(options(folder))
    first = load_drafter(folder / "out").modules.state_dict()
    more = [f"--start-from={folder / 'out'}", f"--work={folder / 'more'}", f"--out={folder / 'second'}"]
    run(options(folder, "--stage1-anchors=0", *more))
    second = load_drafter(folder / "second").modules.state_dict()
    assert any(not first[name].equal(second[name]) for name in first)
    near = sum(float((first[name] - second[name]).abs().max()) for name in first if "norm" in name)
    fresh = sum(float((first[name] - 1).abs().max()) for name in first if "norm" in name)
    assert near < fresh
    first_record, second_record = (
        json.loads((folder / name / "training.json").read_text()) for name in ("out", "second")
    )
    assert second_record["started_from"] == first_record
    with pytest.raises(ParameterError, match="num_hidden_layers 2"):
        run(options(folder, *more, "--layers=1", f"--work={folder / 'third'}"))
    assert not (folder / "third").exists()


def test_another_head_and_block_size_begin_anew_on_the_same_layers(folder, capsys):
    run(options(folder))
    start = [f"--start-from={folder / 'out'}", "--stage1-anchors=0", "--stage2-anchors=1", "--rate=1e-9"]
    for name, more in (("rnn", ["--head=rnn", "--block-size=6"]), ("dflash", ["--markov-rank=0"])):
        run(options(folder, *start, *more, f"--work={folder / (name + '-work')}", f"--out={folder / name}"))
    first, rnn, dflash = (load_drafter(folder / name).modules for name in ("out", "rnn", "dflash"))
    said = capsys.readouterr()
    assert "markov_head.joint_proj.weight" in said.out + said.err
    for other in (rnn, dflash):
        torch.testing.assert_close(other.fc.weight, first.fc.weight)
    torch.testing.assert_close(rnn.markov_head.markov_w1.weight, first.markov_head.markov_w1.weight, atol=0.01, rtol=0)
    assert rnn.config.block_size == 6
    assert dflash.markov_head is None


def test_how_confidences_heed_the_law_is_trained_by_itself(folder, capsys):
    """From a drafter of other data, so that its draft vocabulary is not this data's."""
    write_jsonl(folder / "first.jsonl.gz", conversations(30, seed=3))
    run(options(folder, f"--data={folder / 'first.jsonl.gz'}", "--head=rnn"))
    more = [f"--work={folder / 'more'}", f"--out={folder / 'second'}", "--head=rnn", "--only-confidence", "--rate=0.1"]
    with pytest.raises(ParameterError, match="--start-from"):
        run(options(folder, *more, "--stage1-anchors=0"))
    run(options(folder, *more, f"--start-from={folder / 'out'}", "--stage1-anchors=0"))
    first, second = (load_drafter(folder / name).modules.state_dict() for name in ("out", "second"))
    changed = [name for name in second if not first[name].equal(second[name])]
    assert changed == ["law_confidence.weights"]
    vocabularies = [(folder / name / "draft_vocabulary.json").read_text() for name in ("out", "second")]
    assert vocabularies[0] == vocabularies[1]
    record = json.loads((folder / "second" / "training.json").read_text())
    assert record["settings"]["only_confidence"]
    assert record["optimizers"] == {"others": "AdamW"}
    assert "begin anew" not in capsys.readouterr().err


@pytest.mark.parametrize("options_of_head", [["--head=gated"], ["--head=rnn"], ["--head=conv"], ["--markov-rank=0"]])
def test_every_head_trains_and_can_be_loaded(folder, options_of_head):
    run(options(folder, *options_of_head))
    modules = load_drafter(folder / "out").modules
    if options_of_head == ["--markov-rank=0"]:
        assert modules.markov_head is None
        assert modules.confidence_head.proj.weight.shape == (1, 32)
    else:
        assert modules.config.markov_head_type == options_of_head[0].removeprefix("--head=")
        assert modules.markov_head.markov_w2.weight.abs().max() > 0, "the head was not trained"
    assert modules.confidence_head.proj.weight.abs().max() > 0


def test_another_run_in_the_same_folder_is_refused(folder):
    run(options(folder))
    with pytest.raises(ParameterError, match="seed"):
        run(options(folder, "--seed=5"))


@pytest.mark.parametrize(
    ("given", "kind", "named"),
    [
        (["--threads=0"], ParameterError, "workers"),
        (["--hours=-1"], ParameterError, "hours"),
        (["--hours=nan"], ParameterError, "hours"),
        (["--seed=-1"], ParameterError, "seed"),
        (["--common-tokens=0"], ParameterError, "common_tokens"),
        (["--common-tokens=-5"], ParameterError, "common_tokens"),
        (["--block-size=0"], ParameterError, "block_size"),
        (["--block-size=-3"], ParameterError, "block_size"),
        (["--layers=0"], ParameterError, "layers"),
        (["--layers=5"], ParameterError, "5 draft layers"),
        (["--markov-rank=-1"], ParameterError, "markov_rank"),
        (["--markov-rank=33"], ParameterError, "markov_rank"),
        (["--taps", "999"], ParameterError, "999"),
        (["--taps", "3"], ParameterError, "0 to 2"),
        (["--taps", "2", "0"], ParameterError, "rising"),
        (["--taps", "-1"], ParameterError, "taps"),
        (["--mask-token-id=97"], ParameterError, "mask_token_id"),
        (["--mask-token-id=2"], ParameterError, "mask token 2 stands in the texts.*--mask-token-id"),
        (["--cool-weight=nan"], ParameterError, "cool_weight"),
        (["--conversations=-1"], ParameterError, "--conversations"),
        (["--temperatures", "nan"], ParameterError, "temperatures"),
        (["--device=tpu"], ParameterError, "tpu"),
        (["--device=cuda:99"], ResourceError, "cuda:99"),
        (["--target-path=/nowhere"], ModelUnavailableError, "config.json"),
        (["--start-from=/nowhere"], CheckpointError, "/nowhere"),
        (["--data=/nowhere"], ParameterError, "/nowhere"),
    ],
)
def test_refusals_come_before_the_work(folder, given, kind, named):
    with pytest.raises(kind, match=named):
        run(options(folder, *given))
    assert not (folder / "work" / "features").exists()
    assert not (folder / "work" / "state.pt").exists()


def test_features_serve_a_run_with_any_settings_until_one_has_begun(folder):
    run(options(folder, step="cache"))
    assert run(options(folder, "--markov-rank=4", "--rate=0.002", step="fit")) == 0
    with pytest.raises(ParameterError, match="run with other settings"):
        run(options(folder, step="fit"))


def test_features_of_another_target_of_the_same_shape_are_refused(folder):
    run(options(folder, step="cache"))
    save_file(target_state(seed=1), folder / "target" / "model.safetensors")
    for step in ("cache", "fit", "lm"):
        with pytest.raises(ParameterError, match=r"does not belong to this run: the model in .* has other weights"):
            run(options(folder, *SMALL_LM, step=step))
    save_file(target_state(), folder / "target" / "model.safetensors")
    assert run(options(folder)) == 0


def test_a_run_that_goes_on_keeps_the_weights_that_it_began_with(folder):
    for name, seed in (("first", 1), ("other", 2)):
        run(options(folder, f"--seed={seed}", f"--work={folder / name}-work", f"--out={folder / name}"))
    start = ["--stage1-anchors=0", f"--start-from={folder / 'first'}"]
    run(options(folder, *start))
    assert run(options(folder, *start, "--stage2-anchors=50")) == 0
    for more in ([f"--start-from={folder / 'other'}"], []):
        with pytest.raises(ParameterError, match="did not begin with"):
            run(options(folder, "--stage1-anchors=0", *more))


def test_the_weights_that_a_run_begins_with_are_not_overwritten(folder):
    run(options(folder))
    before = (folder / "out" / "model.safetensors").read_bytes()
    with pytest.raises(ParameterError, match="--out and --start-from are the same folder"):
        run(options(folder, f"--start-from={folder / 'out'}", f"--work={folder / 'more'}"))
    assert (folder / "out" / "model.safetensors").read_bytes() == before
    assert not (folder / "more").exists()


@pytest.mark.parametrize("step", ["fit", "lm"])
def test_a_model_is_not_overwritten_by_what_is_trained_for_it(folder, step):
    before = (folder / "target" / "model.safetensors").read_bytes()
    with pytest.raises(ParameterError, match=r"holds something else .model_type 'llama'.*folder of its own"):
        run(options(folder, f"--out={folder / 'target'}", *SMALL_LM, step=step))
    assert (folder / "target" / "model.safetensors").read_bytes() == before
    assert not (folder / "work").exists()


def test_a_conversation_beyond_the_targets_context_is_refused_before_the_work(folder):
    short, long = (json.dumps({"p": [5], "r": [6] * count, "T": 0}) + "\n" for count in (2, 256))
    (folder / "long.jsonl").write_text(short * 40 + long)
    with pytest.raises(ParameterError, match=r"long.jsonl line 41 has 257 tokens.*context holds 256"):
        run(options(folder, f"--data={folder / 'long.jsonl'}"))
    assert not (folder / "work" / "features").exists()


def test_evaluation_needs_no_more_of_the_runs_options_than_its_features(folder, capsys):
    run(options(folder))
    kept = (folder / "work" / "settings.json").read_bytes()
    run(options(folder, step="evaluate"))
    told = capsys.readouterr().out
    run(options(folder, "--block-size=7", "--common-tokens=90", step="evaluate"))
    assert capsys.readouterr().out == told, "the checkpoint's own length and draft vocabulary are what counts"
    assert (folder / "work" / "settings.json").read_bytes() == kept


def test_a_drafter_of_another_target_is_not_evaluated(folder):
    run(options(folder))
    wide = {**TARGET, "vocab_size": 120}
    (folder / "target" / "config.json").write_text(json.dumps(wide))
    save_file(make_tiny_state(wide), folder / "target" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"vocabulary size 97.*120"):
        run(options(folder, f"--work={folder / 'more'}", step="evaluate"))


@pytest.mark.parametrize("name", ["--data", "--work", "--out", "--start-from", "--target-path"])
def test_an_empty_path_is_not_the_folder_that_one_is_in(folder, name, capsys):
    with pytest.raises(SystemExit):
        options(folder, f"{name}=")
    assert f"{name}: it is empty" in capsys.readouterr().err


def test_a_picture_that_cannot_be_drawn_does_not_end_the_run(folder, capsys):
    (folder / "work" / "curve.png").mkdir(parents=True)
    assert run(options(folder)) == 0
    if importlib.util.find_spec("matplotlib") is not None:
        assert "curve.png cannot be written" in capsys.readouterr().err
    assert not (folder / "work" / ".curve.png.tmp").exists()


def test_a_finished_run_whose_log_was_deleted_still_writes_its_checkpoint(folder):
    run(options(folder))
    (folder / "work" / "log.jsonl").unlink()
    assert run(options(folder)) == 0


def test_two_runs_in_one_work_folder_are_kept_apart(folder):
    (folder / "work").mkdir()
    with held(folder / "work" / ".lock"), pytest.raises(ResourceError, match="Another run"):
        run(options(folder))
    assert run(options(folder)) == 0


def test_ids_that_the_target_does_not_know_are_refused_before_the_work(folder):
    (folder / "alien.jsonl").write_text('{"p": [5], "r": [97, 2], "T": 0}\n' * 40)
    with pytest.raises(ParameterError, match="97"):
        run(options(folder, f"--data={folder / 'alien.jsonl'}"))
    assert not (folder / "work" / "features").exists()


def test_an_output_folder_that_cannot_be_one_is_refused_before_the_work(folder):
    (folder / "file").write_text("")
    with pytest.raises(ParameterError, match="file"):
        run(options(folder, f"--out={folder / 'file'}"))
    assert not (folder / "work" / "features").exists()


@pytest.mark.parametrize(("step", "missing"), [("cache", "--work"), ("fit", "--out"), ("evaluate", "--out")])
def test_a_step_names_the_folder_that_it_needs(folder, step, missing):
    args = options(folder, step=step)
    setattr(args, missing.removeprefix("--"), None)
    with pytest.raises(ParameterError, match=missing):
        run(args)


def test_the_target_writes_its_own_data(smollm2_folder, tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    common = ["synthesise", f"--data={tmp_path / 'own'}", f"--target-path={smollm2_folder}"]
    small = ["--rows=4", "--answer-tokens=6", "--temperatures", "0", "1"]
    with pytest.raises(ParameterError, match="--conversations"):
        run(parser.parse_args([*common, *small]))
    assert run(parser.parse_args([*common, *small, "--conversations=3"])) == 0
    written = read_conversations(tmp_path / "own")
    assert len(written) == 3
    assert {c.temperature for c in written} <= {0.0, 1.0}
    assert "3/3" in capsys.readouterr().err
    (tmp_path / "file.jsonl").write_text("")
    with pytest.raises(ParameterError, match="folder"):
        run(parser.parse_args([*common[:1], f"--data={tmp_path / 'file.jsonl'}", *common[2:], "--conversations=3"]))
