"""Which optimizer has which weights, what one step of Muon does, and that sharing it out changes nothing."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dspark_core.training.optimizers import Optimizers
from tests.modules.tiny import tiny_drafter as tiny
from tests.training.setup import tiny_settings


def tiny_drafter():
    return tiny().requires_grad_(True)


def gradients_for(drafter, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in drafter.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def sparse_tables(drafter):
    for table in (drafter.markov_head.markov_w1.weight, drafter.markov_head.markov_w2.weight):
        table.grad = table.grad.to_sparse(1).coalesce()


def stepped(workers, *, tables=True, weight_decay=0.0):
    drafter = tiny_drafter()
    optimizers = Optimizers(drafter, tiny_settings(workers=workers, weight_decay=weight_decay))
    gradients_for(drafter)
    sparse_tables(drafter)
    optimizers.set_rates(0.01, 0.02)
    with ThreadPoolExecutor(workers) as pool:
        optimizers.step(pool, tables=tables)
    return drafter, optimizers


def test_every_weight_belongs_to_exactly_one_optimizer():
    drafter = tiny_drafter()
    optimizers = Optimizers(drafter, tiny_settings(workers=2))
    owned = [
        id(parameter)
        for optimizer in optimizers.named.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert sorted(owned) == sorted(id(parameter) for parameter in drafter.parameters())


def test_the_draft_layers_matrices_and_the_feature_projection_are_muons():
    drafter = tiny_drafter()
    optimizers = Optimizers(drafter, tiny_settings(workers=2))
    muons = {
        id(parameter)
        for optimizer in optimizers.named.values()
        if isinstance(optimizer, torch.optim.Muon)
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    wanted = {
        id(parameter)
        for name, parameter in drafter.named_parameters()
        if parameter.ndim == 2 and (name.startswith("layers.") or name == "fc.weight")
    }
    assert wanted
    assert muons == wanted


def test_a_matrix_moves_by_about_the_same_in_every_direction():
    """All singular values of Muon's step are near one another; AdamW's and the gradient's are not."""
    before = dict(tiny_drafter().named_parameters())
    after, _ = stepped(1)
    name = "layers.0.self_attn.q_proj.weight"
    moved = torch.linalg.svdvals(before[name] - dict(after.named_parameters())[name])
    gradients_for(after)
    given = torch.linalg.svdvals(dict(after.named_parameters())[name].grad)
    assert moved.max() / moved.min() < 3 < given.max() / given.min()


def test_a_steps_size_is_that_of_the_rate():
    """0.2 of the rate as a root mean square, which is about AdamW's in practice; and the tables have their own."""
    before = dict(tiny_drafter().named_parameters())
    after = dict(stepped(1)[0].named_parameters())
    for name, rate in (("layers.1.mlp.up_proj.weight", 0.2 * 0.01), ("markov_head.markov_w1.weight", 0.02)):
        moved = float((before[name] - after[name]).detach().square().mean().sqrt())
        assert moved == pytest.approx(rate, rel=0.4), name


def test_the_number_of_workers_changes_no_weight():
    alone, _ = stepped(1)
    shared, _ = stepped(3)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, shared.state_dict()[name]), name


def test_more_workers_than_matrices_leave_nobody_without_work():
    _, optimizers = stepped(60)
    assert all(
        group["params"] for name, o in optimizers.named.items() if "matrices" in name for group in o.param_groups
    )


def test_stage_one_leaves_the_tables_alone():
    before = dict(tiny_drafter().named_parameters())
    after = dict(stepped(2, tables=False)[0].named_parameters())
    assert torch.equal(before["markov_head.markov_w1.weight"], after["markov_head.markov_w1.weight"])
    assert not torch.equal(before["fc.weight"], after["fc.weight"])


def test_clipping_scales_the_network_and_leaves_the_tables():
    drafter = tiny_drafter()
    optimizers = Optimizers(drafter, tiny_settings())
    gradients_for(drafter)
    table = drafter.markov_head.markov_w1.weight.grad.clone()
    norm = optimizers.clip(0.5)
    network = [p.grad for name, p in drafter.named_parameters() if not name.startswith("markov_head.markov_w")]
    assert norm > 0.5
    assert torch.linalg.vector_norm(torch.cat([g.flatten() for g in network])) == pytest.approx(0.5, rel=1e-3)
    assert torch.equal(drafter.markov_head.markov_w1.weight.grad, table)


def test_rates_reach_every_optimizer():
    _, optimizers = stepped(2)
    rates = {name: {group["lr"] for group in o.param_groups} for name, o in optimizers.named.items()}
    assert rates == {"matrices 0": {0.01}, "matrices 1": {0.01}, "others": {0.01}, "tables": {0.02}}
