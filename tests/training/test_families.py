"""A drafter is begun and trained for each architecture of target, and drafts for it exactly."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest
import torch

from dspark_core.checkpoint import load_drafter, save_drafter
from dspark_core.drafters.base import DraftAsk
from dspark_core.drafters.dspark import DSparkDrafter
from dspark_core.errors import ModelUnavailableError
from dspark_core.modules.drafter import Drafter
from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice
from dspark_core.target.llama import LlamaTarget
from dspark_core.training.batch import collate
from dspark_core.training.cache import build_cache
from dspark_core.training.command import add_arguments, run
from dspark_core.training.forward import block_hidden
from dspark_core.training.source import TargetFeatures, TargetWeights
from dspark_core.training.start import draft_config, smart_start
from tests.target.families import make_model
from tests.training.setup import HIDDEN, TAPS, conversations, write_jsonl

NAMES = ["qwen2", "qwen3-tied", "gemma3"]


@pytest.fixture(scope="module", params=NAMES)
def begun(request, tmp_path_factory):
    """(target, its weights, a drafter begun from it, the drafter as it was made)."""
    folder = tmp_path_factory.mktemp(request.param)
    make_model(request.param).save_pretrained(folder)
    weights = TargetWeights.load(folder)
    target = LlamaTarget.load(folder, dtype=torch.float32)
    config = draft_config(weights.config, TAPS, layers=2, block_size=4, markov_rank=5, mask_token_id=3)
    drafter = Drafter(config)
    made = {name: value.clone() for name, value in drafter.state_dict().items()}
    ((features, _),) = TargetFeatures(target, TAPS)([list(range(20))])
    smart_start(drafter, weights, features.clone())
    return target, weights, drafter, made


def loaded(drafter, folder):
    config = replace(drafter.config, dtype="float32")
    save_drafter(folder / "drafter", config, drafter.state_dict())
    return load_drafter(folder / "drafter")


def test_tables_are_those_that_the_target_computes_with(begun):
    target, weights, _, _ = begun
    torch.testing.assert_close(weights.embedding, target.embed(torch.arange(97)))
    hidden = torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(hidden @ weights.lm_head.T, target.lm_head(hidden).clone())


def test_a_draft_layer_begins_as_a_layer_of_the_target_where_it_can_be_one(begun):
    target, weights, drafter, made = begun
    family, state = target.config.family, drafter.state_dict()
    if family.outer_norms:
        same = [name for name in state if name.startswith(("layers.", "hidden_norm."))]
        assert all(torch.equal(state[name], made[name]) for name in same)
        torch.testing.assert_close(state["norm.weight"], 1 + weights.tensors["model.norm.weight"])
        return
    for index in range(2):
        for part in ("self_attn.q_proj", "mlp.down_proj", "post_attention_layernorm"):
            assert torch.equal(state[f"layers.{index}.{part}.weight"], weights.layer(2 + index, part))
        gain = state[f"layers.{index}.self_attn.k_norm.weight"]
        if family.query_key_norm:
            assert torch.equal(gain, weights.layer(2 + index, "self_attn.k_norm"))
        else:
            assert len(gain.unique()) == 1
            assert gain[0] not in (0, 1)


def test_training_and_drafting_see_the_same_block(begun, tmp_path):
    """The hidden states of a block in training are those of the drafter beside the running target."""
    target, weights, drafter, _ = begun
    data = conversations(1)
    cache = build_cache(tmp_path / "cache", TargetFeatures(target, TAPS), TAPS, HIDDEN, data, data)
    (sequence,) = cache.sequences("train")
    batch = collate(cache, [sequence], [[5]], drafter.config.block_size)
    with torch.no_grad():
        trained = block_hidden(drafter, weights.embedding, batch)[0, 0]
    running = DSparkDrafter(loaded(drafter, tmp_path), target)
    ids = cache.tokens(sequence).tolist()
    state = running.open(20)
    state.observe(tuple(ids[:5]), cache.rows(sequence, 0, 5)[0].float())
    ask = DraftAsk(state, ids[5], drafter.config.block_size, SamplingParams(), SeededDice(0))
    found = running.hidden_states([ask])
    torch.testing.assert_close(found, trained, rtol=1e-4, atol=1e-4)


def test_a_target_that_caps_its_logits_is_refused_by_name(tmp_path):
    make_model("gemma3-untied-capped").save_pretrained(tmp_path)
    with pytest.raises(ModelUnavailableError, match="final_logit_softcapping 3"):
        TargetWeights.load(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_trains_a_drafter_that_the_target_can_use(name, tmp_path):
    make_model(name).save_pretrained(tmp_path / "target")
    write_jsonl(tmp_path / "data.jsonl", conversations(12))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    small = "--stage1-anchors=40 --stage2-anchors=40 --markov-rank=4 --common-tokens=30 --block-size=4 --taps 0 2"
    places = [f"--{x}={tmp_path / y}" for x, y in (("data", "data.jsonl"), ("work", "work"), ("out", "out"))]
    assert run(parser.parse_args([*places, *small.split(), f"--target-path={tmp_path / 'target'}"])) == 0
    target = LlamaTarget.load(tmp_path / "target", dtype=torch.float32)
    drafter = DSparkDrafter(load_drafter(tmp_path / "out"), target, draft_vocabulary=range(4, 40))
    ids = list(range(10, 20))
    (output,) = target.forward([target.open_slot(12)], [ids], tapped_layers=drafter.tapped_layers)
    state = drafter.open(12)
    state.observe(tuple(ids), output.features)
    block = state.draft(30, 4, SamplingParams(temperature=0.0), SeededDice(0))
    assert len(block.token_ids) == 4
    assert all(4 <= token < 40 for token in block.token_ids)
