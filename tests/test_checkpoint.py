"""Drafter checkpoints: DeepSpec's names and shapes, round trips, clear refusals, whole files or none."""

import json

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from dspark_core.checkpoint import expected_shapes, load_drafter, read_config, save_drafter
from dspark_core.drafters.dspark import DSparkDrafter
from dspark_core.drafters.vocabulary import read_draft_vocabulary, write_draft_vocabulary
from dspark_core.errors import CheckpointError, ResourceError
from dspark_core.modules.config import HEAD_TYPES
from tests.drafts import same_drafts, some_drafts
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


DRAFTED = (2, 5, 6, 30, 39)


@pytest.fixture
def compact(tmp_path):
    """The drafter of `saved`, with W2's rows of the drafted tokens alone."""
    drafter = tiny_drafter()
    save_drafter(tmp_path / "compact", drafter.config, drafter.state_dict(), draft_vocabulary=(30, 2, 6, 5, 39))
    return tmp_path / "compact"


def test_the_compact_form_holds_the_drafted_tokens_rows_of_w2_and_all_else_as_it_is(saved, compact):
    full, part = load_file(saved / "model.safetensors"), load_file(compact / "model.safetensors")
    w2 = part.pop("markov_head.markov_w2.weight")
    assert torch.equal(w2, full.pop("markov_head.markov_w2.weight")[list(DRAFTED)])
    assert part.keys() == full.keys()
    assert all(torch.equal(part[name], full[name]) for name in full)
    assert json.loads((compact / "config.json").read_text())["markov_w2_rows"] == "draft_vocabulary"
    assert "markov_w2_rows" not in json.loads((saved / "config.json").read_text())
    assert read_draft_vocabulary(compact, V) == DRAFTED


def test_a_compact_w2_is_loaded_at_full_size_with_zeros_for_the_rest(saved, compact):
    loaded, full = load_drafter(compact), load_drafter(saved)
    w2, whole = loaded.modules.markov_head.markov_w2.weight, full.modules.markov_head.markov_w2.weight
    others = [token for token in range(V) if token not in DRAFTED]
    assert w2.shape == whole.shape
    assert torch.equal(w2[list(DRAFTED)], whole[list(DRAFTED)])
    assert not w2[others].any()
    assert whole[others].any(), "the other rows hold nothing: this test shows nothing"
    assert loaded.config == full.config
    assert torch.equal(loaded.modules.markov_head.markov_w1.weight, full.modules.markov_head.markov_w1.weight)


@pytest.mark.parametrize("head", HEAD_TYPES)
def test_a_compact_drafter_drafts_exactly_as_the_full_one(tmp_path, tiny_target, head):
    drafted = range(3, 97, 5)
    drafter = tiny_drafter(hidden_size=32, vocab_size=97, markov_head_type=head)
    save_drafter(tmp_path / "full", drafter.config, drafter.state_dict())
    write_draft_vocabulary(tmp_path / "full", drafted)
    save_drafter(tmp_path / "compact", drafter.config, drafter.state_dict(), draft_vocabulary=drafted)
    full, compact = (
        some_drafts(
            DSparkDrafter(load_drafter(folder), tiny_target, draft_vocabulary=read_draft_vocabulary(folder, 97))
        )
        for folder in (tmp_path / "full", tmp_path / "compact")
    )
    assert same_drafts(full, compact)
    plain = some_drafts(DSparkDrafter(load_drafter(tmp_path / "full"), tiny_target).without_head())
    assert not same_drafts(full, plain), "the head changes nothing: this test shows nothing"


def test_a_drafter_without_a_head_has_nothing_to_make_compact(tmp_path):
    drafter = tiny_drafter(markov_rank=0, enable_confidence_head=False)
    save_drafter(tmp_path, drafter.config, drafter.state_dict(), draft_vocabulary=DRAFTED)
    assert load_drafter(tmp_path).modules.heads() == (None, None)
    assert read_draft_vocabulary(tmp_path, V) == DRAFTED


def test_rows_are_never_read_as_those_of_other_tokens(compact):
    write_draft_vocabulary(compact, (2, 5, 6, 30, 38))  # as many
    with pytest.raises(
        CheckpointError, match=r"draft_vocabulary\.json is not the one that the weights were saved with"
    ):
        load_drafter(compact)
    (compact / "draft_vocabulary.json").unlink()
    with pytest.raises(CheckpointError, match=r"draft_vocabulary\.json is missing"):
        load_drafter(compact)


def test_a_kill_between_the_files_of_a_compact_drafter_leaves_a_folder_that_is_whole_or_refused(compact, monkeypatch):
    from os import replace

    drafter = tiny_drafter(seed=1)
    others = (1, 5, 6, 30, 39)
    for number in range(3):  # vocabulary, weights, config
        left = iter(range(number))

        def killed(*paths, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(*paths)

        with monkeypatch.context() as patch:
            patch.setattr("os.replace", killed)
            with pytest.raises(KeyboardInterrupt):
                save_drafter(compact, drafter.config, drafter.state_dict(), draft_vocabulary=others)
        weights = tiny_drafter(seed=0 if number == 0 else 1).fc.weight
        if number == 1:
            with pytest.raises(CheckpointError, match="is not the one"):
                load_drafter(compact)
        else:
            assert torch.equal(load_drafter(compact).modules.fc.weight, weights)


@pytest.mark.parametrize(("kind", "words"), [("some", "must be 'all' or"), (3, "must be a text")])
def test_a_way_to_store_rows_that_is_unknown_is_refused(compact, kind, words):
    rewrite(compact, markov_w2_rows=kind)
    with pytest.raises(CheckpointError, match=f"markov_w2_rows is .*{words}"):
        load_drafter(compact)


def test_the_mark_and_the_rows_must_agree(saved, compact):
    write_draft_vocabulary(saved, DRAFTED)
    rewrite(saved, markov_w2_rows="draft_vocabulary")
    with pytest.raises(CheckpointError, match="is not the one"):
        load_drafter(saved)
    rewrite(compact, markov_w2_rows="all")
    with pytest.raises(CheckpointError, match=r"markov_w2\.weight has shape \[5, 6\], the config asks for \[40, 6\]"):
        load_drafter(compact)


def test_a_drafted_token_outside_the_vocabulary_is_refused_before_anything_is_written(tmp_path):
    drafter = tiny_drafter()
    with pytest.raises(CheckpointError, match=f"draft vocabulary .* 0 to {V - 1}"):
        save_drafter(tmp_path / "new", drafter.config, drafter.state_dict(), draft_vocabulary=(1, V))
    assert not (tmp_path / "new").exists()


def test_a_full_disk_is_told_and_the_old_weights_stay(saved, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    monkeypatch.setattr("dspark_core.checkpoint.save_file", full)
    with pytest.raises(ResourceError, match=r"model\.safetensors cannot be written .*No space left"):
        save_drafter(saved, tiny_config(), tiny_drafter(seed=1).state_dict())
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
