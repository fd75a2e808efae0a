"""The small language model is a Llama: what is trained is what Hugging Face's code and our own pass compute."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from dspark_core.errors import ParameterError
from dspark_core.target.config import LlamaConfig
from dspark_core.target.llama import LlamaTarget
from dspark_core.training.lm_model import DraftLm, LmShape
from dspark_core.training.lm_settings import LmSettings
from tests.training.setup import TARGET, VOCAB, target_state

SMALL = {"hidden": 16, "layers": 2, "heads": 2, "kv_heads": 1, "mlp": 24}


def tiny_lm(**changes):
    """Weights far from their start, gains included, so that a mistake anywhere shows."""
    torch.manual_seed(3)
    model = DraftLm(LmShape.of(LmSettings(**(SMALL | changes)), LlamaConfig.from_dict(TARGET)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def logits_of(model, ids):
    return model(ids, model.embedding) @ model.embedding.T


@torch.no_grad()
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_training_transformers_and_our_own_pass_compute_equal_logits(tmp_path, kv_heads):
    model = tiny_lm(kv_heads=kv_heads)
    model.save(tmp_path, torch.float32)
    ids = torch.randint(0, VOCAB, (1, 23), generator=torch.Generator().manual_seed(1))
    trained = logits_of(model, ids)[0]
    theirs, report = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, output_loading_info=True)
    assert type(theirs).__name__ == "LlamaForCausalLM"
    assert not any(report.values()), report
    torch.testing.assert_close(trained, theirs(ids).logits[0], rtol=1e-4, atol=1e-4)
    ours = LlamaTarget.load(tmp_path, dtype=torch.float32)
    output = ours.forward([ours.open_slot(23)], ids.tolist(), tapped_layers=())[0]
    torch.testing.assert_close(trained, output.logits, rtol=1e-4, atol=1e-4)
    assert ours.stop_token_ids == {TARGET["eos_token_id"]}
    assert ours.max_context == TARGET["max_position_embeddings"]


def test_it_is_stored_in_bfloat16_and_says_so(tmp_path):
    model = tiny_lm()
    model.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.dtype == torch.bfloat16
    assert torch.equal(again.get_input_embeddings().weight, model.embedding.detach().bfloat16())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o044 == 0o044, "others may read the weights"


@torch.no_grad()
def test_a_token_sees_those_before_it_and_no_other():
    model = tiny_lm()
    ids = torch.randint(0, VOCAB, (2, 12))
    changed = ids.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % VOCAB
    before, after = logits_of(model, ids), logits_of(model, changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


@torch.no_grad()
def test_rows_of_the_embedding_in_use_stand_for_all_of_it():
    model = tiny_lm()
    used = torch.tensor([4, 9, 30, 96])
    places = torch.tensor([[0, 2, 3, 1, 1]])
    torch.testing.assert_close(model(places, model.embedding[used]), model(used[places], model.embedding))


def test_it_starts_with_the_targets_likes_and_cautious_logits():
    table = target_state()["model.embed_tokens.weight"]
    model = DraftLm(LmShape.of(LmSettings(**SMALL), LlamaConfig.from_dict(TARGET)))
    model.start_from(table)
    wide, narrow = torch.cdist(table, table), torch.cdist(model.embedding.detach(), model.embedding.detach())
    assert torch.corrcoef(torch.stack((wide.flatten(), narrow.flatten())))[0, 1] > 0.7
    assert logits_of(model, torch.arange(VOCAB)[None]).std() < 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden": 64}, "64"),
        ({"hidden": 18, "heads": 6}, "even"),
        ({"heads": 3}, "whole"),
        ({"kv_heads": 3, "heads": 4}, "kv_heads"),
        ({"layers": 0}, "layers"),
        ({"mlp": True}, "mlp"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(changes, named):
    with pytest.raises(ParameterError, match=named):
        tiny_lm(**changes)
