"""A drafter's optimizers: Muon for the draft layers' matrices, AdamW for the rest, `RowAdam` for the Markov tables.

Muon (Jordan et al. 2024) makes a matrix's step orthogonal: rare directions move as far as common ones. From the shipped
weights, on the same batches, at the same rate, it was ahead of AdamW throughout (README, "Training a drafter").
"""

from collections.abc import Iterable
from concurrent.futures import Executor

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dspark_core.training.row_adam import RowAdam
from dspark_core.training.settings import TrainSettings

_BETAS = (0.9, 0.98)
_MATRICES = ("layers.", "fc.")
_TABLES = "markov_head.markov_w"


class Optimizers:
    """All of a drafter's weights, shared out; `named` is what a resume needs.

    The matrices are shared among as many Muons as there are workers, about as much work for each: their products are
    small, and two threads inside every one of them are slower than one thread each.
    """

    def __init__(self, drafter: nn.Module, settings: TrainSettings) -> None:
        matrices: list[Tensor] = []
        tables: list[Tensor] = []
        others: list[Tensor] = []
        for name, parameter in drafter.named_parameters():
            if not parameter.requires_grad:
                continue
            is_matrix = name.startswith(_MATRICES) and parameter.ndim == 2
            (matrices if is_matrix else tables if name.startswith(_TABLES) else others).append(parameter)
        self._muons = [
            # Its step is scaled to the size of AdamW's, so that one rate serves both.
            torch.optim.Muon(share, lr=1.0, weight_decay=settings.weight_decay, adjust_lr_fn="match_rms_adamw")
            for share in _shares(matrices, settings.workers)
        ]
        groups = [
            {"params": [p for p in others if p.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [p for p in others if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self._others = torch.optim.AdamW(groups, lr=1.0, betas=_BETAS, fused=True)
        self._tables = RowAdam(tables, lr=1.0, betas=_BETAS) if tables else None
        self._network = [*matrices, *others]

    @property
    def named(self) -> dict[str, Optimizer]:
        """Every optimizer by the name that its state is stored under."""
        found: dict[str, Optimizer] = {f"matrices {i}": muon for i, muon in enumerate(self._muons)}
        return found | {"others": self._others} | ({"tables": self._tables} if self._tables else {})

    def set_rates(self, rate: float, table_rate: float) -> None:
        """Learning rates of the next step: of the network, and of the Markov tables."""
        for optimizer in self.named.values():
            for group in optimizer.param_groups:
                group["lr"] = table_rate if optimizer is self._tables else rate

    def clip(self, norm: float) -> Tensor:
        """Scale the network's gradients to at most `norm`; returns the norm that they had."""
        return torch.nn.utils.clip_grad_norm_(self._network, norm)

    def table_gradients(self) -> list[Tensor]:
        """The Markov tables' gradients, where they have one."""
        groups = self._tables.param_groups if self._tables else []
        return [p.grad for group in groups for p in group["params"] if p.grad is not None]

    def step(self, pool: Executor, *, tables: bool) -> None:
        """One update of everything that has a gradient; of the Markov tables only if `tables` says so."""
        list(pool.map(lambda muon: muon.step(), self._muons))
        self._others.step()
        if self._tables is not None and tables:
            self._tables.step()


def _shares(matrices: Iterable[Tensor], workers: int) -> list[list[Tensor]]:
    """The matrices in `workers` parts of about the same work, none of them empty."""
    parts: list[list[Tensor]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for matrix in sorted(matrices, key=_work, reverse=True):
        lightest = loads.index(min(loads))
        parts[lightest].append(matrix)
        loads[lightest] += _work(matrix)
    return [part for part in parts if part]


def _work(matrix: Tensor) -> int:
    """The orthogonalisation's products: the smaller side squared, times the larger."""
    low, high = sorted(matrix.shape)
    return int(low * low * high)
