"""Turn a GGUF file of a Llama-architecture model into a Hugging Face folder (bf16 safetensors and a tokenizer)."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from dspark_core.errors import ModelUnavailableError
from dspark_core.target.config import LlamaConfig

_CONTROL_TOKEN = 3  # gguf's token type of special tokens
_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_gguf(source: Path, folder: Path, progress: Callable[[float], None] = lambda _: None) -> None:
    """Write config.json, model.safetensors (bf16), tokenizer files and the chat template into ``folder``.

    Raises:
        ModelUnavailableError: the file is broken or holds a model that we do not convert.
        OSError: writing failed (the caller knows what the folder is for).
    """
    from gguf import GGUFReader  # here, since only the first load needs it

    try:
        reader = GGUFReader(source)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        config = _config(fields)
        LlamaConfig.from_dict(config)  # refuse now what we could not load later
        tensors = _tensors(reader, config, progress)
        tokenizer = _tokenizer(fields)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, EOFError) as error:
        raise ModelUnavailableError(
            f"{source} is no GGUF file that we can convert ({error!r}): it is cut off, damaged or of another kind. "
            "Fetch the model again."
        ) from error
    _write_json(folder / "config.json", config)
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(fields))
    (folder / "chat_template.jinja").write_text(fields.get("tokenizer.chat_template", ""), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    try:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # it wraps the system's error and keeps only its text
        full = "os error 28" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    if fields["general.architecture"] != "llama":
        raise ValueError(f"architecture {fields['general.architecture']!r} instead of 'llama'")
    heads = fields["llama.attention.head_count"]
    hidden = fields["llama.embedding_length"]
    theta = float(fields.get("llama.rope.freq_base", 10000.0))
    # The shortest decimal of the stored float32: 1e-05 and not 9.99999974e-06.
    epsilon = float(str(np.float32(fields["llama.attention.layer_norm_rms_epsilon"])))
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "dtype": "bfloat16",
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "head_dim": fields.get("llama.rope.dimension_count", hidden // heads),
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": epsilon,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "rope_theta": theta,
        "tie_word_embeddings": True,  # _tensors corrects it where an output matrix is found
        "torch_dtype": "bfloat16",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
    }


def _tensors(reader: Any, config: dict[str, Any], progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
    from gguf.quants import dequantize

    if any(tensor.name.startswith("rope_") for tensor in reader.tensors):
        raise ValueError("rotary frequencies stored as a tensor")
    tensors: dict[str, torch.Tensor] = {}
    for done, tensor in enumerate(reader.tensors, 1):
        name = _hugging_face_name(tensor.name)
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)  # a copy: writable, not mapped
        if name.endswith("q_proj.weight"):
            values = _unpermuted(values, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            values = _unpermuted(values, config["num_key_value_heads"])
        tensors[name] = torch.from_numpy(values).to(torch.bfloat16)
        progress(done / len(reader.tensors))
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    return tensors


def _hugging_face_name(name: str) -> str:
    if name in _OUTER_NAMES:
        return _OUTER_NAMES[name]
    _, index, part, suffix = name.split(".")
    return f"model.layers.{int(index)}.{_LAYER_NAMES[part]}.{suffix}"


def _unpermuted(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Undo llama.cpp's row order of q and k (pairs interleaved); ours has the two halves of a head apart."""
    half = values.shape[0] // heads // 2
    return np.ascontiguousarray(values.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(values.shape))


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    if fields["tokenizer.ggml.model"] != "gpt2":
        raise ValueError(f"tokenizer {fields['tokenizer.ggml.model']!r} instead of byte-level BPE ('gpt2')")
    words: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [(left, right) for left, right in (merge.split(" ") for merge in fields["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(fields.get("tokenizer.ggml.pre", "default"))
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    specials = [word for word, kind in zip(words, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in specials])
    return tokenizer


def _pre_tokenizer(kind: str) -> Any:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "smollm":  # digits one by one, then GPT-2's rule: as in the original tokenizer.json
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if kind in ("gpt-2", "gpt2"):
        return byte_level
    if kind in ("llama-bpe", "llama3"):  # untested
        pattern = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise ValueError(f"pre-tokenizer {kind!r}")


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    words = fields["tokenizer.ggml.tokens"]
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    found = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {
        **{name: words[index] for name, index in found.items() if index is not None},
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
