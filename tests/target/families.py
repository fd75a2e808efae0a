"""Tiny random models of each architecture, made and saved by transformers."""

from __future__ import annotations

import torch

VOCAB = 97
_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
_SLIDING = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
_GEMMA3 = _SIZES | {
    "head_dim": 12,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "query_pre_attn_scalar": 20,
}
_STRETCHED = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}

# name → (transformers' configuration class, its values)
MODELS = {
    "llama": ("LlamaConfig", _SIZES | {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}}),
    "qwen2": ("Qwen2Config", _SIZES),
    "qwen2-tied-sliding": ("Qwen2Config", _SIZES | _SLIDING | {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", _SIZES | {"head_dim": 12}),
    "qwen3-tied": ("Qwen3Config", _SIZES | {"head_dim": 6, "tie_word_embeddings": True}),
    "gemma3": ("Gemma3TextConfig", _GEMMA3),
    "gemma3-untied-capped": (
        "Gemma3TextConfig",
        _GEMMA3 | {"tie_word_embeddings": False, "final_logit_softcapping": 3.0, "rope_parameters": _STRETCHED},
    ),
}


def make_model(name, **changes):
    """The model in float32 with random weights, large enough for laws that are far from flat."""
    import transformers

    kind, values = MODELS[name]
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**values | changes))
    return randomise(model)


def make_text_and_image_model():
    """Gemma 3 with a small vision part beside the text part."""
    import transformers

    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.Gemma3Config(
        text_config=_GEMMA3 | {"pad_token_id": 0},
        vision_config=vision | {"image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        image_token_index=96,
    )
    return randomise(transformers.Gemma3ForConditionalGeneration(config))


def randomise(model, seed=0):
    """Random weights for every parameter: matrices, norms' gains and biases."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * 1.5 / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(0.2 * noise)
    return model.float().eval()
