"""The feature cache: what is stored, told sizes, resume, refusals; and the batches drawn from it."""

import errno
import json
import os
import shutil

import numpy as np
import pytest
import torch

from dspark_core.errors import ParameterError, ResourceError
from dspark_core.training import cache as cache_module
from dspark_core.training.batch import Sampler, collate
from dspark_core.training.cache import FeatureCache, build_cache, cache_bytes
from tests.training.setup import (
    HIDDEN,
    TAPS,
    TARGET,
    conversations,
    target_state,
    tiny_cache,
    tiny_source,
    tiny_weights,
)


def test_rows_are_the_targets_own(tmp_path):
    cache, source = tiny_cache(tmp_path), tiny_source()
    for sequence in (*cache.sequences("train"), *cache.sequences("validation")):
        ((taps, final),) = source([cache.tokens(sequence).tolist()])
        stored_taps, stored_final = cache.rows(sequence)
        torch.testing.assert_close(stored_taps, taps.bfloat16(), rtol=0.02, atol=0.02)
        torch.testing.assert_close(stored_final, final.bfloat16(), rtol=0.02, atol=0.02)


def test_taps_are_layer_outputs_and_the_final_state_is_after_the_norm():
    """Id k = hidden_states[k+1], and the final state is what the LM head reads."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**TARGET)
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(target_state() | {"lm_head.weight": target_state()["model.embed_tokens.weight"]})
    ids = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = model(ids, output_hidden_states=True)
    told = tiny_source((0, 1, 2))(ids.tolist())
    taps, final = (torch.stack(part) for part in zip(*told, strict=True))
    torch.testing.assert_close(
        taps, torch.cat([wanted.hidden_states[k + 1] for k in (0, 1, 2)], -1), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(final @ tiny_weights().lm_head.T, wanted.logits, rtol=1e-3, atol=1e-3)


def test_every_conversation_is_there_once_and_parts_are_apart(tmp_path):
    cache = tiny_cache(tmp_path)
    found = {
        part: sorted(tuple(cache.tokens(s).tolist()) for s in cache.sequences(part)) for part in ("train", "validation")
    }
    assert found["train"] == sorted(c.ids for c in conversations(8))
    assert found["validation"] == sorted(c.ids for c in conversations(2, seed=9))


def test_told_size_is_the_size_on_disk(tmp_path):
    cache = tiny_cache(tmp_path)
    tokens = sum(s.length for part in ("train", "validation") for s in cache.sequences(part))
    written = sum((tmp_path / name).stat().st_size for name in ("features.bin", "tokens.bin"))
    assert written == cache_bytes(tokens, len(TAPS), HIDDEN)


def test_a_short_disk_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(ResourceError, match="needs"):
        tiny_cache(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_cache_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "_CHUNK", 3)
    whole = tiny_cache(tmp_path / "whole")
    source, calls = tiny_source(), []

    def dies(ids):
        calls.append(len(ids))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return source(ids)

    with pytest.raises(KeyboardInterrupt):
        tiny_cache(tmp_path / "killed", dies)
    assert FeatureCache(tmp_path / "killed").ready == 6
    resumed = tiny_cache(tmp_path / "killed", source)
    assert resumed.ready == 10
    for name in ("features.bin", "tokens.bin", "index.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert whole.ready == 10


def test_a_cache_of_other_data_is_refused(tmp_path):
    tiny_cache(tmp_path)
    with pytest.raises(ParameterError, match="other data"):
        build_cache(tmp_path, tiny_source(), TAPS, HIDDEN, conversations(5, seed=3), conversations(2))


def test_no_cache_folder_is_told(tmp_path):
    with pytest.raises(ParameterError, match="no feature cache"):
        FeatureCache(tmp_path)


def test_unfinished_sequences_are_left_out(tmp_path):
    cache = tiny_cache(tmp_path)
    (tmp_path / "progress.json").write_text(json.dumps({"sequences_done": 3}))
    assert cache.refresh() == 3
    assert len(cache.sequences("train")) == 3


def test_a_batch_holds_what_the_anchor_is_to_predict(tmp_path):
    cache = tiny_cache(tmp_path)
    sequence = cache.sequences("train")[0]
    tokens, (taps, final) = cache.tokens(sequence), cache.rows(sequence)
    last = sequence.length - 2
    batch = collate(cache, [sequence], [[2, last]], 3)
    assert batch.anchor_ids.tolist() == [[tokens[2], tokens[last]]]
    assert batch.labels[0, 0].tolist() == tokens[3:6].tolist()
    assert batch.prev_ids[0, 0].tolist() == tokens[2:5].tolist()
    assert torch.equal(batch.target_hidden[0, 0], final[2:5])
    assert batch.valid[0].tolist() == [[True] * 3, [True, False, False]]
    assert batch.labels[0, 1, 0] == 2  # the end token is predicted too
    assert batch.features.shape[1] == last
    assert torch.equal(batch.features[0], taps[:last])
    assert batch.visible[0].sum(-1).tolist() == [2, last]  # strictly before the anchor
    assert batch.positions[0, 0].tolist() == [2, 3, 4]


def test_draws_depend_on_the_seed_alone(tmp_path):
    cache = tiny_cache(tmp_path)
    sampler = Sampler(cache, cache.sequences("train"), prompt_share=0.2)
    first, again, other = (sampler.draw(seed, sequences=2, anchors=4, length=3) for seed in (1, 1, 2))
    assert torch.equal(first.anchors, again.anchors)
    assert torch.equal(first.labels, again.labels)
    assert not (torch.equal(first.anchors, other.anchors) and torch.equal(first.labels, other.labels))


def test_anchors_begin_at_the_last_prompt_token(tmp_path):
    cache = tiny_cache(tmp_path)
    sampler = Sampler(cache, cache.sequences("train")[:1])
    sequence = sampler.sequences[0]
    seen = {
        int(a) for seed in range(40) for a in sampler.draw(seed, sequences=1, anchors=4, length=2).anchors.flatten()
    }
    assert seen == set(range(sequence.prompt_length - 1, sequence.length - 1))


def test_cool_answers_are_drawn_as_often_as_their_weight_says(tmp_path):
    cache = tiny_cache(tmp_path)
    for weight in (1.0, 5.0):
        sampler = Sampler(cache, cache.sequences("train"), cool_weight=weight)
        tokens = {s: s.length * (weight if s.temperature == 0 else 1) for s in sampler.sequences}
        wanted = sum(n for s, n in tokens.items() if s.temperature == 0) / sum(tokens.values())
        rng = np.random.default_rng(0)
        drawn = [sampler.choose(rng, 1)[0].temperature == 0 for _ in range(2000)]
        assert sum(drawn) / len(drawn) == pytest.approx(wanted, abs=0.05)


def test_sequences_of_a_batch_differ(tmp_path):
    cache = tiny_cache(tmp_path)
    sampler = Sampler(cache, cache.sequences("train"))
    chosen = sampler.choose(np.random.default_rng(1), 5)
    assert len(set(chosen)) == 5
    assert len(sampler.choose(np.random.default_rng(1), 100)) == 8  # all there are


def test_a_disk_that_fills_up_is_told_before_the_first_pass(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ResourceError, match="No space left"):
        tiny_cache(tmp_path)
    assert not (tmp_path / "features.bin").exists()
    monkeypatch.undo()
    assert tiny_cache(tmp_path).ready == 10
