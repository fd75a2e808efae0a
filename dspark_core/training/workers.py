"""What training loops share: seeds of their own for every draw, gradients of several workers, candidates of a step."""

import numpy as np
import torch
from torch import Tensor

_VOCABULARY = 10**15  # far from any worker's seed: its draw of candidate tokens


def one_thread() -> None:
    """Let the calling worker compute with one thread."""
    torch.set_num_threads(1)


def autocast(device: torch.device, enabled: bool) -> torch.autocast:
    """bfloat16 where it is good enough, without torch's store of weights cast before.

    All threads share that store, and one that leaves clears it: whether a weight's gradients are added before or after
    they are rounded would be decided by the clock, and a run that goes on would not end as an unbroken one.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def step_seed(seed: int, stage: int, step: int, worker: int) -> int:
    """A seed of its own for every draw, so that a resumed run draws what the killed one would have drawn."""
    return ((seed * 4 + stage) * 10_000_000 + step) * 100 + worker


def mean_gradient(gradients: list[Tensor | None]) -> Tensor | None:
    """Mean over the workers, made in the first of them (which is nobody's any more); sparse ones stay sparse.

    None where a parameter took no part.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    if not present:
        return None
    mean = present[0]
    for gradient in present[1:]:
        mean = mean + gradient if mean.is_sparse else mean.add_(gradient)
    mean = mean.div_(len(gradients))
    return mean.coalesce() if mean.is_sparse else mean


class StepCandidates:
    """The tokens that a step's loss is over: rare ones need not cost in every step, but each has its turn.

    `common` [C] may be drafted; `core` are those of them that every step sees; a step sees `step_tokens` in all.
    """

    def __init__(self, common: Tensor, core: Tensor, step_tokens: int) -> None:
        self.common, self.core = common, core
        self._others = common[~torch.isin(common, core)]
        self._count = min(len(self._others), max(0, step_tokens - len(core)))

    def draw(self, seed: int) -> Tensor:
        """The core and a draw of the others that depends on the (worker's) seed alone."""
        if self._count == len(self._others):
            return self.common
        drawn = np.random.default_rng(_VOCABULARY + seed).permutation(len(self._others))[: self._count]
        return torch.cat((self.core, self._others[torch.from_numpy(drawn).to(self.core.device)]))
