"""The row-wise Adam against torch's own."""

import torch

from dspark_core.training.row_adam import RowAdam


def test_it_does_what_sparse_adam_does():
    torch.manual_seed(0)
    ours = torch.nn.Parameter(torch.randn(20, 4))
    torchs = torch.nn.Parameter(ours.detach().clone())
    optimizers = {ours: RowAdam([ours], 1e-2, (0.9, 0.98)), torchs: torch.optim.SparseAdam([torchs], 1e-2, (0.9, 0.98))}
    for _ in range(6):
        rows, values = torch.randperm(20)[:6].sort().values, torch.randn(6, 4)
        for table, optimizer in optimizers.items():
            table.grad = torch.sparse_coo_tensor(rows[None], values, (20, 4), check_invariants=True).coalesce()
            optimizer.step()
    torch.testing.assert_close(ours, torchs)


def test_a_row_without_a_gradient_rests():
    table = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = RowAdam([table], 0.1, (0.9, 0.98))
    for row in (0, 1):
        table.grad = torch.sparse_coo_tensor([[row]], torch.ones(1, 2), (3, 2), check_invariants=True).coalesce()
        optimizer.step()
        assert optimizer.state[table]["exp_avg"][2].tolist() == [0, 0]
    assert table[2].tolist() == [1, 1]
    assert (table[:2] < 1).all()
