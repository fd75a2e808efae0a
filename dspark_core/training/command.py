"""`train`: from a target to a drafter checkpoint. Killed at any time, the same command goes on from there."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dspark_core.cache import ensure_model
from dspark_core.errors import ParameterError
from dspark_core.loading import choose_device
from dspark_core.modules.config import HEAD_TYPES
from dspark_core.training import lm_command
from dspark_core.training.pipeline import Paths, Pipeline
from dspark_core.training.settings import TrainSettings
from dspark_core.training.writer import WriterSettings

STEPS = ("synthesise", "cache", "fit", "evaluate", "lm")
_SHOWN, _WRITER = TrainSettings(), WriterSettings()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `train`."""
    parser.add_argument(
        "step",
        nargs="?",
        choices=("all", *STEPS),
        default="all",
        help="one step alone, or all: the target writes conversations (--conversations), their hidden states are "
        "cached, the drafter is fitted; evaluate measures --out on the held-out conversations. lm (no part of all) "
        "trains a small language model on the same features, the classical drafter",
    )
    parser.add_argument(
        "--data", type=_path, required=True, help="conversations: a .jsonl(.gz) file, or a folder of them"
    )
    parser.add_argument("--work", type=_path, help="folder for features and state (a resume needs it)")
    parser.add_argument("--out", type=_path, help="folder of the checkpoint to write")
    parser.add_argument(
        "--start-from",
        type=_path,
        metavar="CHECKPOINT",
        help="begin with this drafter's weights, at stage 2; γ and the sequential head may be others, whose weights "
        "then begin anew",
    )
    parser.add_argument("--model", default="smollm2-135m", help="target by name (default: %(default)s)")
    parser.add_argument(
        "--target-path", type=_path, help="folder of the target (Hugging Face files) instead of --model"
    )
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda or cuda:i (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=_SHOWN.seed, help="default: %(default)s")
    _add_writing(parser.add_argument_group("synthesise"))
    _add_fitting(parser.add_argument_group("cache and fit"))
    lm_command.add_arguments(parser.add_argument_group("lm", "It shares --hours, --threads and the --…-tokens above."))


def _add_writing(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--conversations", type=int, default=0, metavar="N", help="conversations of this seed in --data (0: no writing)"
    )
    group.add_argument("--rows", type=int, default=_WRITER.rows, help="written side by side (default: %(default)s)")
    group.add_argument("--answer-tokens", type=int, default=_WRITER.answer_tokens, help="default: %(default)s")
    group.add_argument(
        "--temperatures",
        type=float,
        nargs="+",
        default=list(_WRITER.temperatures),
        metavar="T",
        help="of the answers, drawn from evenly; 0 is greedy (default: %(default)s)",
    )


def _add_fitting(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--taps", type=int, nargs="+", help="target layers to read (default: five spread ones)")
    group.add_argument("--layers", type=int, default=_SHOWN.layers, help="draft layers (default: %(default)s)")
    group.add_argument(
        "--block-size", type=int, default=_SHOWN.block_size, help="γ, drafts a block (default: %(default)s)"
    )
    group.add_argument(
        "--head", choices=HEAD_TYPES, default=_SHOWN.head_type, help="sequential head (default: %(default)s)"
    )
    group.add_argument(
        "--markov-rank",
        type=int,
        default=_SHOWN.markov_rank,
        help="width of the sequential head's tables; 0 trains DFlash, without one (default: %(default)s)",
    )
    group.add_argument(
        "--copy-longest",
        type=int,
        help="longest match that the copy head tells apart; 0 leaves that head out (default: "
        f"{_SHOWN.copy_longest}, and 0 for DFlash)",
    )
    group.add_argument(
        "--only-confidence",
        action="store_true",
        help="train nothing but how confidences heed the law of their draft; all else stays as --start-from has it",
    )
    group.add_argument(
        "--mask-token-id",
        type=int,
        default=_SHOWN.mask_token_id,
        help="a reserved token of the target's, never in a text (default: %(default)s, SmolLM2's)",
    )
    group.add_argument("--common-tokens", type=int, default=_SHOWN.common_tokens, help="tokens that may be drafted")
    group.add_argument(
        "--step-tokens",
        type=int,
        default=_SHOWN.step_tokens,
        help="of these, how many each step's loss is over (default: %(default)s)",
    )
    group.add_argument("--rate", type=float, default=_SHOWN.stage2_rate, help="stage 2's first (default: %(default)s)")
    group.add_argument("--stage1-anchors", type=int, help=f"default: {_SHOWN.stage1_anchors}, and 0 with --start-from")
    group.add_argument("--stage2-anchors", type=int, default=_SHOWN.stage2_anchors, help="default: %(default)s")
    group.add_argument("--hours", type=float, help="end by the clock, at the latest")
    group.add_argument(
        "--cool-weight",
        type=float,
        default=_SHOWN.cool_weight,
        help="how many times more often a (nearly) greedy answer is drawn (default: %(default)s)",
    )
    group.add_argument("--threads", type=int, default=_SHOWN.workers, help="worker threads (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Do the step, or all of them; returns 0. Raises the DSparkError family."""
    settings, writing = _settings(args), _writer_settings(args)
    paths = Paths(args.data, *_needed_folders(args), args.start_from)
    device = choose_device(args.device)
    folder = args.target_path if args.target_path is not None else ensure_model(args.model)
    pipeline = Pipeline(folder, paths, settings, taps=tuple(args.taps) if args.taps else None, device=device)
    if args.step == "synthesise" or (args.step == "all" and args.conversations):
        pipeline.synthesise(args.conversations, writing)
    if args.step == "cache":
        pipeline.cache()
    if args.step in ("fit", "all"):
        pipeline.fit()
    if args.step == "lm":
        lm_command.run(args, pipeline)
    if args.step == "evaluate":
        sys.stdout.write(json.dumps(pipeline.evaluate(), indent=2) + "\n")
    return 0


def _path(text: str) -> Path:
    """A path; an empty one (a shell's variable that was never set) would mean the folder that one happens to be in."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; give a path")
    return Path(text)


def _needed_folders(args: argparse.Namespace) -> tuple[Path, Path]:
    """`work` and `out`; a step that needs one of them says so."""
    if args.step != "synthesise" and args.work is None:
        raise ParameterError(f"The step {args.step!r} needs --work, a folder for features and state.")
    if args.step not in ("synthesise", "cache") and args.out is None:
        raise ParameterError(f"The step {args.step!r} needs --out, the folder of the checkpoint.")
    return args.work or args.data, args.out or args.data


def _writer_settings(args: argparse.Namespace) -> WriterSettings:
    least = 1 if args.step == "synthesise" else 0
    if args.conversations < least:
        raise ParameterError(f"--conversations is {args.conversations}; give {least} or more.")
    return WriterSettings(
        rows=args.rows, answer_tokens=args.answer_tokens, temperatures=tuple(args.temperatures), seed=args.seed
    )


def _settings(args: argparse.Namespace) -> TrainSettings:
    block = args.block_size
    lengths = tuple(sorted({block, *(n for n in (block // 2, 5, 4) if 0 < n < block)}, reverse=True))
    shares = {1: (1.0,), 2: (0.6, 0.4), 3: (0.3, 0.35, 0.35), 4: (0.1, 0.2, 0.3, 0.4)}[len(lengths)]
    default = 0 if args.start_from is not None else _SHOWN.stage1_anchors
    return TrainSettings(
        stage1_anchors=default if args.stage1_anchors is None else args.stage1_anchors,
        stage2_anchors=args.stage2_anchors,
        hours=args.hours,
        seed=args.seed,
        workers=args.threads,
        block_size=block,
        block_lengths=lengths,
        block_shares=shares,
        layers=args.layers,
        markov_rank=args.markov_rank,
        head_type=args.head,
        copy_longest=_copy_longest(args),
        only_confidence=args.only_confidence,
        mask_token_id=args.mask_token_id,
        common_tokens=args.common_tokens,
        step_tokens=args.step_tokens,
        stage2_rate=args.rate,
        cool_weight=args.cool_weight,
    )


def _copy_longest(args: argparse.Namespace) -> int:
    """A copy head is a sequential head: DFlash has none unless it is asked for."""
    if args.copy_longest is not None:
        return int(args.copy_longest)
    return _SHOWN.copy_longest if args.markov_rank else 0
