"""`train`: from conversations to a drafter checkpoint. Killed at any time, the same command goes on from there."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dspark_core.cache import ensure_model
from dspark_core.drafters.vocabulary import write_draft_vocabulary
from dspark_core.errors import ParameterError
from dspark_core.modules.drafter import Drafter, parameter_count
from dspark_core.target.llama import LlamaTarget
from dspark_core.target.tokenizer import ChatTokenizer
from dspark_core.training.batch import Sampler
from dspark_core.training.cache import FeatureCache, build_cache, cache_bytes
from dspark_core.training.chat_prompts import chat_prompts
from dspark_core.training.data import Conversation, commonest_tokens, read_conversations, split
from dspark_core.training.evaluate import GREEDY_TEMPERATURE, Evaluator
from dspark_core.training.loop import LOG_NAME, Trainer
from dspark_core.training.progress import Reporter, write_compact_log
from dspark_core.training.settings import TrainSettings
from dspark_core.training.source import LlamaSource, load_source
from dspark_core.training.start import TAPS_OF_30_LAYERS, draft_config, smart_start
from dspark_core.training.synthesise import answer_greedily, stored_answers

_SHOWN = TrainSettings()
_ANSWER_TOKENS = 176


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `train`."""
    parser.add_argument(
        "--data", type=Path, required=True, help="conversations: a .jsonl(.gz) file, or a folder of them"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for features and state (a resume needs it)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint to write")
    parser.add_argument("--model", default="smollm2-135m", help="target by name (default: %(default)s)")
    parser.add_argument("--target-path", type=Path, help="folder of the target (Hugging Face files) instead of --model")
    parser.add_argument("--taps", type=int, nargs="+", help="target layers to read (default: five spread ones)")
    parser.add_argument("--layers", type=int, default=_SHOWN.layers, help="draft layers (default: %(default)s)")
    parser.add_argument(
        "--block-size", type=int, default=_SHOWN.block_size, help="γ, drafts a block (default: %(default)s)"
    )
    parser.add_argument("--markov-rank", type=int, default=_SHOWN.markov_rank, help="default: %(default)s")
    parser.add_argument(
        "--mask-token-id", type=int, default=_SHOWN.mask_token_id, help="a reserved token, never in a text"
    )
    parser.add_argument("--common-tokens", type=int, default=_SHOWN.common_tokens, help="vocabulary of stage 2's loss")
    parser.add_argument("--stage1-anchors", type=int, default=_SHOWN.stage1_anchors, help="default: %(default)s")
    parser.add_argument("--stage2-anchors", type=int, default=_SHOWN.stage2_anchors, help="default: %(default)s")
    parser.add_argument("--hours", type=float, help="end by the clock, at the latest")
    parser.add_argument(
        "--chat-prompts", type=int, default=0, metavar="N", help="also train on greedy answers to N plain prompts (0)"
    )
    parser.add_argument("--threads", type=int, default=_SHOWN.workers, help="worker threads (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=_SHOWN.seed, help="default: %(default)s")
    parser.add_argument("--device", default="cpu", help="default: %(default)s")


def run(args: argparse.Namespace) -> int:
    """Cache, train, evaluate and write the checkpoint; returns 0. Raises the DSparkError family."""
    settings = _settings(args)
    reporter = Reporter()
    folder = args.target_path if args.target_path is not None else ensure_model(args.model)
    train, held_out = split(read_conversations(args.data), settings.held_out_share)
    train += _own_answers(args, folder)
    source = load_source(folder, _taps(args, folder), args.device)
    _same_settings(args.work, settings)
    cache = _features(args.work, source, train, held_out, settings, reporter)
    common = commonest_tokens((c.ids for c in train), source.vocab_size, min(settings.common_tokens, source.vocab_size))
    trainer = _trainer(args.work, settings, source, cache, common, reporter)
    reporter.say(f"{parameter_count(trainer.drafter):,} weights, stage {trainer.stage}, step {trainer.step}")
    trainer.run()
    write_checkpoint(args.out, trainer, cache)
    reporter.say(f"wrote {args.out}")
    return 0


def write_checkpoint(out: Path, trainer: Trainer, cache: FeatureCache) -> None:
    """Weights and config, the tokens that may be drafted (those of stage 2), and the record of the training."""
    trainer.export(out)
    write_draft_vocabulary(out, trainer.common.tolist())
    figures = _held_out_figures(trainer.drafter, cache, (trainer.embedding, trainer.lm_head), trainer.common)
    write_training_record(out, trainer, cache, figures)


def write_training_record(out: Path, trainer: Trainer, cache: FeatureCache, held_out: dict[str, Any]) -> None:
    """`training.json` (settings, data, seconds, held-out figures) and `training_log.csv` beside the weights."""
    parts = {part: cache.sequences(part) for part in ("train", "validation")}
    record = {
        "settings": trainer.settings.to_dict(),
        "data": {
            part: {
                "conversations": len(found),
                "tokens": sum(s.length for s in found),
                "answer_tokens": sum(s.length - s.prompt_length for s in found),
            }
            for part, found in parts.items()
        },
        "trained_s": round(trainer.elapsed_s),
        "weights": parameter_count(trainer.drafter),
        "held_out": held_out,
    }
    (out / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    write_compact_log(trainer.folder / LOG_NAME, out / "training_log.csv")


def _settings(args: argparse.Namespace) -> TrainSettings:
    lengths = tuple(sorted({args.block_size, max(1, args.block_size * 5 // 8), max(1, args.block_size * 3 // 8)}))[::-1]
    shares = {1: (1.0,), 2: (0.6, 0.4), 3: (0.5, 0.3, 0.2)}[len(lengths)]
    if args.threads < 1:
        raise ParameterError(f"--threads is {args.threads}; give at least 1.")
    return TrainSettings(
        stage1_anchors=args.stage1_anchors,
        stage2_anchors=args.stage2_anchors,
        hours=args.hours,
        seed=args.seed,
        workers=args.threads,
        block_size=args.block_size,
        block_lengths=lengths,
        block_shares=shares,
        layers=args.layers,
        markov_rank=args.markov_rank,
        mask_token_id=args.mask_token_id,
        common_tokens=args.common_tokens,
    )


def _taps(args: argparse.Namespace, folder: Path) -> tuple[int, ...]:
    """The taps asked for, or five from the second layer to the last but one."""
    if args.taps:
        return tuple(args.taps)
    config = (
        json.loads((folder / "config.json").read_text(encoding="utf-8")) if (folder / "config.json").exists() else {}
    )
    layers = int(config.get("num_hidden_layers", 30))
    if layers == 30:
        return TAPS_OF_30_LAYERS
    return tuple(sorted({round(1 + i * (layers - 3) / 4) for i in range(5)})) if layers > 3 else (0,)


def _features(
    work: Path,
    source: LlamaSource,
    train: list[Conversation],
    held_out: list[Conversation],
    settings: TrainSettings,
    reporter: Reporter,
) -> FeatureCache:
    tokens = sum(len(c.ids) for c in (*train, *held_out))
    size = cache_bytes(tokens, len(source.taps), source.hidden_size)
    reporter.say(f"features of {tokens} tokens: {size / 1e9:.2f} GB in {work}")
    return build_cache(
        work / "features",
        source,
        source.taps,
        source.hidden_size,
        train,
        held_out,
        seed=settings.seed,
        report=reporter.cache,
    )


def _own_answers(args: argparse.Namespace, folder: Path) -> list[Conversation]:
    """Greedy answers of the target to the plain chat prompts, made once and kept in the work folder."""
    if args.chat_prompts < 0:
        raise ParameterError(f"--chat-prompts is {args.chat_prompts}; give 0 or more.")
    if not args.chat_prompts:
        return []

    def make() -> list[Conversation]:
        tokenizer = ChatTokenizer.load(folder)
        target = LlamaTarget.load(
            folder, dtype=torch.bfloat16, device=args.device, stop_token_ids=tokenizer.stop_token_ids
        )
        texts = chat_prompts(args.chat_prompts)
        prompts = [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in texts]
        return answer_greedily(target, prompts, _ANSWER_TOKENS)

    return stored_answers(args.work / f"answers-{args.chat_prompts}.jsonl.gz", make)


def _same_settings(work: Path, settings: TrainSettings) -> None:
    """A resumed run must be the run that was started; only its end (`hours`, anchors) may move."""
    work.mkdir(parents=True, exist_ok=True)
    file = work / "settings.json"
    ours = json.loads(json.dumps(settings.to_dict()))
    if file.exists():
        theirs = json.loads(file.read_text(encoding="utf-8"))
        movable = {"hours", "stage1_anchors", "stage2_anchors"}
        changed = [f.name for f in fields(settings) if f.name not in movable and ours[f.name] != theirs.get(f.name)]
        if changed:
            raise ParameterError(
                f"{work} holds a run with other settings ({', '.join(changed)}); repeat them, or give another --work."
            )
    file.write_text(json.dumps(ours, indent=2) + "\n", encoding="utf-8")


def _trainer(
    work: Path,
    settings: TrainSettings,
    source: LlamaSource,
    cache: FeatureCache,
    common: list[int],
    reporter: Reporter,
) -> Trainer:
    tables = (source.embedding.float(), source.lm_head.float())
    draft_ids = torch.tensor(common, device=tables[0].device)
    config = draft_config(
        source,
        layers=settings.layers,
        block_size=settings.block_size,
        markov_rank=settings.markov_rank,
        mask_token_id=settings.mask_token_id,
    )
    torch.manual_seed(settings.seed)
    drafter = Drafter(config).to(tables[0].device)
    sequences = cache.sequences("train")
    sample = torch.cat([cache.rows(s)[0] for s in sequences[:8]]).to(tables[0].device)
    smart_start(drafter, source, sample, seed=settings.seed)
    sampler = Sampler(cache, sequences, prompt_share=settings.prompt_share, cool_weight=settings.cool_weight)
    return Trainer(
        work,
        settings,
        drafter,
        sampler,
        tables,
        draft_ids,
        report=reporter.row,
        validate=lambda current: _quick_figures(current, cache, tables, draft_ids),
    )


def _quick_figures(
    drafter: Drafter, cache: FeatureCache, tables: tuple[Tensor, Tensor], draft_ids: Tensor
) -> dict[str, Any]:
    """Held-out figures on few sequences, for the log."""
    held_out = cache.sequences("validation")
    evaluator = Evaluator(cache, tables, draft_ids=draft_ids)
    figures: dict[str, Any] = {"law_tau": evaluator.law(drafter, held_out[:16], stride=48)["expected_tau"]}
    greedy = [s for s in held_out if s.temperature <= GREEDY_TEMPERATURE][:4]
    if greedy:
        figures["greedy_tau"] = round(evaluator.greedy(drafter, greedy).tau, 4)
    return figures


def _held_out_figures(
    drafter: Drafter, cache: FeatureCache, tables: tuple[Tensor, Tensor], draft_ids: Tensor
) -> dict[str, Any]:
    held_out = cache.sequences("validation")
    evaluator = Evaluator(cache, tables, draft_ids=draft_ids)
    figures: dict[str, Any] = {"law": evaluator.law(drafter, held_out)}
    greedy = [s for s in held_out if s.temperature <= GREEDY_TEMPERATURE]
    if greedy:
        figures["greedy"] = evaluator.greedy(drafter, greedy).to_dict()
    return figures
