"""The resumable training of a small language model on the target's laws: one stage, the paper's loss."""

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dspark_core.errors import NumericsError
from dspark_core.training.cache import FeatureCache
from dspark_core.training.files import append_line, make_folder
from dspark_core.training.forward import Candidates
from dspark_core.training.lm_batch import LmBatch, LmSampler, gather
from dspark_core.training.lm_model import DraftLm
from dspark_core.training.lm_settings import LmSettings
from dspark_core.training.loop import LOG_NAME, STATE_NAME, Report
from dspark_core.training.losses import DraftLoss, draft_loss
from dspark_core.training.progress import trim_log
from dspark_core.training.state import LAST_STAGE, Position, Trained, read_state, write_state
from dspark_core.training.workers import StepCandidates, autocast, mean_gradient, one_thread, step_seed

_STAGE = 2  # of the drafters' two, the one with this loss


@dataclass(frozen=True)
class _Share:
    """What one worker found: the gradient of embedding rows `ids`, those of the other weights, and its figures."""

    ids: Tensor
    rows: Tensor
    others: tuple[Tensor, ...]
    predictions: int
    terms: dict[str, Tensor]


class LmTrainer:
    """Holds a run's state; `run` goes on from the newest checkpoint in `folder`.

    `lm_head` [V, H] is the target's; `common` [C] are the tokens that may be drafted, `core` those that every step's
    loss is over. CheckpointError when the state in `folder` is broken or another model's.
    """

    def __init__(
        self,
        folder: Path,
        settings: LmSettings,
        model: DraftLm,
        cache: FeatureCache,
        lm_head: Tensor,
        common: Tensor,
        *,
        core: Tensor | None = None,
        report: Report | None = None,
        validate: Callable[[DraftLm], dict[str, Any]] | None = None,
    ) -> None:
        self.folder, self.settings, self.model, self.cache = folder, settings, model, cache
        self.device = model.embedding.device
        self.lm_head = lm_head.to(torch.bfloat16) if settings.autocast else lm_head.float()
        self.sampler = LmSampler(cache.sequences("train"), batch_tokens=settings.batch_tokens, seed=settings.seed)
        self.report, self.validate = report, validate
        self.finished, self.step, self.predictions, self.elapsed_s = False, 0, 0, 0.0
        self._vocabulary = StepCandidates(common, common if core is None else core, settings.step_tokens)
        self._others = [p for p in model.parameters() if p is not model.embedding]
        model.embedding.grad = torch.zeros_like(model.embedding)
        self._optimizer = self._make_optimizer()
        self._pool = ThreadPoolExecutor(settings.workers, initializer=one_thread if settings.workers > 1 else None)
        self._sums: dict[str, float] = {}
        self._summed = 0
        make_folder(folder)
        self._resume()
        trim_log(folder / LOG_NAME, _STAGE, self.step)

    def run(self) -> None:
        """Train to the end; a kill loses at most `checkpoint_s` seconds of work.

        NumericsError when a loss or a gradient is no finite number: that step is not taken, nor saved.
        ResourceError when the disk refuses.
        """
        saved = validated = clock = time.monotonic()
        while not self.finished:
            self._one_step()
            now = time.monotonic()
            self.elapsed_s += now - clock
            clock = now
            self.finished = self.progress() >= 1
            if now - saved > self.settings.checkpoint_s or self.finished:
                self.save()
                saved = now
            if self.validate is not None and (now - validated > self.settings.validate_s or self.finished):
                self._log(self.validate(self.model))
                validated = clock = time.monotonic()  # measuring is not training

    def progress(self) -> float:
        """Share of the run that is done, by predictions or by the clock, whichever is further (0 to 1)."""
        done = self.predictions / self.settings.predictions
        if self.settings.hours is not None:
            done = max(done, self.elapsed_s / (self.settings.hours * 3600))
        return min(1.0, done)

    def rate(self) -> float:
        """Learning-rate factor: short warm-up, then linear to 0."""
        return min(1.0, (self.step + 1) / max(1, self.settings.warmup_steps)) * (1 - self.progress())

    def save(self) -> None:
        """Write the state for a resume, whole or not at all."""
        stage = LAST_STAGE if self.finished else _STAGE
        position = Position(stage, self.step, self.predictions, self.elapsed_s)
        write_state(self.folder / STATE_NAME, self._trained(), position)

    def _resume(self) -> None:
        file = self.folder / STATE_NAME
        if file.exists():
            at = read_state(file, self._trained(), self.device)
            self.step, self.predictions, self.elapsed_s = at.step, at.anchors, at.elapsed_s
            self.finished = at.stage == LAST_STAGE

    def _trained(self) -> Trained:
        return Trained(self.model, {"all": self._optimizer})

    def _make_optimizer(self) -> torch.optim.Optimizer:
        """AdamW. Gains and the embedding do not decay: most of its rows take no part in a step."""
        groups = [
            {"params": [p for p in self._others if p.ndim > 1], "weight_decay": self.settings.weight_decay},
            {"params": [self.model.embedding, *(p for p in self._others if p.ndim <= 1)], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.98), fused=True)

    def _one_step(self) -> None:
        """Every worker's gradient on the same weights, averaged in a fixed order, then one update."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.rate * self.rate()
        shares = list(self._pool.map(self._share, range(self.settings.workers), self._draw()))
        norm = self._set_gradients(shares)
        self._check_finite([share.terms["loss"] for share in shares], norm)
        self._optimizer.step()
        self.step += 1
        for share in shares:
            self._count(share)
        if self.step % self.settings.log_steps == 0:
            self._log({name: round(value / self._summed, 5) for name, value in self._sums.items()})
            self._sums, self._summed = {}, 0

    def _draw(self) -> list[LmBatch]:
        first, count = self.step * self.settings.workers, self.settings.workers
        texts = [self.sampler.batch(first + worker) for worker in range(count)]
        return [gather(self.cache, each, cool_weight=self.settings.cool_weight).to(self.device) for each in texts]

    def _share(self, worker: int, batch: LmBatch) -> _Share:
        drawn = self._vocabulary.draw(step_seed(self.settings.seed, _STAGE, self.step, worker))
        candidates = Candidates.of(drawn, batch.ids, len(self.lm_head))
        rows = self.model.embedding.detach()[candidates.ids].requires_grad_()
        with autocast(self.device, self.settings.autocast):
            loss = lm_loss(self.model, rows, self.lm_head, batch, candidates)
        total = loss.total - loss.confidence  # there is no confidence head
        gradients = torch.autograd.grad(total, [rows, *self._others])
        terms = {"loss": total, "ce": loss.ce, "tv": loss.tv, "accept": loss.acceptance.mean()}
        detached = {name: value.detach() for name, value in terms.items()}
        return _Share(candidates.ids, gradients[0], gradients[1:], len(batch.rows), detached)

    def _set_gradients(self, shares: list[_Share]) -> Tensor:
        """Put the mean gradient into the parameters, clipped; returns its norm before that."""
        embedding = self.model.embedding
        if embedding.grad is None:
            embedding.grad = torch.zeros_like(embedding)
        embedding.grad.zero_()
        for share in shares:
            embedding.grad.index_add_(0, share.ids, share.rows, alpha=1 / len(shares))
        for index, parameter in enumerate(self._others):
            parameter.grad = mean_gradient([share.others[index] for share in shares])
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)

    def _check_finite(self, losses: list[Tensor], norm: Tensor) -> None:
        """Before anything is learnt from it: NumericsError unless losses and gradients are finite numbers."""
        for name, value in (*(("loss", x) for x in losses), ("gradient norm", norm)):
            if not math.isfinite(float(value)):
                raise NumericsError(
                    f"The {name} is {float(value)} in step {self.step}, so it was not taken. "
                    f"The last good state is kept in {self.folder}. {self._way_out()}"
                )

    def _way_out(self) -> str:
        if all(bool(torch.isfinite(batch.target_hidden).all()) for batch in self._draw()):
            return (
                "The features are finite, so the learning rate is too high for these data: begin anew in another "
                "folder with a lower rate, another seed or more data."
            )
        return (
            f"The target's hidden states in {self.cache.folder} are not finite: delete that folder, then they are "
            "computed anew. If they come back so, the target itself is broken."
        )

    def _count(self, share: _Share) -> None:
        self.predictions += share.predictions
        self._summed += 1
        for name, value in share.terms.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)

    def _log(self, values: dict[str, Any]) -> None:
        """A row as the drafters' log has it, so that one reader serves both; its anchors are predictions."""
        progress = self.progress()
        row = {
            "stage": _STAGE,
            "step": self.step,
            "anchors": self.predictions,
            "planned": self.settings.predictions,
            "elapsed_s": round(self.elapsed_s, 1),
            "progress": round(progress, 4),
            "rate": round(self.rate(), 4),
            "left_s": round(self.elapsed_s * (1 - progress) / progress, 1) if progress else None,
        } | values
        append_line(self.folder / LOG_NAME, json.dumps(row))
        if self.report is not None:
            self.report(row)


def lm_loss(model: DraftLm, rows: Tensor, lm_head: Tensor, batch: LmBatch, candidates: Candidates) -> DraftLoss:
    """The paper's loss, both laws renormalised on the candidates, of which `rows` [C, H] are the embeddings.

    The confidence is not trained: its logits are zeros, and the caller leaves its term out.
    """
    hidden = model(candidates.place[batch.ids], rows).flatten(0, 1)[batch.rows]
    logits = functional.linear(hidden, rows)
    with torch.no_grad():
        table = lm_head[candidates.ids]
        target_logits = functional.linear(batch.target_hidden.to(table.dtype), table)
    nothing = torch.zeros_like(batch.weights)
    return draft_loss(logits, target_logits, candidates.place[batch.labels], nothing, batch.weights)
