"""The resumable training loop: stage 1 regresses hidden states, stage 2 minimises the paper's loss."""

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dspark_core.checkpoint import save_drafter
from dspark_core.errors import NumericsError
from dspark_core.modules.drafter import Drafter
from dspark_core.training.batch import Batch, Sampler
from dspark_core.training.files import append_line, make_folder
from dspark_core.training.forward import batch_draft_loss, block_hidden, loss_weights
from dspark_core.training.losses import regression_loss
from dspark_core.training.optimizers import Optimizers
from dspark_core.training.progress import trim_log
from dspark_core.training.settings import TrainSettings
from dspark_core.training.state import LAST_STAGE, Position, Trained, read_state, write_state
from dspark_core.training.workers import StepCandidates, autocast, mean_gradient, one_thread, step_seed

STATE_NAME, LOG_NAME = "state.pt", "log.jsonl"
Report = Callable[[dict[str, Any]], None]


class Trainer:
    """Holds a run's state; `run` goes on from the newest checkpoint in `folder`.

    `embedding`, `lm_head` [V, H] are the target's frozen tables, `common` [C] the candidate tokens of stage 2; with
    `core` (some of them), a step's loss sees these, and of the others as many as make `settings.step_tokens`, drawn
    anew.
    CheckpointError when the state in `folder` is broken or another drafter's.
    """

    def __init__(
        self,
        folder: Path,
        settings: TrainSettings,
        drafter: Drafter,
        sampler: Sampler,
        tables: tuple[Tensor, Tensor],
        common: Tensor,
        *,
        core: Tensor | None = None,
        report: Report | None = None,
        validate: Callable[[Drafter], dict[str, Any]] | None = None,
    ) -> None:
        self.folder, self.settings, self.drafter, self.sampler = folder, settings, drafter, sampler
        self.embedding, self.lm_head = tables
        if settings.autocast:  # as autocast would have it anyway, but once
            self.lm_head = self.lm_head.to(torch.bfloat16)
        self.common = common
        self._vocabulary = StepCandidates(common, common if core is None else core, settings.step_tokens)
        self.report, self.validate = report, validate
        self.device = self.embedding.device
        self.stage, self.step = (1, 0) if settings.stage1_anchors else (2, 0)
        self.anchors = 0
        self.elapsed_s = 0.0
        self.stage_started_s = 0.0
        if drafter.markov_head is not None:
            drafter.markov_head.sparse_gradients = True
        if settings.only_confidence:
            for name, parameter in drafter.named_parameters():
                parameter.requires_grad_(name.startswith("law_confidence."))
        self.optimizers = Optimizers(drafter, settings)
        self._parameters = [parameter for parameter in drafter.parameters() if parameter.requires_grad]
        self._pool = ThreadPoolExecutor(settings.workers, initializer=one_thread if settings.workers > 1 else None)
        self._sums: dict[str, float] = {}
        self._summed = 0
        make_folder(folder)
        self._resume()
        trim_log(folder / LOG_NAME, self.stage, self.step)

    def run(self) -> None:
        """Train to the end of stage 2; a kill loses at most `checkpoint_s` seconds of work.

        NumericsError when a loss or a gradient is no finite number: that step is not taken, nor saved.
        ResourceError when the disk refuses.
        """
        saved = validated = clock = time.monotonic()
        while self.stage <= 2:
            self._one_step()
            now = time.monotonic()
            self.elapsed_s += now - clock
            clock = now
            if self.progress() >= 1:
                self._next_stage()
            if now - saved > self.settings.checkpoint_s or self.stage > 2:
                self.save()
                saved = now
            if self.validate is not None and (now - validated > self.settings.validate_s or self.stage > 2):
                self._log(self.validate(self.drafter))
                validated = time.monotonic()

    def progress(self) -> float:
        """Share of the stage (1 after the last) that is done, by anchors or by the clock, whichever is further."""
        settings = self.settings
        if self.stage > 2:
            return 1.0
        planned = settings.stage1_anchors if self.stage == 1 else settings.stage2_anchors
        done = self.anchors / planned if planned else 1.0
        if settings.hours is not None:
            budget = settings.hours * 3600
            end = budget * settings.stage1_share if self.stage == 1 and settings.stage2_anchors else budget
            span = max(1e-9, end - self.stage_started_s)
            done = max(done, (self.elapsed_s - self.stage_started_s) / span)
        return min(1.0, done)

    def _left_s(self) -> float | None:
        """Seconds that the rest of the stage takes at its speed so far; None before anything is done."""
        done = self.progress()
        return round((self.elapsed_s - self.stage_started_s) * (1 - done) / done, 1) if done else None

    def rate(self) -> float:
        """Learning-rate factor: short warm-up, then linear: to 1/4 in stage 1, to 0 in stage 2."""
        warm = min(1.0, (self.step + 1) / max(1, self.settings.warmup_steps))
        return warm * (1 - (0.75 if self.stage == 1 else 1.0) * self.progress())

    def save(self) -> None:
        """Write the state for a resume, whole or not at all."""
        position = Position(self.stage, self.step, self.anchors, self.elapsed_s, self.stage_started_s)
        write_state(self.folder / STATE_NAME, self._trained(), position)

    def export(self, path: Path) -> None:
        """Write the drafter as a checkpoint folder: the common tokens are its draft vocabulary."""
        vocabulary = self.common.tolist()
        save_drafter(path, self.drafter.config, self.drafter.state_dict(), draft_vocabulary=vocabulary)

    def _resume(self) -> None:
        file = self.folder / STATE_NAME
        if not file.exists():
            return
        at = read_state(file, self._trained(), self.device)
        self.stage, self.step, self.anchors = at.stage, at.step, at.anchors
        self.elapsed_s, self.stage_started_s = at.elapsed_s, at.stage_started_s

    def _trained(self) -> Trained:
        return Trained(self.drafter, self.optimizers.named)

    def _set_rates(self) -> None:
        factor = self.rate()
        base = self.settings.stage1_rate if self.stage == 1 else self.settings.stage2_rate
        self.optimizers.set_rates(base * factor, self.settings.table_rate * factor)

    def _draw(self, worker: int, length: int) -> Batch:
        settings = self.settings
        anchors = max(1, settings.batch_predictions // (settings.batch_sequences * length))
        seed = step_seed(settings.seed, self.stage, self.step, worker)
        batch = self.sampler.draw(seed, sequences=settings.batch_sequences, anchors=anchors, length=length)
        return batch.to(self.device)

    def _one_step(self) -> None:
        """Every worker's gradient on the same weights, averaged in a fixed order, then one update."""
        rng = np.random.default_rng(step_seed(self.settings.seed, self.stage, self.step, 99))
        length = int(rng.choice(self.settings.block_lengths, p=self.settings.block_shares))
        self._set_rates()
        results = list(self._pool.map(lambda worker: self._gradients(worker, length), range(self.settings.workers)))
        for index, parameter in enumerate(self._parameters):
            parameter.grad = mean_gradient([gradients[index] for gradients, _, _ in results])
        norm = self.optimizers.clip(self.settings.clip_norm)
        self._check_finite([terms["loss"] for _, _, terms in results], norm, length)
        self.optimizers.step(self._pool, tables=self.stage == 2)
        self.step += 1
        for _, anchors, terms in results:
            self._count(anchors, terms)
        if self.step % self.settings.log_steps == 0:
            self._log({name: round(value / self._summed, 5) for name, value in self._sums.items()})
            self._sums, self._summed = {}, 0

    def _gradients(self, worker: int, length: int) -> tuple[tuple[Tensor | None, ...], int, dict[str, Tensor]]:
        batch = self._draw(worker, length)
        with autocast(self.device, self.settings.autocast):
            total, terms = self._stage1_loss(batch) if self.stage == 1 else self._stage2_loss(batch, worker)
        return torch.autograd.grad(total, self._parameters, allow_unused=True), batch.anchors.numel(), terms

    def _check_finite(self, losses: list[Tensor], norm: Tensor, length: int) -> None:
        """Before anything is learnt from it: NumericsError unless losses and gradients are finite numbers."""
        tables = self.optimizers.table_gradients()
        sums = [grad.coalesce().values().sum() if grad.is_sparse else grad.sum() for grad in tables]
        named = [*(("loss", x) for x in losses), ("gradient norm", norm), *(("gradient of a table", x) for x in sums)]
        for name, value in named:
            if not math.isfinite(float(value)):
                raise NumericsError(
                    f"The {name} is {float(value)} in step {self.step} of stage {self.stage}, so it was not taken. "
                    f"The last good state is kept in {self.folder}. {self._way_out(length)}"
                )

    def _way_out(self, length: int) -> str:
        batches = [self._draw(worker, length) for worker in range(self.settings.workers)]
        if all(bool(torch.isfinite(x).all()) for batch in batches for x in (batch.features, batch.target_hidden)):
            return (
                "The features are finite, so the learning rates are too high for these data: begin anew in another "
                "folder with lower rates, another seed or more data."
            )
        return (
            f"The target's hidden states in {self.sampler.cache.folder} are not finite: delete that folder, then they "
            "are computed anew. If they come back so, the target itself is broken."
        )

    def _count(self, anchors: int, terms: dict[str, Tensor]) -> None:
        self.anchors += anchors
        self._summed += 1
        for name, value in terms.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)

    def _stage1_loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = block_hidden(self.drafter, self.embedding, batch).flatten(0, 2)
        weights = loss_weights(batch, self.settings.block_size).flatten()
        loss = regression_loss(hidden, batch.target_hidden.flatten(0, 2), weights)
        return loss.total, {
            "loss": loss.total.detach(),
            "smooth_l1": loss.smooth_l1.detach(),
            "cosine": loss.cosine.detach(),
        }

    def _stage2_loss(self, batch: Batch, worker: int) -> tuple[Tensor, dict[str, Tensor]]:
        loss = batch_draft_loss(self.drafter, self.embedding, self.lm_head, batch, self._candidates(worker))
        named = {"loss": loss.total, "ce": loss.ce, "tv": loss.tv, "confidence": loss.confidence}
        return loss.total, {name: value.detach() for name, value in named.items()} | {"accept": loss.acceptance.mean()}

    def _candidates(self, worker: int) -> Tensor:
        return self._vocabulary.draw(step_seed(self.settings.seed, self.stage, self.step, worker))

    def _next_stage(self) -> None:
        self.stage += 1
        self.step, self.anchors, self.stage_started_s = 0, 0, self.elapsed_s
        self._sums, self._summed = {}, 0
        if self.stage == 2 and not self.settings.stage2_anchors:
            self.stage = LAST_STAGE
        self.optimizers = Optimizers(self.drafter, self.settings)  # another loss: its moments mean nothing here

    def _log(self, values: dict[str, Any]) -> None:
        planned = self.settings.stage1_anchors if self.stage == 1 else self.settings.stage2_anchors
        row = {
            "stage": self.stage,
            "step": self.step,
            "anchors": self.anchors,
            "planned": planned,
            "elapsed_s": round(self.elapsed_s, 1),
            "progress": round(self.progress(), 4),
            "rate": round(self.rate(), 4),
            "left_s": self._left_s(),
        } | values
        append_line(self.folder / LOG_NAME, json.dumps(row))
        if self.report is not None:
            self.report(row)
