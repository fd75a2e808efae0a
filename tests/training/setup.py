"""A tiny Llama-shaped target and conversations over its vocabulary."""

import gzip
import json

import torch

from dspark_core.target.config import LlamaConfig
from dspark_core.target.llama import LlamaTarget
from dspark_core.training.cache import build_cache
from dspark_core.training.data import Conversation
from dspark_core.training.settings import TrainSettings
from dspark_core.training.source import TargetFeatures, TargetWeights
from tests.conftest import TINY_CONFIG as TARGET
from tests.conftest import make_tiny_state

TAPS = (0, 2)
HIDDEN, VOCAB = 32, 97


def target_state(seed=0):
    """Random tensors of `TARGET`'s shapes under Hugging Face names."""
    return make_tiny_state(TARGET, seed)


def tiny_weights():
    return TargetWeights(LlamaConfig.from_dict(TARGET), target_state())


def tiny_source(taps=TAPS):
    return TargetFeatures(LlamaTarget.from_state(TARGET, target_state()), taps)


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
