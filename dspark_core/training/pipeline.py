"""The steps of a drafter's training, each of which goes on where a killed one stopped and skips what is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dspark_core.checkpoint import load_drafter
from dspark_core.drafters.vocabulary import read_draft_vocabulary
from dspark_core.errors import CheckpointError, ParameterError, ResourceError
from dspark_core.fields import read_object
from dspark_core.modules.drafter import Drafter, parameter_count
from dspark_core.target.llama import LlamaTarget
from dspark_core.target.tokenizer import ChatTokenizer
from dspark_core.training.batch import Sampler
from dspark_core.training.belonging import check_drafter_folder, same_start, same_target
from dspark_core.training.cache import FeatureCache, build_cache, cache_bytes
from dspark_core.training.curve import CURVE_NAME, write_curve
from dspark_core.training.data import Conversation, commonest_tokens, read_conversations, split
from dspark_core.training.evaluate import GREEDY_TEMPERATURE, Evaluator
from dspark_core.training.files import held, make_folder, write_json
from dspark_core.training.loop import LOG_NAME, Trainer
from dspark_core.training.progress import Reporter, log_rows, write_compact_log
from dspark_core.training.settings import SETTINGS_NAME, TrainSettings, same_run
from dspark_core.training.source import TargetFeatures, TargetWeights
from dspark_core.training.start import draft_config, smart_start, spread_taps, take_weights
from dspark_core.training.synthesise import synthesise
from dspark_core.training.writer import Writer, WriterSettings

_OF_THE_HEAD = (
    "block_size",
    "markov_rank",
    "markov_head_type",
    "confidence_head_with_markov",
    "confidence_reads_law",
    "copy_longest",
)  # may be begun anew
RECORD_NAME, LOCK_NAME = "training.json", ".lock"
_MOST_HELD_OUT = 96  # conversations: enough for figures, few enough to measure in a minute or two


@dataclass(frozen=True)
class Paths:
    """Where a run reads and writes: conversations, features and state, the checkpoint, the one it starts from."""

    data: Path
    work: Path
    out: Path
    start_from: Path | None = None


class Pipeline:
    """One target, one run. Raises the DSparkError family, before any long work where the fault can be seen by then."""

    def __init__(
        self,
        folder: Path,
        paths: Paths,
        settings: TrainSettings,
        *,
        taps: tuple[int, ...] | None = None,
        device: torch.device | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        """Read the target of `folder`; `taps` None means five spread ones."""
        self.folder, self.paths, self.settings = folder, paths, settings
        self.device = device or torch.device("cpu")
        self.reporter = reporter or Reporter()
        self.weights = TargetWeights.load(folder)
        self.taps = spread_taps(self.weights.config.num_layers) if taps is None else taps
        self.config = draft_config(
            self.weights.config,
            self.taps,
            layers=settings.layers,
            block_size=settings.block_size,
            markov_rank=settings.markov_rank,
            mask_token_id=settings.mask_token_id,
            head_type=settings.head_type,
            copy_longest=settings.copy_longest,
            confidence_reads_law=settings.confidence_reads_law,
        )
        self._start: Drafter | None = None
        if paths.start_from is not None:
            self._start = self._checked_start(paths.start_from)
        elif settings.only_confidence:
            raise ParameterError("Only the confidences of a drafter can be trained if there is one: give --start-from.")

    @cached_property
    def target(self) -> LlamaTarget:
        """The target, ready for passes."""
        stops = ChatTokenizer.load(self.folder).stop_token_ids if (self.folder / "tokenizer.json").exists() else None
        dtype = torch.bfloat16 if self.weights.embedding.dtype != torch.float32 else torch.float32
        return LlamaTarget.load(self.folder, dtype=dtype, device=self.device, stop_token_ids=stops)

    def synthesise(self, count: int, settings: WriterSettings) -> int:
        """Let the target write until the data folder holds `count` conversations of this seed; returns how many."""
        if self.paths.data.exists() and not self.paths.data.is_dir():
            raise ParameterError(f"{self.paths.data} is a file; self-written conversations go into a folder.")
        tokenizer = ChatTokenizer.load(self.folder)

        def write(seed: int) -> Iterator[Conversation]:
            changed = WriterSettings(
                settings.rows, settings.user_tokens, settings.answer_tokens, settings.temperatures, seed
            )
            return Writer(self.target, tokenizer, changed).conversations()

        return synthesise(self.paths.data, count, write, seed=settings.seed, report=self.reporter.written)

    def cache(self) -> FeatureCache:
        """The hidden states of all conversations, computed where they are not there yet; the same for any drafter."""
        make_folder(self.paths.work)
        with held(self.paths.work / LOCK_NAME):
            return self._cache()

    def _cache(self) -> FeatureCache:
        train, held_out = self._conversations
        same_target(self.paths.work, self.weights.tensors, self.folder)
        tokens = sum(len(c.ids) for c in (*train, *held_out))
        hidden = self.weights.config.hidden_size
        size = cache_bytes(tokens, len(self.taps), hidden)
        self.reporter.say(f"features of {tokens} tokens: {size / 1e9:.2f} GB in {self.paths.work}")
        return build_cache(
            self.paths.work / "features",
            TargetFeatures(self.target, self.taps),
            self.taps,
            hidden,
            train,
            held_out,
            seed=self.settings.seed,
            report=self.reporter.cache,
        )

    def fit(self) -> None:
        """Train to the end and write the checkpoint with its record."""
        check_drafter_folder(self.paths.out, self.paths.start_from)
        make_folder(self.paths.out)
        make_folder(self.paths.work)
        with held(self.paths.work / LOCK_NAME):
            self._fit()

    def _fit(self) -> None:
        self._check_mask()
        same_target(self.paths.work, self.weights.tensors, self.folder)
        same_run(self.paths.work / SETTINGS_NAME, self.settings)
        cache = self._cache()
        same_start(self.paths.work, None if self._start is None else self._start.state_dict(), self.paths.start_from)
        trainer = self._trainer(cache)
        parameters = parameter_count(trainer.drafter)
        self.reporter.say(f"{parameters:,} weights, stage {trainer.stage}, step {trainer.step}")
        trainer.run()
        trainer.export(self.paths.out)
        figures = self._figures(trainer.drafter, cache, trainer.common)
        self._write_record(trainer, cache, figures)
        self.reporter.say(f"wrote {self.paths.out}")

    def evaluate(self) -> dict[str, Any]:
        """Held-out figures of the checkpoint in `out`: greedy rounds and the law by position."""
        loaded, target = load_drafter(self.paths.out, device=self.device), self.weights.config
        loaded.config.check_fits(
            hidden_size=target.hidden_size, vocab_size=target.vocab_size, num_layers=target.num_layers
        )
        drafter = loaded.modules
        if drafter.config.target_layer_ids != self.taps:
            raise ParameterError(
                f"{self.paths.out} reads layers {drafter.config.target_layer_ids}, the features are of {self.taps}; "
                "give --taps as it was trained."
            )
        ids = read_draft_vocabulary(self.paths.out, target.vocab_size) or range(target.vocab_size)
        return self._figures(drafter, self.cache(), torch.tensor(ids, device=self.device))

    @cached_property
    def _conversations(self) -> tuple[list[Conversation], list[Conversation]]:
        target = self.weights.config
        found = read_conversations(self.paths.data, target.vocab_size, target.max_context)
        share = min(self.settings.held_out_share, _MOST_HELD_OUT / len(found))
        train, held_out = split(found, share)
        return train, held_out

    @cached_property
    def _common(self) -> Tensor:
        """[C] ids of the draft vocabulary, rising: of the commonest tokens, or where the drafts stay, as they were."""
        if self.settings.only_confidence and self.paths.start_from is not None:
            vocab_size = self.weights.config.vocab_size
            kept = read_draft_vocabulary(self.paths.start_from, vocab_size) or range(vocab_size)
            return torch.tensor(kept, device=self.device)
        return self.commonest(self.settings.common_tokens)

    @cached_property
    def _core(self) -> Tensor:
        """[c] ids of the draft vocabulary that every step's loss is over, rising."""
        count = min(self.settings.common_tokens, max(1, self.settings.step_tokens // 2))
        commonest = self.commonest(count)
        return commonest[torch.isin(commonest, self._common)]

    def commonest(self, count: int) -> Tensor:
        """[C] ids of the training conversations' commonest tokens, rising."""
        vocab_size = self.weights.config.vocab_size
        common = commonest_tokens((c.ids for c in self._conversations[0]), vocab_size, min(count, vocab_size))
        return torch.tensor(common, device=self.device)

    @cached_property
    def _tables(self) -> tuple[Tensor, Tensor]:
        """The target's embedding and LM head [V, H] in float32."""
        return self.weights.embedding.to(self.device).float(), self.weights.lm_head.to(self.device).float()

    def _check_mask(self) -> None:
        mask = self.settings.mask_token_id
        if any(mask in conversation.ids for part in self._conversations for conversation in part):
            raise ParameterError(
                f"The mask token {mask} stands in the texts of {self.paths.data}, so a drafter could not tell it from "
                "one of theirs. Give --mask-token-id: a reserved token of this target's, which no text has."
            )

    def _checked_start(self, start: Path) -> Drafter:
        """The drafter in `start`, whose layers this run's drafter can take over."""
        loaded = load_drafter(start)
        theirs = loaded.config
        differing = [
            f"{name} {getattr(theirs, name)} (this run: {getattr(self.config, name)})"
            for name in type(theirs).__dataclass_fields__
            if name not in _OF_THE_HEAD and getattr(theirs, name) != getattr(self.config, name)
        ]
        if differing:
            raise ParameterError(
                f"The drafter in {start} has another shape: {', '.join(differing)}. Give the options that it was "
                "trained with, or start anew."
            )
        return loaded.modules

    def _trainer(self, cache: FeatureCache) -> Trainer:
        torch.manual_seed(self.settings.seed)
        sequences = cache.sequences("train")
        drafter = Drafter(self.config)
        sample = torch.cat([cache.rows(s)[0] for s in sequences[:8]])
        smart_start(drafter, self.weights, sample, seed=self.settings.seed)
        if self._start is not None:
            anew = take_weights(drafter, self._start)
            if anew:
                self.reporter.say(f"{self.paths.start_from} has none of the shape of, so begin anew: {', '.join(anew)}")
        settings = self.settings
        return Trainer(
            self.paths.work,
            settings,
            drafter.to(self.device),
            Sampler(cache, sequences, prompt_share=settings.prompt_share, cool_weight=settings.cool_weight),
            self._tables,
            self._common,
            core=self._core,
            report=self._logged,
            validate=lambda current: self._quick_figures(current, cache),
        )

    def _logged(self, row: dict[str, Any]) -> None:
        """Tell a row that is in the log by now; one of a validation draws the run's picture anew."""
        self.reporter.row(row)
        if "law_tau" in row:
            self._draw_curve()

    def _draw_curve(self) -> None:
        """A run is worth more than its picture: what spoils the picture is told, and the run goes on."""
        rows = log_rows(self.paths.work / LOG_NAME)
        try:
            write_curve(rows, self.paths.work / CURVE_NAME)
        except ResourceError as error:
            self.reporter.say(str(error))

    def _quick_figures(self, drafter: Drafter, cache: FeatureCache) -> dict[str, Any]:
        """Held-out figures on few conversations, for the log."""
        held_out = cache.sequences("validation")
        evaluator = Evaluator(cache, self._tables, draft_ids=self._common)
        law = evaluator.law(drafter, held_out[:16], stride=48)
        figures: dict[str, Any] = {"law_tau": law["expected_tau"], "law_acceptance": law["acceptance"]}
        greedy = [s for s in held_out if s.temperature <= GREEDY_TEMPERATURE][:8]
        if greedy:
            figures["greedy_tau"] = round(evaluator.greedy(drafter, greedy).tau, 4)
        return figures

    def _figures(self, drafter: Drafter, cache: FeatureCache, common: Tensor) -> dict[str, Any]:
        held_out = cache.sequences("validation")
        evaluator = Evaluator(cache, self._tables, draft_ids=common)
        figures: dict[str, Any] = {"law": evaluator.law(drafter, held_out)}
        greedy = [s for s in held_out if s.temperature <= GREEDY_TEMPERATURE]
        if greedy:
            figures["greedy"] = evaluator.greedy(drafter, greedy).to_dict()
        return figures

    def _earlier_record(self) -> dict[str, Any] | None:
        if self.paths.start_from is None:
            return None
        file = self.paths.start_from / RECORD_NAME
        if not file.exists():
            return {"note": "The first weights came from a checkpoint without a record."}
        return read_object(file, CheckpointError, "Delete it, and the new record will say that there was none.")

    def _write_record(self, trainer: Trainer, cache: FeatureCache, held_out: dict[str, Any]) -> None:
        """`training.json` (settings, data, seconds, held-out figures) and `training_log.csv` beside the weights.

        `started_from` is the record of the checkpoint that gave the first weights, and so on back; null without one.
        """
        record = {
            "settings": self.settings.to_dict(),
            "data": data_counts(cache),
            "started_from": self._earlier_record(),
            "trained_s": round(trainer.elapsed_s),
            "optimizers": {name: type(it).__name__ for name, it in trainer.optimizers.named.items()},
            "weights": parameter_count(trainer.drafter),
            "held_out": held_out,
        }
        write_json(self.paths.out / RECORD_NAME, record, indent=2)
        write_compact_log(self.paths.work / LOG_NAME, self.paths.out / "training_log.csv")


def data_counts(cache: FeatureCache) -> dict[str, dict[str, int]]:
    """How much a run learnt from and was measured on, by part, for its record."""
    parts = {part: cache.sequences(part) for part in ("train", "validation")}
    return {
        part: {
            "conversations": len(found),
            "tokens": sum(s.length for s in found),
            "answer_tokens": sum(s.length - s.prompt_length for s in found),
        }
        for part, found in parts.items()
    }
