"""The loop: it learns, a killed run ends as an unbroken one, and its schedule follows anchors or the clock."""

import json

import pytest
import torch

from dspark_core.checkpoint import load_drafter
from dspark_core.modules.drafter import Drafter
from dspark_core.training.batch import Sampler
from dspark_core.training.forward import batch_draft_loss, block_hidden, with_copy
from dspark_core.training.losses import regression_loss
from dspark_core.training.progress import write_compact_log
from dspark_core.training.start import principal_components
from tests.training.setup import HIDDEN, VOCAB, tiny_cache, tiny_drafter, tiny_settings, tiny_trainer


@pytest.fixture
def cache(tmp_path):
    return tiny_cache(tmp_path / "features")


def test_a_killed_run_ends_as_an_unbroken_one(tmp_path, cache):
    settings = tiny_settings()
    unbroken = tiny_trainer(tmp_path / "a", cache, settings)
    unbroken.run()

    def killed_at(stage, step):
        def report(row):
            if (row["stage"], row["step"]) == (stage, step):
                raise KeyboardInterrupt

        return report

    for stage, step in ((1, 3), (2, 2)):
        with pytest.raises(KeyboardInterrupt):
            tiny_trainer(tmp_path / "b", cache, settings, report=killed_at(stage, step)).run()
    resumed = tiny_trainer(tmp_path / "b", cache, settings)
    assert (resumed.stage, resumed.step) != (1, 0)
    resumed.run()
    for name, value in unbroken.drafter.state_dict().items():
        assert torch.equal(value, resumed.drafter.state_dict()[name]), name


def test_workers_side_by_side_in_bfloat16_give_the_same_weights_whatever_the_clock(tmp_path, cache):
    found = []
    for name in "abcd":
        run = tiny_trainer(tmp_path / name, cache, tiny_settings(autocast=True, stage1_anchors=300, stage2_anchors=300))
        run.run()
        found.append(run.drafter.state_dict())
    for other in found[1:]:
        assert all(torch.equal(value, found[0][name]) for name, value in other.items())


def test_a_killed_run_logs_no_step_twice(tmp_path, cache):
    """Between its last state and its end a run logs steps that the next one takes again."""
    unbroken = tiny_trainer(tmp_path / "a", cache, tiny_settings())
    unbroken.run()
    rows = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]

    def die(row):
        if (row["stage"], row["step"]) == (2, 2):
            raise KeyboardInterrupt

    for more in ({"checkpoint_s": 1e9}, {}):  # the first has no state to go on from
        with pytest.raises(KeyboardInterrupt):
            tiny_trainer(tmp_path / "b", cache, tiny_settings(**more), report=die).run()
    with (tmp_path / "b" / "log.jsonl").open("a") as log:
        log.write('{"stage": 2, "st')
    tiny_trainer(tmp_path / "b", cache, tiny_settings()).run()
    again = [json.loads(line) for line in (tmp_path / "b" / "log.jsonl").read_text().splitlines()]
    assert [(row["stage"], row["step"], row["loss"]) for row in again] == [
        (row["stage"], row["step"], row["loss"]) for row in rows
    ]


def test_both_stages_lower_their_loss(tmp_path, cache):
    settings = tiny_settings(stage1_anchors=500, stage2_anchors=1000, checkpoint_s=1e9)
    rows = []
    tiny_trainer(tmp_path / "run", cache, settings, report=rows.append).run()
    for stage in (1, 2):
        losses = [row["loss"] for row in rows if row["stage"] == stage]
        assert sum(losses[-8:]) < 0.95 * sum(losses[:8])
    assert {"ce", "tv", "confidence"} <= rows[-1].keys()
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert logged == rows


def test_the_export_is_a_checkpoint_of_the_trained_weights(tmp_path, cache):
    run = tiny_trainer(tmp_path / "run", cache, tiny_settings())
    run.run()
    run.export(tmp_path / "out")
    loaded = load_drafter(tmp_path / "out")
    torch.testing.assert_close(loaded.modules.fc.weight, run.drafter.fc.weight.detach(), rtol=0.01, atol=0.01)


def test_a_finished_run_has_nothing_left_to_do(tmp_path, cache):
    tiny_trainer(tmp_path / "run", cache, tiny_settings()).run()
    again = tiny_trainer(tmp_path / "run", cache, tiny_settings())
    before = again.drafter.fc.weight.clone()
    again.run()
    assert torch.equal(again.drafter.fc.weight, before)


def test_rates_fall_with_anchors_or_with_the_clock(tmp_path, cache):
    run = tiny_trainer(tmp_path / "run", cache, tiny_settings(hours=1.0, stage1_share=0.5, stage1_anchors=1000))
    run.step = 100
    run.anchors, run.elapsed_s = 500, 0.0
    assert run.rate() == pytest.approx(1 - 0.75 * 0.5)
    run.elapsed_s = 1800.0  # half of the hour is stage 1's
    assert run.progress() == 1
    run.stage, run.anchors, run.stage_started_s, run.elapsed_s = 2, 0, 1800.0, 2700.0
    assert run.rate() == pytest.approx(0.5)


def test_training_form_equals_the_drafters_own(cache):
    """Many anchors at once give what inference gives, block by block with cached context."""
    drafter, source = tiny_drafter(cache, tiny_settings())
    sampler = Sampler(cache, cache.sequences("train"))
    batch = sampler.draw(0, sequences=2, anchors=3, length=4)
    hidden = block_hidden(drafter, source.embedding, batch)
    for s in range(2):
        for a in range(3):
            anchor = int(batch.anchors[s, a])
            rows = batch.features[s, :anchor].float()
            ids = torch.tensor([int(batch.anchor_ids[s, a]), 3, 3, 3])
            context = drafter.context_keys_values(rows, torch.arange(anchor))
            alone = drafter.forward_block(source.embedding[ids], torch.arange(anchor, anchor + 4), context)
            torch.testing.assert_close(hidden[s, a], alone, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_copy_head_raises_what_followed_the_same_words_in_the_sequence(cache):
    head = tiny_drafter(cache, tiny_settings())[0].copy_head
    batch = Sampler(cache, cache.sequences("train")).draw(3, sequences=2, anchors=8, length=4)
    assert bool((batch.matched > 0).any())
    logits = torch.zeros(*batch.copied.shape, VOCAB)
    raised = with_copy(logits, batch.copied, head.gate(torch.zeros(*batch.copied.shape, HIDDEN), batch.matched))
    for at in zip(*(raised != 0).nonzero(as_tuple=True), strict=True):
        assert batch.copied[at[:3]] == at[3]
        assert batch.matched[at[:3]] > 0


def test_stage_two_loss_on_all_tokens_is_the_plain_one(cache):
    """With every token a candidate the acceptance is that of the full laws."""
    drafter, source = tiny_drafter(cache, tiny_settings(copy_longest=0))
    batch = Sampler(cache, cache.sequences("train")).draw(3, sequences=2, anchors=3, length=4)
    loss = batch_draft_loss(drafter, source.embedding, source.lm_head, batch, torch.arange(VOCAB))
    hidden = block_hidden(drafter, source.embedding, batch)
    draft = torch.softmax(
        hidden @ source.lm_head.T + drafter.markov_head.scores(drafter.markov_head.embed(batch.prev_ids)), -1
    )
    target = torch.softmax(batch.target_hidden.float() @ source.lm_head.T, -1)
    wanted = (1 - 0.5 * (draft - target).abs().sum(-1))[batch.valid]
    torch.testing.assert_close(loss.acceptance, wanted.detach(), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_smart_start_is_nearer_to_the_target_than_noise(cache):
    drafter, source = tiny_drafter(cache, tiny_settings())
    batch = Sampler(cache, cache.sequences("train")).draw(3, sequences=2, anchors=6, length=4)
    torch.manual_seed(1)
    noise = Drafter(drafter.config)
    losses = [
        float(regression_loss(block_hidden(d, source.embedding, batch), batch.target_hidden, batch.valid.float()).total)
        for d in (drafter, noise)
    ]
    assert losses[0] < losses[1]
    assert torch.equal(drafter.layers[1].mlp.up_proj.weight, source.layer(3, "mlp.up_proj"))
    assert drafter.fc.weight[:, -HIDDEN:].diagonal().mean() > 0.9


def test_principal_components_keep_the_strongest_directions():
    table = torch.randn(50, 2) @ torch.randn(2, 6)
    parts = principal_components(table, 2)
    assert parts.shape == (50, 2)
    assert float(parts.square().mean()) == pytest.approx(1, rel=1e-4)
    distances, kept = torch.cdist(table, table), torch.cdist(parts, parts)
    assert torch.corrcoef(torch.stack((distances.flatten(), kept.flatten())))[0, 1] > 0.9


def test_a_damaged_line_of_the_log_does_not_cost_the_checkpoint_its_log(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"stage": 1, "anchors": 5}\n{"stage": 1, "anch\n\xff\n[1]\n{"stage": 2, "anchors": 9}\n')
    write_compact_log(log, tmp_path / "log.csv")
    rows = (tmp_path / "log.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [["1", "5"], ["2", "9"]]


def test_a_step_sees_the_core_and_some_of_the_other_common_tokens(tmp_path):
    cache = tiny_cache(tmp_path / "features")
    settings = tiny_settings(stage1_anchors=0, step_tokens=8)
    trainer = tiny_trainer(tmp_path / "run", cache, settings, core=torch.tensor([2, 3, 5]))
    draws = []
    for trainer.step in range(40):
        ids = trainer._candidates(worker=0)
        assert ids[:3].tolist() == [2, 3, 5]
        assert len(set(ids.tolist())) == 8
        assert set(ids.tolist()) <= set(range(20))
        draws.append(ids.tolist())
    assert set().union(*draws) == set(range(20)), "every common token has its turn"
    trainer.step = 7
    assert trainer._candidates(worker=0).tolist() == draws[7], "a resumed run draws the same"
    trainer.run()


def test_all_common_tokens_where_they_are_no_more_than_a_steps(tmp_path):
    trainer = tiny_trainer(tmp_path / "run", tiny_cache(tmp_path / "features"), tiny_settings())
    assert trainer._candidates(worker=1).tolist() == list(range(20))
