"""Export: DeepSpec's names, shapes and keys, spelt out here; the same drafts when read back; whole, or refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_core.calibration.file import FILE_NAME as CALIBRATION
from dspark_core.calibration.file import read_calibration, weights_sha256, write_calibration
from dspark_core.checkpoint import load_drafter, read_config, save_drafter
from dspark_core.cli import main
from dspark_core.deepspec import write_deepspec
from dspark_core.drafters.vocabulary import FILE_NAME as VOCABULARY
from dspark_core.drafters.vocabulary import read_draft_vocabulary
from dspark_core.errors import CheckpointError, ModelUnavailableError
from dspark_core.loading import load_drafters
from dspark_core.target.llama import LlamaTarget
from tests.drafts import same_drafts, some_drafts
from tests.modules.tiny import GAMMA, tiny_drafter
from tests.target.families import make_model
from tests.toy import toy_calibration

H, V, R, M = 32, 97, 6, 2  # hidden size, vocabulary, Markov rank, tapped layers
DRAFTED = tuple(range(3, V, 5))


@pytest.fixture
def target(tmp_path, tiny_config, tiny_state):
    """A tied Llama of bfloat16 numbers, as the target's folder."""
    return save_target(tmp_path / "target", tiny_config, tiny_state(tiny_config))


def save_target(folder, config, state):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    save_file({name: value.bfloat16() for name, value in state.items()}, folder / "model.safetensors")
    return folder


def save_source(folder, *, compact=True, **changes):
    sizes = {"hidden_size": H, "vocab_size": V, "dtype": "bfloat16"}
    drafter = tiny_drafter(**(sizes | changes))
    save_drafter(folder, drafter.config, drafter.state_dict(), draft_vocabulary=DRAFTED if compact else None)
    return folder


@pytest.fixture
def source(tmp_path):
    """A drafter in our own form: the target's tables left out, W2 compact, a draft vocabulary and a calibration."""
    folder = save_source(tmp_path / "source")
    write_calibration(folder / CALIBRATION, toy_calibration(weights_sha256(folder), GAMMA))
    return folder


def drafts(folder, target):
    return some_drafts(next(iter(load_drafters(folder, str(folder), target).values())))


def run(*words):
    return main(["export", *map(str, words)])


# The published table: name → shape.
EVERY = {
    "embed_tokens.weight": (V, H),
    "lm_head.weight": (V, H),
    "fc.weight": (H, M * H),
    "hidden_norm.weight": (H,),
    "norm.weight": (H,),
}
LAYER = {
    "input_layernorm.weight": (H,),
    "post_attention_layernorm.weight": (H,),
    "self_attn.q_proj.weight": (16, H),
    "self_attn.k_proj.weight": (8, H),
    "self_attn.v_proj.weight": (8, H),
    "self_attn.o_proj.weight": (H, 16),
    "self_attn.q_norm.weight": (4,),
    "self_attn.k_norm.weight": (4,),
    "mlp.gate_proj.weight": (24, H),
    "mlp.up_proj.weight": (24, H),
    "mlp.down_proj.weight": (H, 24),
}
MARKOV = {"markov_head.markov_w1.weight": (V, R), "markov_head.markov_w2.weight": (V, R)}
CONFIDENCE = {"confidence_head.proj.weight": (1, H + R), "confidence_head.proj.bias": (1,)}
GATED = {"markov_head.gate_proj.weight": (R, H + R), "markov_head.gate_proj.bias": (R,)}
RNN = {"markov_head.joint_proj.weight": (3 * R, 2 * R + H), "markov_head.joint_proj.bias": (3 * R,)}
PUBLISHED = {
    "vanilla": ({"markov_head_type": "vanilla"}, MARKOV | CONFIDENCE),
    "gated": ({"markov_head_type": "gated"}, MARKOV | CONFIDENCE | GATED),
    "rnn": ({"markov_head_type": "rnn"}, MARKOV | CONFIDENCE | RNN),
    "no confidence": ({"enable_confidence_head": False}, MARKOV),
    "confidence without Markov": (
        {"confidence_head_with_markov": False},
        MARKOV | {"confidence_head.proj.weight": (1, H), "confidence_head.proj.bias": (1,)},
    ),
    "dflash": ({"markov_rank": 0, "enable_confidence_head": False}, {}),
}


@pytest.mark.parametrize("kind", PUBLISHED)
@pytest.mark.parametrize("compact", [True, False])
def test_names_shapes_and_type_are_the_published_ones(tmp_path, target, kind, compact):
    changes, heads = PUBLISHED[kind]
    write_deepspec(save_source(tmp_path / "source", compact=compact, **changes), target, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    layers = {f"layers.{index}.{name}": shape for index in (0, 1) for name, shape in LAYER.items()}
    assert {name: tuple(value.shape) for name, value in found.items()} == EVERY | layers | heads
    assert {value.dtype for value in found.values()} == {torch.bfloat16}


def test_the_tables_are_the_targets_and_a_compact_w2_is_written_out(source, target, tmp_path):
    write_deepspec(source, target, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    table = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(found["embed_tokens.weight"], table)
    assert torch.equal(found["lm_head.weight"], table)
    w2 = tiny_drafter(hidden_size=H, vocab_size=V).state_dict()["markov_head.markov_w2.weight"].bfloat16()
    assert torch.equal(found["markov_head.markov_w2.weight"][list(DRAFTED)], w2[list(DRAFTED)])
    assert not found["markov_head.markov_w2.weight"][[0, 1, 2]].any()


def test_the_config_is_the_targets_with_the_drafters_keys(source, target, tmp_path):
    write_deepspec(source, target, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {
        # of the target
        "eos_token_id": 2,
        # DeepSpec's
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "num_target_layers": 4,
        "num_hidden_layers": 2,
        "block_size": 5,
        "mask_token_id": 3,
        "target_layer_ids": [0, 1],
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "markov_rank": 6,
        "markov_head_type": "vanilla",
        "num_anchors": 0,
        "tie_word_embeddings": False,
        "layer_types": ["full_attention", "full_attention"],
        "use_sliding_window": False,
        # shapes of the draft layers, as transformers names them
        "hidden_size": 32,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "vocab_size": 97,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        # spelt as transformers 5 and as older loaders read it
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "rope_theta": 10000.0,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def test_a_config_of_rank_0_names_no_head(target, tmp_path):
    write_deepspec(save_source(tmp_path / "source", **PUBLISHED["dflash"][0]), target, tmp_path / "out")
    values = json.loads((tmp_path / "out" / "config.json").read_text())
    assert values["markov_rank"] == 0
    assert "markov_head_type" not in values


def test_what_the_target_computes_in_its_own_way_stays_out_of_the_config(source, target, tmp_path):
    values = json.loads((target / "config.json").read_text())
    theirs = {"auto_map": {"AutoModel": "code.py"}, "rope_scaling": None, "sliding_window": 7, "bos_token_id": 1}
    (target / "config.json").write_text(json.dumps(values | theirs | {"rope_parameters": None, "rope_theta": 500.0}))
    write_deepspec(source, target, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert not {"auto_map", "rope_scaling", "sliding_window"} & written.keys()
    assert written["bos_token_id"] == 1
    assert written["rope_theta"] == written["rope_parameters"]["rope_theta"] == 10000.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_read_back_it_drafts_bit_for_bit_as_the_original(source, target, tmp_path, dtype):
    write_deepspec(source, target, tmp_path / "out")
    loaded = LlamaTarget.load(target, dtype=dtype)
    ours = drafts(source, loaded)
    assert same_drafts(ours, drafts(tmp_path / "out", loaded))
    assert all(block.raw_confidences is not None for block in ours)
    (tmp_path / "out" / VOCABULARY).unlink()
    assert not same_drafts(ours, drafts(tmp_path / "out", loaded)), "the vocabulary changes nothing: this shows nothing"


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3"])
def test_tables_are_taken_from_targets_of_each_kind_as_the_drafter_reads_them(tmp_path, name):
    """Untied, tied, and with an embedding that is scaled on its way in."""
    make_model(name).bfloat16().save_pretrained(tmp_path / "target")
    source = save_source(tmp_path / "source")
    write_deepspec(source, tmp_path / "target", tmp_path / "out")
    loaded = LlamaTarget.load(tmp_path / "target", dtype=torch.bfloat16)
    assert same_drafts(drafts(source, loaded), drafts(tmp_path / "out", loaded))


def test_a_target_that_caps_its_logits_is_refused(tmp_path):
    make_model("gemma3-untied-capped").save_pretrained(tmp_path / "target")
    with pytest.raises(CheckpointError, match=r"caps its logits at 3.*Use it here"):
        write_deepspec(save_source(tmp_path / "source"), tmp_path / "target", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_can_be_exported_again_to_the_same_files(source, target, tmp_path):
    write_deepspec(source, target, tmp_path / "out")
    write_deepspec(tmp_path / "out", target, tmp_path / "again")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("out", "again")
    )
    assert first == second
    assert first.keys() == {"config.json", "model.safetensors", VOCABULARY, CALIBRATION}


def test_a_terminal_obeys_no_path(source, target, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run("--model", target, "--draft-model", source, "--out", tmp_path / "a\x1b[31mb") == 0
    assert "a[31mb" in capsys.readouterr().out


def test_what_is_ours_alone_is_kept_beside_and_told(source, target, tmp_path, capsys):
    assert run("--model", target, "--draft-model", source, "--out", tmp_path / "out") == 0
    output = capsys.readouterr()
    assert f"{len(DRAFTED)} of {V} tokens" in output.err
    assert "other engines draft over the full vocabulary" in output.err
    assert "confidences as the head gives them" in output.err
    assert output.out.startswith(f"written: {tmp_path / 'out'} (")
    assert read_draft_vocabulary(tmp_path / "out", V) == DRAFTED
    calibration, note = read_calibration(tmp_path / "out", GAMMA)
    assert note == ""
    assert calibration.settings == toy_calibration("", GAMMA).settings


def test_a_drafter_with_nothing_of_ours_is_exported_without_a_word(target, tmp_path, capsys):
    source = save_source(tmp_path / "source", compact=False)
    assert run("--model", target, "--draft-model", source, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().err == ""
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def test_a_copy_head_is_left_out_and_told(target, tmp_path):
    source = save_source(tmp_path / "source", compact=False, copy_longest=8)
    write_calibration(source / CALIBRATION, toy_calibration(weights_sha256(source), GAMMA))
    notes = write_deepspec(source, target, tmp_path / "out")
    assert [note for note in notes if "copy head was left out" in note]
    assert not (tmp_path / "out" / CALIBRATION).exists()
    assert any("calibration was left out" in note and "copy head" in note for note in notes)
    assert not [name for name in load_file(tmp_path / "out" / "model.safetensors") if "copy" in name]
    assert read_config(tmp_path / "out").copy_longest == 0


def test_that_confidences_heed_the_law_is_left_out_and_told(target, tmp_path):
    source = save_source(tmp_path / "source", compact=False, confidence_reads_law=True)
    notes = write_deepspec(source, target, tmp_path / "out")
    assert [note for note in notes if "the head's own confidences" in note]
    assert not [name for name in load_file(tmp_path / "out" / "model.safetensors") if "law" in name]
    assert not read_config(tmp_path / "out").confidence_reads_law


def test_rounding_to_bfloat16_is_told(target, tmp_path):
    source = save_source(tmp_path / "source", compact=False, dtype="float32")
    assert write_deepspec(source, target, tmp_path / "out") == [
        "The weights were float32 and are rounded to bfloat16, the published files' type."
    ]


def test_a_calibration_of_other_weights_is_left_out_and_told(source, target, tmp_path):
    write_calibration(source / CALIBRATION, toy_calibration("f" * 64, GAMMA))
    notes = write_deepspec(source, target, tmp_path / "out")
    assert any("calibration was left out" in note and "other weights" in note for note in notes)
    assert not (tmp_path / "out" / CALIBRATION).exists()


def refused(capsys, *words):
    assert run(*words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    return output.err


def test_a_head_of_our_own_is_refused_with_the_way_out(target, tmp_path, capsys):
    source = save_source(tmp_path / "source", markov_head_type="conv")
    told = refused(capsys, "--model", target, "--draft-model", source, "--out", tmp_path / "out")
    assert "'conv'" in told
    assert "vanilla, gated, rnn" in told
    assert f"train --start-from {source} --head gated" in told
    assert not (tmp_path / "out").exists()
    with pytest.raises(CheckpointError, match="'conv'"):
        write_deepspec(source, target, tmp_path / "out")


def test_a_folder_with_other_content_is_refused_and_stays(source, target, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "diary.txt").write_text("mine")
    words = ("--model", target, "--draft-model", source, "--out", tmp_path / "out")
    assert "is not empty (it holds 'diary.txt')" in refused(capsys, *words)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["diary.txt"]
    (tmp_path / "out" / "diary.txt").unlink()
    assert run(*words) == 0


def test_an_unknown_drafter_none_and_a_language_model_are_refused(target, tmp_path, capsys):
    out = ("--model", target, "--out", tmp_path / "out")
    assert "no drafter 'eagle9'" in refused(capsys, *out, "--draft-model", "eagle9")
    assert "no drafter to export" in refused(capsys, *out, "--draft-model", "none")
    assert "no drafter to export" in refused(capsys, *out)  # nothing ships for this target
    shutil.copytree(target, tmp_path / "lm")
    values = json.loads((tmp_path / "lm" / "config.json").read_text())
    (tmp_path / "lm" / "config.json").write_text(json.dumps(values | {"architectures": ["LlamaForCausalLM"]}))
    assert "read its folder as it is" in refused(capsys, *out, "--draft-model", tmp_path / "lm")
    assert not (tmp_path / "out").exists()


def test_one_drafter_is_exported_at_a_time(source, target, tmp_path, capsys):
    other = save_source(tmp_path / "other", markov_head_type="rnn")
    words = ("--model", target, "--draft-model", f"{source},{other}", "--out", tmp_path / "out")
    assert "names 2 drafters; one is exported at a time" in refused(capsys, *words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 96}, "vocabulary size 96, this target has 97"),
        ({"hidden_size": 16}, "hidden size 16, this target has 32"),
        ({"num_target_layers": 6}, "number of layers 6, this target has 4"),
    ],
)
def test_a_target_that_does_not_fit_is_refused(target, tmp_path, capsys, changes, words):
    source = save_source(tmp_path / "source", compact=False, **changes)
    assert words in refused(capsys, "--model", target, "--draft-model", source, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_target_without_its_tables_is_told(source, target, tmp_path):
    state = load_file(target / "model.safetensors")
    del state["model.embed_tokens.weight"]
    save_file(state, target / "model.safetensors")
    with pytest.raises(ModelUnavailableError, match="embed_tokens"):
        write_deepspec(source, target, tmp_path / "out")


@pytest.mark.parametrize("file", ["model.safetensors", VOCABULARY, CALIBRATION, "config.json"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_at_any_file_leaves_nothing(
    source, target, tmp_path, capsys, monkeypatch, file, error
):
    from os import replace

    def fail(place, goal):
        if goal.name == file:
            raise error
        replace(place, goal)

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("os.replace", fail)
    code = run("--model", target, "--draft-model", source, "--out", tmp_path / "out")
    told = capsys.readouterr().err
    if isinstance(error, OSError):
        assert code == 2
        assert f"{file} cannot be written (No space left on device). Free some space" in told
    else:
        assert code == 130
    assert sorted(tmp_path.iterdir()) == before


def without_our_heads(source, folder):
    """The same drafter as what an export keeps of it, in our own form."""
    loaded = load_drafter(source, dtype=torch.bfloat16)
    ours = ("copy_head.", "law_confidence.")
    tensors = {name: value for name, value in loaded.modules.state_dict().items() if not name.startswith(ours)}
    vocabulary = read_draft_vocabulary(source, loaded.config.vocab_size)
    config = replace(loaded.config, copy_longest=0, confidence_reads_law=False)
    save_drafter(folder, config, tensors, draft_vocabulary=vocabulary)
    return folder


@pytest.mark.slow
def test_the_shipped_drafter_is_exported_and_drafts_bit_for_bit_as_without_heads_of_our_own(
    smollm2_folder, smollm2, tmp_path, capsys
):
    assert run("--out", tmp_path / "out") == 0
    assert "tokens. DeepSpec's layout has no place for that" in capsys.readouterr().err
    found = load_file(tmp_path / "out" / "model.safetensors")
    table = load_file(smollm2_folder / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(found["embed_tokens.weight"], table)
    assert torch.equal(found["lm_head.weight"], table)
    from dspark_core.catalog import find_model
    from dspark_core.draft_folders import find_draft_folders

    found_model = find_model("smollm2-135m")
    shipped = next(iter(load_drafters(found_model, "auto", smollm2).values()))
    source = find_draft_folders(found_model, "dspark")["dspark"].path
    plain = without_our_heads(source, tmp_path / "plain")
    assert same_drafts(drafts(plain, smollm2), drafts(tmp_path / "out", smollm2))
    assert not same_drafts(some_drafts(shipped), drafts(plain, smollm2)), "the copy head changes nothing"
