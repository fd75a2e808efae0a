"""From the drafters' feature cache to a small language model on disk; a killed run goes on where it stopped."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dspark_core.drafters.vocabulary import write_draft_vocabulary
from dspark_core.modules.drafter import parameter_count
from dspark_core.training.belonging import check_lm_folder
from dspark_core.training.cache import FeatureCache
from dspark_core.training.files import held, make_folder, write_json
from dspark_core.training.lm_evaluate import LmEvaluator
from dspark_core.training.lm_loop import LmTrainer
from dspark_core.training.lm_model import DraftLm, LmShape
from dspark_core.training.lm_settings import LmSettings, same_lm_run
from dspark_core.training.loop import LOG_NAME
from dspark_core.training.pipeline import LOCK_NAME, RECORD_NAME, Pipeline, data_counts
from dspark_core.training.progress import write_compact_log
from dspark_core.training.settings import SETTINGS_NAME

_QUICK = 8  # held-out conversations measured on the way
_NOTE = (
    "A small language model, the classical drafter, trained on the target's laws at the answers' tokens. The held-out "
    "figures are teacher-forced: its acceptance at a place of the text is the same at every position of a block."
)


class LmPipeline:
    """One run of a target's small language model, beside the drafters' in the work folder.

    `drafters` has the target, the folders, and the features, which both read. Raises the DSparkError family.
    """

    def __init__(self, drafters: Pipeline, settings: LmSettings) -> None:
        """ParameterError when the model does not fit the target."""
        self.drafters, self.settings = drafters, settings
        self.shape = LmShape.of(settings, drafters.weights.config)
        self.folder = drafters.paths.work / "lm"

    def fit(self) -> None:
        """Train to the end, measure, and write the Hugging Face folder with its record."""
        check_lm_folder(self.drafters.paths.out, self.shape.to_dict(), _NOTE)
        make_folder(self.drafters.paths.out)
        cache = self.drafters.cache()
        make_folder(self.folder)
        with held(self.folder / LOCK_NAME):
            same_lm_run(self.folder / SETTINGS_NAME, self.settings)
            self._fit(cache)

    def _fit(self, cache: FeatureCache) -> None:
        out, reporter = self.drafters.paths.out, self.drafters.reporter
        common = self.drafters.commonest(self.settings.common_tokens)
        trainer = self._trainer(cache, common)
        reporter.say(f"{parameter_count(trainer.model):,} weights, step {trainer.step}")
        trainer.run()
        trainer.model.save(out)
        write_draft_vocabulary(out, common.tolist())
        held_out = self._evaluator(cache, common).figures(trainer.model, cache.sequences("validation"))
        self._write_record(trainer, cache, held_out)
        reporter.say(f"wrote {out}")

    def _trainer(self, cache: FeatureCache, common: Tensor) -> LmTrainer:
        torch.manual_seed(self.settings.seed)
        model = DraftLm(self.shape)
        model.start_from(self.drafters.weights.embedding)
        evaluator, held_out = self._evaluator(cache, common), cache.sequences("validation")[:_QUICK]

        def validate(current: DraftLm) -> dict[str, Any]:
            figures = evaluator.figures(current, held_out)
            told = {"law_tau": figures["law"]["expected_tau"], "law_acceptance": figures["law"]["acceptance"]}
            return told | ({"greedy_tau": figures["greedy"]["tau"]} if "greedy" in figures else {})

        return LmTrainer(
            self.folder,
            self.settings,
            model.to(self.drafters.device),
            cache,
            self._lm_head,
            common,
            core=self.drafters.commonest(min(self.settings.common_tokens, max(1, self.settings.step_tokens // 2))),
            report=self.drafters.reporter.row,
            validate=validate,
        )

    @cached_property
    def _lm_head(self) -> Tensor:
        return self.drafters.weights.lm_head.to(self.drafters.device)

    def _evaluator(self, cache: FeatureCache, common: Tensor) -> LmEvaluator:
        return LmEvaluator(cache, self._lm_head, common, autocast=self.settings.autocast)

    def _write_record(self, trainer: LmTrainer, cache: FeatureCache, held_out: dict[str, Any]) -> None:
        """`training.json` and `training_log.csv` beside the weights."""
        record = {
            "note": _NOTE,
            "settings": self.settings.to_dict(),
            "data": data_counts(cache),
            "trained_s": round(trainer.elapsed_s),
            "predictions": trainer.predictions,
            "weights": parameter_count(trainer.model),
            "held_out": held_out,
        }
        out = self.drafters.paths.out
        write_json(out / RECORD_NAME, record, indent=2)
        write_compact_log(self.folder / LOG_NAME, out / "training_log.csv")
