"""A tiny Llama-shaped target and conversations over its vocabulary."""

import gzip
import json

import torch

from dspark_core.training.cache import build_cache
from dspark_core.training.data import Conversation
from dspark_core.training.settings import TrainSettings
from dspark_core.training.source import LlamaSource

TARGET = {
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
TAPS = (0, 2)
HIDDEN, VOCAB = 32, 97


def target_state(seed=0):
    """Random tensors of `TARGET`'s shapes under Hugging Face names."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) * 1.5 / columns**0.5

    def gain():
        return 1 + 0.1 * torch.randn(HIDDEN, generator=generator)

    state = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN), "model.norm.weight": gain()}
    for layer in range(TARGET["num_hidden_layers"]):
        shapes = {"self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32)}
        shapes |= {"self_attn.o_proj": (32, 32), "mlp.gate_proj": (48, 32), "mlp.up_proj": (48, 32)}
        shapes |= {"mlp.down_proj": (32, 48)}
        state |= {f"model.layers.{layer}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            state[f"model.layers.{layer}.{name}.weight"] = gain()
    return state


def tiny_source(taps=TAPS):
    return LlamaSource(TARGET, target_state(), taps)


def conversations(count, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def ids(low, high):
        length = int(torch.randint(low, high, (1,), generator=generator))
        return tuple(torch.randint(4, VOCAB, (length,), generator=generator).tolist())

    return [Conversation(ids(3, 6), (*ids(6, 14), 2), 0.0 if i % 2 else 0.7) for i in range(count)]


def tiny_cache(folder, source=None, count=8):
    return build_cache(folder, source or tiny_source(), TAPS, HIDDEN, conversations(count), conversations(2, seed=9))


def tiny_settings(**changes):
    values = {
        "stage1_anchors": 48,
        "stage2_anchors": 48,
        "batch_sequences": 2,
        "batch_predictions": 16,
        "workers": 2,
        "block_size": 4,
        "block_lengths": (4, 2),
        "block_shares": (0.5, 0.5),
        "markov_rank": 5,
        "mask_token_id": 3,
        "common_tokens": 20,
        "warmup_steps": 2,
        "log_steps": 1,
        "checkpoint_s": 0.0,
        "autocast": False,
    }
    return TrainSettings(**(values | changes))


def write_jsonl(path, items):
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        for c in items:
            file.write(json.dumps({"p": c.prompt_ids, "r": c.answer_ids, "T": c.temperature}) + "\n")
