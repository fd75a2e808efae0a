"""A tiny Llama-shaped target, conversations over its vocabulary, and a drafter in training."""

import gzip
import json

import torch

from dspark_core.modules.drafter import Drafter
from dspark_core.target.config import LlamaConfig
from dspark_core.target.llama import LlamaTarget
from dspark_core.training.batch import Sampler
from dspark_core.training.cache import build_cache
from dspark_core.training.data import Conversation
from dspark_core.training.loop import Trainer
from dspark_core.training.settings import TrainSettings
from dspark_core.training.source import TargetFeatures, TargetWeights
from dspark_core.training.start import draft_config, smart_start
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


def tiny_drafter(cache, settings):
    source = tiny_weights()
    config = draft_config(
        source.config,
        TAPS,
        layers=settings.layers,
        block_size=settings.block_size,
        markov_rank=settings.markov_rank,
        mask_token_id=3,
        copy_longest=settings.copy_longest,
    )
    torch.manual_seed(0)
    drafter = Drafter(config)
    smart_start(drafter, source, cache.rows(cache.sequences("train")[0])[0].float())
    return drafter, source


def tiny_trainer(folder, cache, settings, **more):
    drafter, source = tiny_drafter(cache, settings)
    tables = (source.embedding.float(), source.lm_head.float())
    return Trainer(
        folder, settings, drafter, Sampler(cache, cache.sequences("train")), tables, torch.arange(20), **more
    )


def write_jsonl(path, items):
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        for c in items:
            file.write(json.dumps({"p": c.prompt_ids, "r": c.answer_ids, "T": c.temperature}) + "\n")
