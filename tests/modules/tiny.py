"""A tiny random drafter for the tests of networks, checkpoints and training."""

import torch

from dspark_core.modules.config import DraftConfig
from dspark_core.modules.drafter import Drafter

H, V, GAMMA, TAPS = 16, 40, 5, (0, 1)


def tiny_config(**changes):
    values = {
        "hidden_size": H,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "num_hidden_layers": 2,
        "num_target_layers": 4,
        "target_layer_ids": TAPS,
        "vocab_size": V,
        "block_size": GAMMA,
        "mask_token_id": 3,
        "markov_rank": 6,
        "enable_confidence_head": True,
        "embed_tokens_from_target": True,
        "lm_head_from_target": True,
        "dtype": "float32",
    }
    return DraftConfig(**(values | changes))


def tiny_drafter(seed=0, **changes):
    """Random weights, heads included, so that nothing is zero by accident."""
    drafter = Drafter(tiny_config(**changes))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in drafter.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if name.endswith("norm.weight") else 0.4 * noise)
    return drafter.requires_grad_(False)
