"""A tiny Llama-shaped target and conversations over its vocabulary."""

import gzip
import json

import torch

from dspark_core.training.cache import build_cache
from dspark_core.training.data import Conversation
from dspark_core.training.settings import TrainSettings
from dspark_core.training.source import LlamaSource
from tests.conftest import TINY_CONFIG, tiny_state

TAPS = (0, 2)
HIDDEN, VOCAB = TINY_CONFIG["hidden_size"], TINY_CONFIG["vocab_size"]


def tiny_source(taps=TAPS):
    return LlamaSource(TINY_CONFIG, tiny_state(), taps)


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
