"""Llama's relatives: each computes what transformers computes, however the tokens are fed."""

from __future__ import annotations

import json

import pytest
import torch

from dspark_core.errors import ModelUnavailableError
from dspark_core.loading import open_session
from dspark_core.params import SamplingParams
from dspark_core.target import llama
from dspark_core.target.config import LlamaConfig
from dspark_core.target.llama import LlamaTarget
from dspark_core.target.lockstep import Lockstep
from tests.target.families import MODELS, VOCAB, make_model, make_text_and_image_model
from tests.target.test_tokenizer import TEMPLATE, byte_tokenizer, spaced_tokenizer

TAPS = (0, 2)


def tokens(count, seed=0):
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def assert_close(found, expected, tolerance=2e-4):
    assert found.shape == expected.shape
    assert torch.isfinite(found).all()
    assert (found - expected).abs().max() < tolerance


@pytest.fixture(scope="module", params=MODELS)
def pair(request, tmp_path_factory):
    """(transformers' model, ours from the folder that it was saved to)."""
    theirs = make_model(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    return theirs, LlamaTarget.load(folder, dtype=torch.float32, poison=True)


@torch.no_grad()
def told(theirs, ids):
    """transformers' logits and outputs of the tapped layers."""
    output = theirs(torch.tensor([ids]), output_hidden_states=True)
    return output.logits[0], torch.cat([output.hidden_states[k + 1][0] for k in TAPS], dim=-1)


def test_one_pass_gives_transformers_logits_and_hidden_states(pair):
    theirs, target = pair
    ids = tokens(40)
    logits, features = told(theirs, ids)
    assert logits.std() > 0.5, "a flat law would hide everything"
    (found,) = target.forward([target.open_slot(40)], [ids], tapped_layers=TAPS)
    assert_close(found.logits, logits)
    assert_close(found.features, features)
    assert_close(target.lm_head(found.hidden), logits)


def test_greedy_texts_with_a_cache_are_transformers_own(pair):
    theirs, target = pair
    ids = tokens(9, seed=1)
    expected = theirs.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=20)[0].tolist()
    slot, text, rest = target.open_slot(40), list(ids), list(ids)
    for _ in range(20):
        (output,) = target.forward([slot], [rest], tapped_layers=())
        rest = [int(output.logits[-1].argmax())]
        text += rest
    assert text == expected


def test_requests_of_any_length_share_a_pass_after_crops(pair):
    theirs, target = pair
    texts = [tokens(count, seed=count) for count in (1, 17, 5, 30, 12)]
    prefixes = [0, 9, 0, 29, 4]
    slots = [target.open_slot(40) for _ in texts]
    for slot, ids, prefix in zip(slots, texts, prefixes, strict=True):
        target.forward([slot], [ids[:prefix] + tokens(7, seed=99)], tapped_layers=())
        slot.crop(prefix)
    rests = [ids[prefix:] for ids, prefix in zip(texts, prefixes, strict=True)]
    outputs = target.forward(slots, rests, tapped_layers=TAPS)
    for output, ids, prefix in zip(outputs, texts, prefixes, strict=True):
        logits, features = told(theirs, ids)
        assert_close(output.logits, logits[prefix:])
        assert_close(output.features, features[prefix:])


def test_texts_that_grow_side_by_side_are_each_their_own(pair):
    theirs, target = pair
    texts = [tokens(20, seed=3), tokens(20, seed=4)]
    block = Lockstep(target, rows=2, capacity=20)
    steps = [block.step([texts[0][i], texts[1][i]], tapped_layers=TAPS) for i in range(20)]
    for row, ids in enumerate(texts):
        logits, features = told(theirs, ids)
        assert_close(target.lm_head(torch.stack([hidden[row] for hidden, _ in steps])), logits)
        assert_close(torch.stack([tapped[row] for _, tapped in steps]), features)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_longer_slot_makes_rotary_positions_that_others_do_not_notice(name, tmp_path, monkeypatch):
    monkeypatch.setattr(llama, "FIRST_POSITIONS", 8)
    theirs = make_model(name)
    theirs.save_pretrained(tmp_path)
    target = LlamaTarget.load(tmp_path, dtype=torch.float32)
    ids = tokens(30)
    logits, _ = told(theirs, ids)
    short = target.open_slot(8)
    parts = target.forward([short], [ids[:4]], tapped_layers=())
    (whole,) = target.forward([target.open_slot(30)], [ids], tapped_layers=())
    parts += target.forward([short], [ids[4:8]], tapped_layers=())
    assert_close(whole.logits, logits)
    assert_close(torch.cat([part.logits for part in parts]), logits[:8])


def test_a_narrow_head_gives_the_same_logits_of_its_tokens(pair):
    _, target = pair
    hidden = torch.randn(3, target.hidden_size, generator=torch.Generator().manual_seed(5))
    some = torch.tensor([2, 30, 96])
    assert_close(target.narrow_head(some)(hidden), target.lm_head(hidden)[:, some])


def test_bf16_stays_near_float32(pair, tmp_path):
    theirs, fine = pair
    theirs.save_pretrained(tmp_path)
    ids = tokens(30)
    (expected,) = fine.forward([fine.open_slot(30)], [ids], tapped_layers=())
    coarse = LlamaTarget.load(tmp_path, dtype=torch.bfloat16)
    slot = coarse.open_slot(30)
    rough = [coarse.forward([slot], [ids[a:b]], tapped_layers=())[0].logits for a, b in ((0, 12), (12, 13), (13, 30))]
    assert (torch.cat(rough).float() - expected.logits).abs().mean() < 0.1 * expected.logits.std()


def test_embeddings_are_what_the_first_layer_reads(pair):
    theirs, target = pair
    ids = torch.tensor([3, 5])
    with torch.no_grad():
        first = theirs(ids[None], output_hidden_states=True).hidden_states[0][0]
    assert_close(target.embed(ids), first)


def test_weights_in_several_files_are_one_model_and_a_missing_one_is_named(tmp_path):
    theirs = make_model("qwen3")
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    parts = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(parts) > 2
    target = LlamaTarget.load(tmp_path, dtype=torch.float32)
    ids = tokens(12)
    (found,) = target.forward([target.open_slot(12)], [ids], tapped_layers=())
    assert_close(found.logits, told(theirs, ids)[0])
    parts[1].unlink()
    with pytest.raises(ModelUnavailableError, match=parts[1].name):
        LlamaTarget.load(tmp_path, dtype=torch.float32)


def test_files_that_the_index_does_not_name_are_left_alone(tmp_path):
    make_model("qwen3").save_pretrained(tmp_path, max_shard_size="20KB")
    (tmp_path / "consolidated.safetensors").write_bytes(b"another layout")
    LlamaTarget.load(tmp_path, dtype=torch.float32)


def test_the_text_part_of_a_model_of_text_and_images_is_run(tmp_path):
    theirs = make_text_and_image_model()
    theirs.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["model_type"] == "gemma3"
    target = LlamaTarget.load(tmp_path, dtype=torch.float32)
    ids = tokens(20)
    (found,) = target.forward([target.open_slot(20)], [ids], tapped_layers=TAPS)
    logits, features = told(theirs, ids)
    assert_close(found.logits, logits)
    assert_close(found.features, features)


def test_short_configurations_mean_what_transformers_takes_them_for():
    """The published Gemma 3 of 4 billion weights tells no more than this of its text part."""
    import transformers

    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    found = LlamaConfig.from_dict({"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": text})
    theirs = transformers.Gemma3TextConfig(**{name: value for name, value in text.items() if name != "model_type"})
    windows = [1024 if kind == "sliding_attention" else None for kind in theirs.layer_types]
    full, local = theirs.rope_parameters["full_attention"], theirs.rope_parameters["sliding_attention"]
    assert found.windows == tuple(windows)
    assert (found.num_heads, found.num_kv_heads) == (theirs.num_attention_heads, theirs.num_key_value_heads)
    assert (found.head_dim, found.query_scalar) == (theirs.head_dim, theirs.query_pre_attn_scalar)
    assert (found.vocab_size, found.max_context) == (theirs.vocab_size, theirs.max_position_embeddings)
    assert (found.rms_norm_eps, found.tie_word_embeddings) == (theirs.rms_norm_eps, theirs.tie_word_embeddings)
    assert (found.rope.theta, found.rope.kind, found.rope.factor) == (full["rope_theta"], "linear", full["factor"])
    assert (found.local_rope.theta, found.local_rope.kind) == (local["rope_theta"], "default")
    assert found.eos_token_ids == (1, 106)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("qwen3", {"model_type": "qwen3_moe", "num_experts": 8}, "qwen3_moe"),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "yarn"),
        ("qwen3", {"attention_bias": True}, "attention_bias"),
        ("qwen2", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3", {"hidden_activation": "silu"}, "hidden_activation 'silu'"),
        ("gemma3", {"model_type": "gemma2"}, "gemma2"),
        ("gemma3", {"model_type": "gemma3", "text_config": []}, "text_config"),
        ("gemma3", {"sliding_window": 0}, "sliding_window"),
        ("gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ("gemma3", {"final_logit_softcapping": -1.0}, "final_logit_softcapping"),
        ("gemma3", {"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}, "dynamic"),
    ],
)
def test_what_a_family_has_beyond_this_is_refused_by_name(name, change, said):
    import transformers

    kind, values = MODELS[name]
    config = getattr(transformers, kind)(**values).to_dict()
    LlamaConfig.from_dict(config)
    with pytest.raises(ModelUnavailableError, match=said):
        LlamaConfig.from_dict(config | change)


@pytest.mark.parametrize(("name", "tokenizer"), [("qwen3", byte_tokenizer), ("gemma3", spaced_tokenizer)])
def test_a_folder_by_its_path_answers_as_transformers_does(name, tokenizer, tmp_path):
    theirs = make_model(name, vocab_size=280)
    theirs.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(tokenizer().to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    with open_session(str(tmp_path), device="cpu", dtype="float32") as session:
        sampling = SamplingParams(temperature=0.0, max_new_tokens=12)
        for drafter in ("none", "ngram"):
            request = session.request([{"role": "user", "content": "hi hi"}], sampling, drafter=drafter)
            events = list(session.engine.submit(request))
            found = [token.id for event in events if event.type == "round" for token in event.committed]
            prompt = torch.tensor([request.prompt_ids])
            expected = theirs.generate(prompt, do_sample=False, max_new_tokens=12, eos_token_id=[2])[0]
            assert found == expected[prompt.shape[1] :].tolist()


@pytest.mark.parametrize("name", ["model.layers.1.self_attn.k_proj.bias", "model.layers.0.self_attn.q_norm.weight"])
def test_missing_parts_of_a_family_are_refused_by_name(name):
    theirs = make_model("qwen2" if "bias" in name else "qwen3")
    state = {key: value for key, value in theirs.state_dict().items() if key != name}
    with pytest.raises(ModelUnavailableError, match=name):
        LlamaTarget.from_state(theirs.config.to_dict(), state)
