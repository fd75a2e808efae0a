"""`train lm`: held-out figures that are exact, and a Hugging Face folder beside a drafter's run."""

import argparse
import json
import re

import pytest
import torch
from safetensors.torch import save_file

from dspark_core.drafters.vocabulary import read_draft_vocabulary
from dspark_core.errors import ParameterError, ResourceError
from dspark_core.target.llama import LlamaTarget
from dspark_core.training.cache import build_cache
from dspark_core.training.command import add_arguments, run
from dspark_core.training.files import held
from dspark_core.training.lm_batch import gather
from dspark_core.training.lm_evaluate import LmEvaluator, expected_tokens
from dspark_core.training.source import TargetFeatures
from tests.training.setup import TARGET, VOCAB, conversations, target_state, tiny_cache, write_jsonl
from tests.training.test_lm_model import tiny_lm

HEAD = target_state()["model.embed_tokens.weight"]


@pytest.fixture
def folder(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(TARGET))
    save_file(target_state(), target / "model.safetensors")
    write_jsonl(tmp_path / "data.jsonl.gz", conversations(30))
    return tmp_path


def options(folder, *more, step="lm"):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    paths = [f"--data={folder / 'data.jsonl.gz'}", f"--work={folder / 'work'}", f"--out={folder / 'out'}"]
    small = ["--common-tokens=30", "--block-size=4", "--stage1-anchors=20", "--stage2-anchors=20"]
    small += ["--markov-rank=4", "--mask-token-id=3"]
    sizes = ["--lm-hidden=16", "--lm-layers=1", "--lm-heads=2", "--lm-kv-heads=1", "--lm-mlp=24"]
    target = [f"--target-path={folder / 'target'}", "--taps", "0", "2"]
    return parser.parse_args([step, *paths, *small, *sizes, "--lm-predictions=600", *target, *more])


def test_features_become_a_language_model_with_its_record(folder, capsys):
    assert run(options(folder)) == 0
    out = folder / "out"
    model = LlamaTarget.load(out, dtype=torch.float32)
    assert (model.vocab_size, model.hidden_size, model.num_layers) == (VOCAB, 16, 1)
    assert len(read_draft_vocabulary(out, VOCAB)) == 30
    record = json.loads((out / "training.json").read_text())
    assert record["settings"]["hidden"] == 16
    assert record["predictions"] >= 600
    assert record["data"]["validation"]["conversations"] == 2
    assert 0 < record["held_out"]["law"]["acceptance"] < 1
    assert record["held_out"]["law"]["expected_tau"] > 1
    assert (out / "training_log.csv").read_text().startswith("stage,anchors,")
    assert "wrote" in capsys.readouterr().err


def test_it_runs_beside_a_drafter_of_any_settings_on_the_same_features(folder):
    run(options(folder, step="fit"))
    written = (folder / "work" / "features" / "features.bin").stat().st_mtime_ns
    kept = (folder / "work" / "settings.json").read_bytes()
    run(options(folder, "--block-size=3", f"--out={folder / 'lm'}"))
    assert (folder / "work" / "features" / "features.bin").stat().st_mtime_ns == written
    assert (folder / "work" / "settings.json").read_bytes() == kept
    run(options(folder, step="fit"))


def test_a_finished_run_can_be_repeated_and_another_is_refused(folder):
    run(options(folder))
    before = (folder / "out" / "model.safetensors").read_bytes()
    run(options(folder))
    assert (folder / "out" / "model.safetensors").read_bytes() == before
    with pytest.raises(ParameterError, match="rate"):
        run(options(folder, "--lm-rate=0.1"))


def test_two_runs_in_one_work_folder_are_kept_apart(folder):
    (folder / "work" / "lm").mkdir(parents=True)
    with held(folder / "work" / "lm" / ".lock"), pytest.raises(ResourceError, match="Another run"):
        run(options(folder))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--lm-hidden=64"], "hidden is 64"),
        (["--lm-hidden=15"], "hidden is 15"),
        (["--lm-kv-heads=3"], "kv_heads"),
        (["--lm-layers=0"], "layers"),
        (["--lm-predictions=0"], "predictions"),
        (["--lm-rate=nan"], "rate"),
        (["--hours=-1"], "hours"),
    ],
)
def test_refusals_come_before_the_work(folder, given, named):
    with pytest.raises(ParameterError, match=named):
        run(options(folder, *given))
    assert not (folder / "work").exists()


def test_a_start_from_a_drafter_cannot_be_honoured(folder):
    run(options(folder, step="fit"))
    with pytest.raises(ParameterError, match="--start-from"):
        run(options(folder, f"--start-from={folder / 'out'}"))


@pytest.mark.parametrize("missing", ["--work", "--out"])
def test_it_names_the_folder_that_it_needs(folder, missing):
    args = options(folder)
    setattr(args, missing.removeprefix("--"), None)
    with pytest.raises(ParameterError, match=missing):
        run(args)


def test_expected_tokens_by_hand():
    tokens = expected_tokens(torch.tensor([0.5, 0.2, 1.0]), drafts=2)
    torch.testing.assert_close(tokens, torch.tensor([1 + 0.5 + 0.1, 1 + 0.2 + 0.2, 1 + 1.0]))


def test_the_target_as_its_own_drafter_has_every_token_accepted(tmp_path):
    model = tiny_lm()
    model.save(tmp_path / "lm", torch.float32)
    target = LlamaTarget.load(tmp_path / "lm", dtype=torch.float32)
    cache = tiny_cache_of(target, tmp_path)
    evaluator = LmEvaluator(cache, model.embedding.detach(), torch.arange(VOCAB), autocast=False)
    law = evaluator.figures(model, cache.sequences("validation"))["law"]
    assert law["acceptance"] > 0.98  # the cache's states are bfloat16
    assert law["greedy_agreement"] > 0.9
    lengths = [s.length - s.prompt_length for s in cache.sequences("validation")]
    most = sum(1 + min(8, n - i) for n in lengths for i in range(n)) / sum(lengths)
    assert most - 0.3 < law["expected_tau"] <= most + 1e-3


def tiny_cache_of(target, folder):
    parts = conversations(4), conversations(3, seed=9)
    return build_cache(folder / "features", TargetFeatures(target, (0,)), (0,), 16, *parts)


@torch.no_grad()
def test_the_figures_are_those_of_the_laws_and_of_the_texts(tmp_path):
    model, ids = tiny_lm(), torch.tensor([3, 8, 20, 21, 40, 77, 90])
    cache = tiny_cache(tmp_path / "features")
    sequences = cache.sequences("train")
    figures = LmEvaluator(cache, HEAD, ids, autocast=False).figures(model, sequences)
    accepted, agreed = [], []
    for sequence in sequences:
        batch = gather(cache, [sequence])
        logits = (model(batch.ids, model.embedding) @ model.embedding.T)[0, batch.rows]
        draft = torch.zeros_like(logits)
        draft[:, ids] = torch.softmax(logits[:, ids], -1)
        target = torch.softmax(batch.target_hidden.float() @ HEAD.T, -1)
        accepted.append(torch.minimum(draft, target).sum(-1))
        agreed.append((draft.argmax(-1) == target.argmax(-1)).float())
    assert figures["law"]["acceptance"] == pytest.approx(float(torch.cat(accepted).mean()), abs=1e-3)
    assert figures["law"]["greedy_agreement"] == pytest.approx(float(torch.cat(agreed).mean()), abs=1e-3)


def test_greedy_rounds_are_those_of_the_text(tmp_path):
    """A model that may draft one token only is right wherever the text has it: a round takes that run and one more."""
    cache = tiny_cache(tmp_path / "features", count=40)
    greedy = [s for s in cache.sequences("train") if s.temperature == 0]
    texts = [cache.tokens(s)[s.prompt_length :].tolist() for s in greedy]
    only = max(range(3, VOCAB), key=lambda token: sum(text.count(token) for text in texts))
    told = LmEvaluator(cache, HEAD, torch.tensor([only])).figures(tiny_lm(), cache.sequences("train"))["greedy"]
    rounds = [len(re.findall("x{0,8}.|x+$", "".join("x" if t == only else "o" for t in text))) for text in texts]
    assert (told["rounds"], told["tokens"]) == (sum(rounds), sum(map(len, texts)))
    assert told["rounds"] < told["tokens"]
