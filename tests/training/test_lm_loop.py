"""The small language model's training: every conversation in turn, resumable, on the target's laws."""

import json

import pytest
import torch

from dspark_core.errors import CheckpointError, NumericsError, ParameterError
from dspark_core.target.config import LlamaConfig
from dspark_core.training.forward import Candidates
from dspark_core.training.lm_batch import LmSampler, gather
from dspark_core.training.lm_loop import LmTrainer, lm_loss
from dspark_core.training.lm_model import DraftLm, LmShape
from dspark_core.training.lm_settings import LmSettings, same_lm_run
from tests.training.setup import TARGET, VOCAB, target_state, tiny_cache
from tests.training.test_lm_model import SMALL

HEAD = target_state()["model.embed_tokens.weight"]


def settings_of(**changes):
    values = {
        "predictions": 400,
        "batch_tokens": 40,
        "common_tokens": 20,
        "warmup_steps": 2,
        "log_steps": 1,
        "checkpoint_s": 0.0,
        "autocast": False,
    }
    return LmSettings(**(SMALL | values | changes))


def tiny_model(settings):
    torch.manual_seed(0)
    model = DraftLm(LmShape.of(settings, LlamaConfig.from_dict(TARGET)))
    model.start_from(HEAD)
    return model


def tiny_lm_trainer(folder, cache, settings, **more):
    return LmTrainer(folder, settings, tiny_model(settings), cache, HEAD, torch.arange(20), **more)


@pytest.fixture
def cache(tmp_path):
    return tiny_cache(tmp_path / "features", count=20)


def test_every_conversation_comes_once_an_epoch_in_batches_that_fit(cache):
    sequences = cache.sequences("train")
    sampler = LmSampler(sequences, batch_tokens=50, seed=1)
    batches = []
    while sum(map(len, batches)) < 3 * len(sequences):
        batches.append(sampler.batch(len(batches)))
    texts = [s.start for batch in batches for s in batch]
    epochs = [texts[i : i + len(sequences)] for i in range(0, len(texts), len(sequences))]
    assert all(sorted(epoch) == sorted(s.start for s in sequences) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert max(map(len, batches)) > 1
    assert all(len(batch) * max(s.length for s in batch) <= 50 for batch in batches if len(batch) > 1)
    again = LmSampler(sequences, batch_tokens=50, seed=1)
    assert again.batch(len(batches) - 1) == batches[-1]
    assert again.batch(0) == batches[0], "a number stands for one batch, whatever was asked before"


def test_a_batch_predicts_the_answers_and_nothing_else(cache):
    sequences = cache.sequences("train")[:3]
    batch = gather(cache, sequences, cool_weight=5.0)
    labels, states, weights = [], [], []
    for sequence in sequences:
        labels.append(cache.tokens(sequence)[sequence.prompt_length :])
        states.append(cache.rows(sequence)[1][sequence.prompt_length - 1 : -1])
        weights.append(torch.full((len(labels[-1]),), 5.0 if sequence.temperature == 0 else 1.0))
    assert torch.equal(batch.labels, torch.cat(labels))
    assert torch.equal(batch.target_hidden, torch.cat(states))
    assert torch.equal(batch.weights, torch.cat(weights))
    assert torch.equal(batch.ids.flatten()[batch.rows + 1], batch.labels)


def test_the_loss_on_all_tokens_is_that_of_the_full_laws(cache):
    model = tiny_model(settings_of())
    batch = gather(cache, cache.sequences("train")[:3])
    candidates = Candidates.of(torch.arange(VOCAB), batch.ids, VOCAB)
    loss = lm_loss(model, model.embedding, HEAD, batch, candidates)
    hidden = model(batch.ids, model.embedding).flatten(0, 1)[batch.rows]
    draft = torch.softmax(hidden @ model.embedding.T, -1)
    target = torch.softmax(batch.target_hidden.float() @ HEAD.T, -1)
    distance = (draft - target).abs().sum(-1)
    torch.testing.assert_close(loss.acceptance, (1 - distance / 2).detach(), rtol=1e-4, atol=1e-4)
    plain = 0.1 * -draft.log().gather(-1, batch.labels[:, None]).mean() + 0.9 * distance.mean()
    torch.testing.assert_close(loss.total - loss.confidence, plain, rtol=1e-4, atol=1e-4)
    wanted, found = (torch.autograd.grad(x, model.embedding)[0] for x in (plain, loss.total - loss.confidence))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_one_step_is_adam_on_the_mean_gradient_of_the_workers(tmp_path, cache):
    settings = settings_of(clip_norm=1000.0, warmup_steps=0, weight_decay=0.0)
    trainer = tiny_lm_trainer(tmp_path / "run", cache, settings)
    plain = tiny_model(settings)
    for batch in trainer._draw():
        candidates = Candidates.of(torch.arange(20), batch.ids, VOCAB)
        loss = lm_loss(plain, plain.embedding[candidates.ids], HEAD, batch, candidates)
        ((loss.total - loss.confidence) / settings.workers).backward()
    torch.optim.AdamW(plain.parameters(), lr=settings.rate, betas=(0.9, 0.98), weight_decay=0.0).step()
    trainer._one_step()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_a_killed_run_ends_as_an_unbroken_one(tmp_path, cache):
    settings = settings_of()
    unbroken = tiny_lm_trainer(tmp_path / "a", cache, settings)
    unbroken.run()

    def report(row):
        if row["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny_lm_trainer(tmp_path / "b", cache, settings, report=report).run()
    resumed = tiny_lm_trainer(tmp_path / "b", cache, settings)
    assert resumed.step > 0
    resumed.run()
    assert (resumed.step, resumed.predictions) == (unbroken.step, unbroken.predictions)
    for name, value in unbroken.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_a_finished_run_has_nothing_left_to_do(tmp_path, cache):
    tiny_lm_trainer(tmp_path / "run", cache, settings_of()).run()
    again = tiny_lm_trainer(tmp_path / "run", cache, settings_of())
    before = again.model.embedding.detach().clone()
    again.run()
    assert torch.equal(again.model.embedding, before)


def test_training_lowers_the_loss_and_logs_it(tmp_path, cache):
    rows = []
    settings = settings_of(predictions=3000, checkpoint_s=1e9, rate=1e-2)
    tiny_lm_trainer(tmp_path / "run", cache, settings, report=rows.append).run()
    losses = [row["loss"] for row in rows]
    assert sum(losses[-8:]) < 0.9 * sum(losses[:8])
    assert {"ce", "tv", "accept", "anchors", "stage"} <= rows[-1].keys()
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert logged == rows


def test_the_rate_falls_with_predictions_or_with_the_clock(tmp_path, cache):
    run = tiny_lm_trainer(tmp_path / "run", cache, settings_of(hours=1.0, predictions=1000))
    assert run.rate() == pytest.approx(1 / 2)
    run.step, run.predictions = 100, 500
    assert run.rate() == pytest.approx(1 / 2)
    run.elapsed_s = 2700.0
    assert run.rate() == pytest.approx(1 / 4)


def test_nothing_is_learnt_or_saved_from_states_that_are_not_finite(tmp_path, cache):
    trainer = tiny_lm_trainer(tmp_path / "run", cache, settings_of())
    before = trainer.model.embedding.detach().clone()
    trainer.lm_head = trainer.lm_head * float("nan")
    with pytest.raises(NumericsError, match="learning rate"):
        trainer.run()
    assert torch.equal(trainer.model.embedding, before)
    assert not (tmp_path / "run" / "state.pt").exists()


def test_the_state_of_another_model_is_refused(tmp_path, cache):
    tiny_lm_trainer(tmp_path / "run", cache, settings_of()).run()
    with pytest.raises(CheckpointError, match="layers"):
        tiny_lm_trainer(tmp_path / "run", cache, settings_of(layers=3))


def test_only_the_end_of_a_run_may_move(tmp_path):
    file = tmp_path / "settings.json"
    same_lm_run(file, settings_of())
    same_lm_run(file, settings_of(predictions=9, hours=2.0))
    with pytest.raises(ParameterError, match=r"rate 0\.004 there, 0\.005 here"):
        same_lm_run(file, settings_of(rate=0.005))
    file.write_text('{"hidden": 16}')
    with pytest.raises(ParameterError, match="layers None there"):
        same_lm_run(file, settings_of())
    file.write_text("{")
    with pytest.raises(ParameterError, match="JSON"):
        same_lm_run(file, settings_of())
