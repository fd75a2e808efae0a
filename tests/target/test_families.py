"""Llama's relatives: each computes what transformers computes, however the tokens are fed."""

from __future__ import annotations

import pytest
import torch

from dspark_core.target.llama import LlamaTarget
from dspark_core.target.lockstep import Lockstep
from tests.target.families import MODELS, VOCAB, make_model

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
