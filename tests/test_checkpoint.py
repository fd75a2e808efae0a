"""Drafter checkpoints: DeepSpec's names and shapes, round trips, clear refusals, whole files or none."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_core.checkpoint import expected_shapes, export_drafter, load_drafter, read_config, save_drafter
from dspark_core.errors import CheckpointError
from tests.modules.tiny import H, V, tiny_config, tiny_drafter


@pytest.fixture
def saved(tmp_path):
    drafter = tiny_drafter()
    save_drafter(tmp_path / "tiny", drafter.config, drafter.state_dict())
    return tmp_path / "tiny"


def rewrite(folder, **changes):
    data = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(data | changes))


def test_names_and_shapes_are_deepspecs():
    config = tiny_config(num_hidden_layers=1, embed_tokens_from_target=False, lm_head_from_target=False)
    layer = {
        "input_layernorm": (16,),
        "post_attention_layernorm": (16,),
        "self_attn.q_proj": (16, 16),
        "self_attn.k_proj": (8, 16),
        "self_attn.v_proj": (8, 16),
        "self_attn.o_proj": (16, 16),
        "self_attn.q_norm": (4,),
        "self_attn.k_norm": (4,),
        "mlp.gate_proj": (24, 16),
        "mlp.up_proj": (24, 16),
        "mlp.down_proj": (16, 24),
    }
    assert expected_shapes(config) == {
        "embed_tokens.weight": (V, H),
        "lm_head.weight": (V, H),
        "fc.weight": (H, 2 * H),
        "hidden_norm.weight": (H,),
        "norm.weight": (H,),
        "markov_head.markov_w1.weight": (V, 6),
        "markov_head.markov_w2.weight": (V, 6),
        "confidence_head.proj.weight": (1, H + 6),
        "confidence_head.proj.bias": (1,),
    } | {f"layers.0.{name}.weight": shape for name, shape in layer.items()}


def test_round_trip_keeps_config_and_weights(saved):
    loaded = load_drafter(saved)
    assert loaded.config == tiny_config()
    assert loaded.embed_tokens is None
    assert loaded.lm_head is None
    original = tiny_drafter().state_dict()
    assert loaded.modules.state_dict().keys() == original.keys()
    assert all(torch.equal(value, original[name]) for name, value in loaded.modules.state_dict().items())
    assert not any(p.requires_grad for p in loaded.modules.parameters())


def test_weights_are_stored_in_the_configs_dtype(tmp_path):
    drafter = tiny_drafter(dtype="bfloat16")
    save_drafter(tmp_path, drafter.config, drafter.state_dict())
    assert {t.dtype for t in load_file(tmp_path / "model.safetensors").values()} == {torch.bfloat16}
    assert load_drafter(tmp_path, dtype=torch.float32).modules.fc.weight.dtype == torch.float32


def test_saving_over_an_old_checkpoint_leaves_two_whole_files(saved):
    drafter = tiny_drafter(seed=1)
    save_drafter(saved, drafter.config, drafter.state_dict())
    assert sorted(path.name for path in saved.iterdir()) == ["config.json", "model.safetensors"]
    assert torch.equal(load_drafter(saved).modules.fc.weight, drafter.fc.weight)


def test_export_writes_the_full_set(saved, tmp_path):
    embed = torch.randn(V, H)
    export_drafter(saved, tmp_path / "full", embed_tokens=embed, lm_head=embed)
    loaded = load_drafter(tmp_path / "full")
    assert not loaded.config.embed_tokens_from_target
    assert torch.equal(loaded.embed_tokens, embed)
    assert torch.equal(loaded.lm_head, embed)
    assert load_file(tmp_path / "full" / "model.safetensors").keys() == expected_shapes(loaded.config).keys()
    data = json.loads((tmp_path / "full" / "config.json").read_text())
    assert data["architectures"] == ["Qwen3DSparkModel"]


def test_missing_surplus_and_misshapen_tensors_are_named(saved):
    file = saved / "model.safetensors"
    good = load_file(file)
    save_file({name: t for name, t in good.items() if name != "fc.weight"}, file)
    with pytest.raises(CheckpointError, match=r"Missing: fc\.weight"):
        load_drafter(saved)
    save_file(good | {"d2t": torch.zeros(3)}, file)
    with pytest.raises(CheckpointError, match="surplus: d2t"):
        load_drafter(saved)
    save_file(good | {"fc.weight": torch.zeros(H, 3 * H)}, file)
    with pytest.raises(CheckpointError, match=r"fc\.weight has shape \[16, 48\]"):
        load_drafter(saved)


def test_tables_promised_by_the_config_must_be_there(saved):
    rewrite(saved, lm_head_from_target=False)
    with pytest.raises(CheckpointError, match=r"Missing: lm_head\.weight"):
        load_drafter(saved)


def test_saving_incomplete_tensors_is_refused_before_anything_is_written(tmp_path):
    tensors = tiny_drafter().state_dict()
    del tensors["norm.weight"]
    with pytest.raises(CheckpointError, match=r"norm\.weight"):
        save_drafter(tmp_path / "new", tiny_config(), tensors)
    assert not (tmp_path / "new").exists()


def test_damaged_files_are_told_apart(saved, tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        read_config(tmp_path / "nothing")
    (saved / "model.safetensors").write_bytes((saved / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_drafter(saved)
    (saved / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="weights"):
        load_drafter(saved)
    (saved / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        load_drafter(saved)
    (saved / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="not an object"):
        load_drafter(saved)


def test_a_file_nested_without_end_is_refused(saved):
    (saved / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="nested too deeply"):
        load_drafter(saved)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.bool, torch.float64, torch.complex64])
def test_weights_of_another_kind_of_number_are_refused_by_name(saved, dtype):
    file = saved / "model.safetensors"
    good = load_file(file)
    save_file(good | {"fc.weight": good["fc.weight"].to(dtype)}, file)
    with pytest.raises(CheckpointError, match=f"fc.weight is stored as {dtype}".replace("torch.", "")):
        load_drafter(saved)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_weights_that_are_not_finite_in_the_type_computed_in_are_refused_by_name(saved, value):
    file = saved / "model.safetensors"
    good = load_file(file)
    good["fc.weight"][3, 4] = value
    save_file(good, file)
    with pytest.raises(CheckpointError, match=r"fc\.weight holds values that are not finite in float16"):
        load_drafter(saved, dtype=torch.float16)


def test_other_layouts_are_refused_before_the_weights_are_touched(saved):
    (saved / "model.safetensors").write_bytes(b"not even safetensors")
    rewrite(saved, dflash_config={"target_layer_ids": [1]})
    with pytest.raises(CheckpointError, match="z-lab"):
        load_drafter(saved)


def test_a_head_of_unknown_kind_is_refused_by_name(saved):
    rewrite(saved, markov_head_type="lstm")
    with pytest.raises(CheckpointError, match="lstm"):
        load_drafter(saved)


@pytest.mark.parametrize(("kind", "tensor"), [("gated", "gate_proj"), ("rnn", "joint_proj"), ("conv", "conv_weight")])
def test_each_kind_of_head_loads_and_needs_its_own_tensors(saved, tmp_path, kind, tensor):
    drafter = tiny_drafter(markov_head_type=kind)
    save_drafter(tmp_path / kind, drafter.config, drafter.state_dict())
    loaded = load_drafter(tmp_path / kind)
    assert loaded.config.markov_head_type == kind
    assert all(torch.equal(loaded.modules.state_dict()[name], value) for name, value in drafter.state_dict().items())
    rewrite(saved, markov_head_type=kind)
    with pytest.raises(CheckpointError, match=tensor):
        load_drafter(saved)


def test_a_drafter_without_heads_loads(tmp_path):
    drafter = tiny_drafter(markov_rank=0, enable_confidence_head=False)
    save_drafter(tmp_path, drafter.config, drafter.state_dict())
    assert load_drafter(tmp_path).modules.heads() == (None, None)
