"""The target's pass: equal to transformers', ragged, exact after crops, blind to neighbours and to unused memory."""

from __future__ import annotations

import math

import pytest
import torch

from dspark_core.errors import ModelUnavailableError, ParameterError, ResourceError
from dspark_core.target import llama
from dspark_core.target.config import LlamaConfig
from dspark_core.target.llama import LlamaTarget

TAPS = (0, 2)


def tokens(count, seed=0):
    return torch.randint(0, 97, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def whole_pass(target, ids):
    slot = target.open_slot(len(ids))
    return target.forward([slot], [ids], tapped_layers=TAPS)[0]


def assert_close(found, expected, tolerance=1e-4):
    assert found.shape == expected.shape
    assert torch.isfinite(found).all()
    assert (found - expected).abs().max() < tolerance


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 500.0},
        {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ],
    ids=["default", "llama3"],
)
def test_logits_and_taps_equal_transformers(tiny_config, tiny_state, monkeypatch, tied, rope):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import LlamaConfig as TheirConfig
    from transformers import LlamaForCausalLM

    values = tiny_config | {"tie_word_embeddings": tied, "rope_parameters": rope}
    state = tiny_state(values)
    theirs = LlamaForCausalLM(TheirConfig(**{k: v for k, v in values.items() if k != "model_type"}))
    theirs.load_state_dict(state, strict=False)
    theirs.tie_weights()
    ids = tokens(60)
    with torch.no_grad():
        expected = theirs.eval()(torch.tensor([ids]), output_hidden_states=True)
    found = whole_pass(LlamaTarget.from_state(values, state), ids)
    assert_close(found.logits, expected.logits[0])
    # Layer id k is the output of layer k: hidden_states[k + 1].
    assert_close(found.features, torch.cat([expected.hidden_states[k + 1][0] for k in TAPS], dim=-1))


def test_tokens_one_by_one_in_blocks_and_at_once_agree(tiny_target):
    ids = tokens(40)
    expected = whole_pass(tiny_target, ids)
    slot = tiny_target.open_slot(40)
    steps = [1, 1, 8, 3, 1, 16, 10]
    outputs, done = [], 0
    for step in steps:
        outputs += tiny_target.forward([slot], [ids[done : done + step]], tapped_layers=TAPS)
        done += step
    assert slot.length == 40
    assert_close(torch.cat([output.logits for output in outputs]), expected.logits)
    assert_close(torch.cat([output.features for output in outputs]), expected.features)


def test_after_a_crop_nothing_of_the_cropped_tokens_is_left(tiny_target):
    ids = tokens(30)
    expected = whole_pass(tiny_target, ids)
    slot = tiny_target.open_slot(64)
    tiny_target.forward([slot], [ids[:20] + tokens(9, seed=5)], tapped_layers=())
    slot.crop(20)
    (found,) = tiny_target.forward([slot], [ids[20:]], tapped_layers=TAPS)
    assert_close(found.logits, expected.logits[20:])
    slot.crop(0)
    (again,) = tiny_target.forward([slot], [ids], tapped_layers=TAPS)
    assert_close(again.logits, expected.logits)


def test_requests_in_one_pass_do_not_touch_each_other(tiny_target):
    texts = [tokens(count, seed=count) for count in (1, 17, 5, 30)]
    prefixes = [0, 9, 0, 29]
    expected = [whole_pass(tiny_target, ids) for ids in texts]
    slots = [tiny_target.open_slot(40) for _ in texts]
    for slot, ids, prefix in zip(slots, texts, prefixes, strict=True):
        tiny_target.forward([slot], [ids[:prefix]], tapped_layers=())
    rests = [ids[prefix:] for ids, prefix in zip(texts, prefixes, strict=True)]
    outputs = tiny_target.forward(slots, rests, tapped_layers=TAPS)
    for output, whole, prefix in zip(outputs, expected, prefixes, strict=True):
        assert_close(output.logits, whole.logits[prefix:])
        assert_close(output.features, whole.features[prefix:])


def test_long_inputs_go_through_in_several_passes(tiny_target, monkeypatch):
    first, second = tokens(50), tokens(23, seed=1)
    expected = [whole_pass(tiny_target, ids) for ids in (first, second)]
    monkeypatch.setattr(llama, "MAX_ROWS", 16)
    slots = [tiny_target.open_slot(60), tiny_target.open_slot(60)]
    outputs = tiny_target.forward(slots, [first, second], tapped_layers=TAPS)
    for output, whole in zip(outputs, expected, strict=True):
        assert_close(output.logits, whole.logits)
        assert_close(output.features, whole.features)


def test_without_logits_only_features_come(tiny_target):
    slot = tiny_target.open_slot(10)
    (output,) = tiny_target.forward([slot], [tokens(10)], tapped_layers=TAPS, want_logits=False)
    assert output.logits.shape == (0, 97)
    assert output.features.shape == (10, 64)


def test_no_tokens_give_empty_results(tiny_target):
    slot = tiny_target.open_slot(10)
    (output,) = tiny_target.forward([slot], [[]], tapped_layers=TAPS)
    assert output.logits.shape == (0, 97)
    assert output.features.shape == (0, 64)
    assert slot.length == 0


def test_a_pass_that_fails_grows_no_slot(tiny_target, monkeypatch):
    monkeypatch.setattr(llama, "MAX_ROWS", 4)
    slot = tiny_target.open_slot(20)
    with pytest.raises(IndexError):  # the id is outside the vocabulary, in the third pass
        tiny_target.forward([slot], [[*tokens(10), 97]], tapped_layers=())
    assert slot.length == 0


def test_overflow_is_refused_before_anything_is_written(tiny_target):
    slots = [tiny_target.open_slot(8), tiny_target.open_slot(8)]
    with pytest.raises(ResourceError, match="holds 8 tokens"):
        tiny_target.forward(slots, [tokens(3), tokens(9)], tapped_layers=())
    assert [slot.length for slot in slots] == [0, 0]


def test_slot_sizes_are_checked(tiny_target):
    with pytest.raises(ParameterError, match="257 tokens"):
        tiny_target.open_slot(257)
    with pytest.raises(ParameterError, match="0 tokens"):
        tiny_target.open_slot(0)


def test_short_memory_is_said_before_it_is_taken(tiny_target, monkeypatch):
    class Nothing:
        available = 0

    monkeypatch.setattr("dspark_core.target.kv_cache.psutil.virtual_memory", Nothing)
    with pytest.raises(ResourceError, match="wait until other requests"):
        tiny_target.open_slot(200)


def test_a_released_slot_is_not_used_again(tiny_target):
    slot = tiny_target.open_slot(8)
    slot.release()
    slot.release()
    with pytest.raises((AssertionError, ResourceError)):
        tiny_target.forward([slot], [[1]], tapped_layers=())


def test_head_and_embedding_share_the_tied_matrix(tiny_target, tiny_state, tiny_config):
    matrix = tiny_state(tiny_config)["model.embed_tokens.weight"]
    assert torch.equal(tiny_target.embed(torch.tensor([3, 5])), matrix[[3, 5]])
    hidden = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))
    assert_close(tiny_target.lm_head(hidden), hidden @ matrix.T)


def test_bf16_stays_near_float32(tiny_target, tiny_state, tiny_config):
    coarse = LlamaTarget.from_state(tiny_config, tiny_state(tiny_config), torch.bfloat16, poison=True)
    ids = tokens(30)
    fine = whole_pass(tiny_target, ids).logits
    slot = coarse.open_slot(30)
    cuts = ((0, 12), (12, 13), (13, 21), (21, 30))
    parts = [coarse.forward([slot], [ids[a:b]], tapped_layers=TAPS)[0] for a, b in cuts]
    rough = torch.cat([part.logits for part in parts])
    assert rough.dtype is torch.bfloat16
    assert (rough.float() - fine).abs().mean() < 0.05 * fine.std()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"model_type": "qwen3_moe"}, "qwen3_moe"),
        ({"model_type": "gemma4_text"}, "gemma4_text"),
        ({"model_type": None}, "model_type None"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ({"layer_types": ["full_attention"] * 3}, "4 layers"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(tiny_config, change, name):
    with pytest.raises(ModelUnavailableError, match=name):
        LlamaConfig.from_dict(tiny_config | change)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("hidden_size", [math.inf, math.nan, 0, -1, 2**40, 10**400, "32", True, [32], None]),
        ("num_attention_heads", [0, -4, 2.5, math.inf]),
        ("num_key_value_heads", [-2, 3, {}]),
        ("head_dim", [-8, "x", 10**9]),
        ("num_hidden_layers", [0, -1, 10**7]),
        ("max_position_embeddings", [-3, 0, 10**9]),
        ("vocab_size", [0, math.inf]),
        ("intermediate_size", [0, {}]),
        ("eos_token_id", [{}, "2", [2, {}], -1, 97, True, 2.0]),
        ("rms_norm_eps", [0, -1e-5, math.nan, math.inf, "1e-5", 10**400]),
        ("tie_word_embeddings", ["false", 1]),
        ("rope_scaling", ["x", 3, [1]]),
        ("rope_parameters", ["x", [1]]),
    ],
)
def test_impossible_values_of_a_configuration_are_refused_by_name(tiny_config, name, values):
    for value in values:
        config = {key: old for key, old in tiny_config.items() if key != "head_dim"} | {name: value}
        with pytest.raises(ModelUnavailableError, match=name):
            LlamaConfig.from_dict(config)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rope_theta": 0}, "rope_theta"),
        ({"rope_theta": -5}, "rope_theta"),
        ({"rope_theta": math.nan}, "rope_theta"),
        ({"rope_type": 5}, "rope_type"),
        ({"rope_type": "llama3", "factor": 0}, "factor"),
        ({"rope_type": "llama3"}, "original_max_position_embeddings"),
        ({"rope_type": "llama3", "low_freq_factor": 4.0}, "high_freq_factor"),
        ({"rope_type": "llama3", "original_max_position_embeddings": 0}, "original_max_position_embeddings"),
    ],
)
def test_impossible_rotary_positions_are_refused_by_name(tiny_config, changes, name):
    rope = {"rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | changes
    with pytest.raises(ModelUnavailableError, match=name):
        LlamaConfig.from_dict(tiny_config | {"rope_parameters": rope})


@pytest.mark.parametrize("content", ["[]", "5", "null", "{", "[" * 100_000, "\xff"])
def test_a_config_file_that_is_no_object_is_refused_and_never_to_be_deleted(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ModelUnavailableError, match=r"config\.json") as refusal:
        LlamaConfig.from_json(tmp_path / "config.json")
    assert "elete" not in str(refusal.value)
    assert "etch" not in str(refusal.value)


def test_both_spellings_of_rope_are_read(tiny_config):
    old = {k: v for k, v in tiny_config.items() if k != "rope_parameters"} | {"rope_theta": 123.0, "rope_scaling": None}
    assert LlamaConfig.from_dict(old).rope.theta == 123.0
    new = tiny_config | {"rope_parameters": {"rope_type": "default", "rope_theta": 123.0}}
    assert LlamaConfig.from_dict(new).rope == LlamaConfig.from_dict(old).rope


def test_incomplete_configurations_are_refused(tiny_config, tmp_path):
    del tiny_config["hidden_size"]
    with pytest.raises(ModelUnavailableError, match="hidden_size"):
        LlamaConfig.from_dict(tiny_config)
    with pytest.raises(ModelUnavailableError, match=r"config\.json cannot be read"):
        LlamaConfig.from_json(tmp_path / "config.json")


def test_missing_and_misshapen_tensors_are_refused(tiny_config, tiny_state):
    state = tiny_state(tiny_config)
    name = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(ModelUnavailableError, match="up_proj"):
        LlamaTarget.from_state(tiny_config, {k: v for k, v in state.items() if k != name})
    with pytest.raises(ModelUnavailableError, match="shape"):
        LlamaTarget.from_state(tiny_config, state | {name: torch.zeros(3, 3)})


def test_broken_weight_files_are_said(tiny_config, tmp_path):
    import json

    (tmp_path / "config.json").write_text(json.dumps(tiny_config))
    with pytest.raises(ModelUnavailableError, match=r"no \*\.safetensors"):
        LlamaTarget.load(tmp_path, dtype=torch.float32)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(ModelUnavailableError, match="broken"):
        LlamaTarget.load(tmp_path, dtype=torch.float32)


@pytest.mark.slow
def test_the_real_model_gives_transformers_logits(smollm2, smollm2_folder, smollm2_tokenizer, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32)
    ids = list(smollm2_tokenizer.encode_chat([{"role": "user", "content": "Why is the sky blue? 你好 🌍"}]))
    with torch.no_grad():
        expected = theirs(torch.tensor([ids]), output_hidden_states=True)
    slot = smollm2.open_slot(len(ids))
    (found,) = smollm2.forward([slot], [ids], tapped_layers=(5, 20))
    assert (found.logits - expected.logits[0]).abs().max() < 1e-4
    assert (found.features[:, :576] - expected.hidden_states[6][0]).abs().max() < 1e-3
    # The same at the other ways of feeding: what is compared here is where the text goes on.
    slot.crop(len(ids) - 9)
    (block,) = smollm2.forward([slot], [ids[-9:-1]], tapped_layers=())
    (last,) = smollm2.forward([slot], [ids[-1:]], tapped_layers=())
    assert (torch.cat([block.logits, last.logits]) - expected.logits[0, -9:]).abs().max() < 1e-4
