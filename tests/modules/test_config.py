"""The drafter's config: DeepSpec's keys in both spellings, other layouts and impossible values refused by name."""

import json
import math

import pytest

from dspark_core.errors import CheckpointError
from dspark_core.modules.config import DraftConfig
from tests.modules.tiny import tiny_config


def raw(**changes):
    return tiny_config().to_dict() | changes


def test_config_survives_json():
    config = tiny_config(rope_theta=123.0)
    assert DraftConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_both_spellings_of_rope_and_dtype_mean_the_same():
    old = raw(rope_theta=5000.0, torch_dtype="float16")
    del old["rope_parameters"], old["dtype"]
    new = raw(rope_parameters={"rope_theta": 5000.0, "rope_type": "default"}, dtype="float16")
    assert DraftConfig.from_dict(old) == DraftConfig.from_dict(new)


def test_published_config_of_qwen_is_read():
    published = {
        "architectures": ["Qwen3DSparkModel"],
        "attention_bias": False,
        "block_size": 7,
        "confidence_head_with_markov": True,
        "dtype": "bfloat16",
        "enable_confidence_head": True,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "markov_head_type": "vanilla",
        "markov_rank": 256,
        "mask_token_id": 151669,
        "max_position_embeddings": 40960,
        "num_attention_heads": 32,
        "num_hidden_layers": 5,
        "num_key_value_heads": 8,
        "num_target_layers": 36,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
        "target_layer_ids": [1, 9, 17, 25, 33],
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    }
    config = DraftConfig.from_dict(published)
    assert config.block_size == 7
    assert config.confidence_inputs == 2560 + 256
    assert not config.embed_tokens_from_target


def test_rank_zero_needs_no_head_type():
    data = raw(markov_rank=0, enable_confidence_head=False)
    del data["markov_head_type"]
    assert DraftConfig.from_dict(data).markov_rank == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dflash_config": {"mask_token_id": 1}}, "z-lab DFlash"),
        ({"speculators_model_type": "eagle3"}, "speculators"),
        ({"architectures": ["Qwen3Eagle3Model"]}, "EAGLE-3"),
        ({"draft_vocab_size": 32000}, "EAGLE-3"),
        ({"architectures": ["Gemma4DSparkModel"]}, "Gemma4DSparkModel"),
        ({"architectures": ["SomethingElse"]}, "SomethingElse"),
        ({"architectures": []}, "not known"),
    ],
)
def test_other_layouts_are_refused_by_name(changes, words):
    with pytest.raises(CheckpointError, match=words):
        DraftConfig.from_dict(raw(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target_layer_ids": [0, 3]}, "the last one"),
        ({"target_layer_ids": [0, 7]}, "does not exist"),
        ({"target_layer_ids": [-2, 1]}, "does not exist"),
        ({"target_layer_ids": [1, 0]}, "rise"),
        ({"target_layer_ids": []}, "empty"),
        ({"mask_token_id": 40}, "mask_token_id 40"),
        ({"block_size": 0}, "block_size"),
        ({"num_attention_heads": 3}, "heads"),
        ({"head_dim": 5}, "odd"),
        ({"markov_rank": -1}, "markov_rank"),
        ({"markov_rank": 0}, "confidence_head_with_markov"),
        ({"markov_head_type": "lstm"}, "lstm"),
        ({"dtype": "int4"}, "int4"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"target_layer_ids": [-1, 2]}, "layer -1 is the embedding's output"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}}, "yarn"),
    ],
)
def test_impossible_or_unbuilt_values_are_refused(changes, words):
    with pytest.raises(CheckpointError, match=words):
        DraftConfig.from_dict(raw(**changes))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("architectures", [5, [5], "Qwen3DSparkModel", {"a": 1}]),
        ("rope_parameters", ["x", [1], 5]),
        ("rms_norm_eps", [math.nan, -1, 0, math.inf, "1e-5", True]),
        ("target_layer_ids", ["02", "0", 5, [0, "2"], [0.0, 2], [True]]),
        ("block_size", [0, 65, 10**7, 8.5, True]),
        ("max_position_embeddings", [0, -3, math.inf]),
        *((name, [math.inf, 0, -1, 10**400, "4"]) for name in ("hidden_size", "num_attention_heads", "vocab_size")),
        *((name, [math.nan, 10**7, {}]) for name in ("num_hidden_layers", "num_target_layers", "head_dim")),
        *((name, ["false", 1, 0.0]) for name in ("enable_confidence_head", "confidence_head_with_markov")),
        *((name, ["false", []]) for name in ("embed_tokens_from_target", "lm_head_from_target")),
        *((name, [5, []]) for name in ("dtype", "markov_head_type")),
    ],
)
def test_values_of_the_wrong_kind_or_size_are_refused_by_name(name, values):
    for value in values:
        with pytest.raises(CheckpointError, match=name):
            DraftConfig.from_dict(raw(**{name: value}))


@pytest.mark.parametrize("theta", [0, -5, math.nan, math.inf, "1e4"])
def test_a_rotary_base_that_is_no_positive_number_is_refused_in_both_spellings(theta):
    with pytest.raises(CheckpointError, match="rope_theta"):
        DraftConfig.from_dict(raw(rope_parameters={"rope_theta": theta}))
    with pytest.raises(CheckpointError, match="rope_theta"):
        DraftConfig.from_dict(raw(rope_parameters=None, rope_theta=theta))


def test_no_heads_are_refused_before_the_size_of_a_head_is_derived_from_them():
    data = raw(num_attention_heads=0)
    del data["head_dim"]
    with pytest.raises(CheckpointError, match="num_attention_heads"):
        DraftConfig.from_dict(data)


@pytest.mark.parametrize("key", ["target_layer_ids", "block_size", "mask_token_id", "markov_rank", "rope_parameters"])
def test_missing_key_is_named(key):
    data = raw()
    del data[key]
    with pytest.raises(CheckpointError, match=key if key != "rope_parameters" else "rope_theta"):
        DraftConfig.from_dict(data)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"hidden_size": 17, "vocab_size": 40, "num_layers": 4}, "hidden size"),
        ({"hidden_size": 16, "vocab_size": 41, "num_layers": 4}, "vocabulary"),
        ({"hidden_size": 16, "vocab_size": 40, "num_layers": 5}, "layers"),
    ],
)
def test_another_target_is_refused(sizes, words):
    tiny_config().check_fits(hidden_size=16, vocab_size=40, num_layers=4)
    with pytest.raises(CheckpointError, match=words):
        tiny_config().check_fits(**sizes)
