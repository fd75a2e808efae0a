"""The command ``calibrate``: roll out, fit on half of the prompts, measure on the others, write `calibration.json`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_core.bench.prompts import from_file
from dspark_core.calibration.calibration import Calibration, FittedOn
from dspark_core.catalog import find_model
from dspark_core.draft_folders import find_draft_folders
from dspark_core.errors import ParameterError
from dspark_core.fetch import ProgressBar
from dspark_core.files import check_place
from dspark_core.options import add_model_options
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.terminal import write_text

if TYPE_CHECKING:
    from dspark_core.calibration.recorded import Recorded
    from dspark_core.calibration.rounds import Rounds
    from dspark_core.loading import Session

PROMPTS = Path(__file__).parent / "prompts.jsonl"
SAMPLING_TEMPERATURES = (0.0, 0.7, 1.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core calibrate``."""
    parser.add_argument(
        "--prompts",
        type=Path,
        default=PROMPTS,
        metavar="FILE",
        help='prompts that no drafter was trained on, one {"turns": ["…"]} a line (default: the packaged ones)',
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N prompts (default: 0, all)")
    parser.add_argument("--max-new-tokens", type=int, default=192, metavar="N", help="of each answer (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sampled answers (%(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write here instead of beside the drafter")
    parser.add_argument(
        "--rounds",
        type=Path,
        metavar="FILE",
        help="keep the rounds in FILE, for the page's tab Calibration, and write no calibration.json",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file where there is one")
    add_model_options(parser)


def run(options: argparse.Namespace) -> int:
    """Calibrate and report."""
    if options.rounds and options.out:
        raise ParameterError(
            "--rounds keeps the rounds and writes no calibration, so --out would be left aside. Say one of the two."
        )
    texts = _prompts(options.prompts, options.limit)
    settings = [
        SamplingParams(temperature=t, seed=options.seed, max_new_tokens=options.max_new_tokens)
        for t in SAMPLING_TEMPERATURES
    ]
    from dspark_core.calibration.file import FILE_NAME, weights_sha256, write_calibration
    from dspark_core.calibration.recorded import Recorded, write_recorded
    from dspark_core.calibration.report import table
    from dspark_core.loading import open_session

    draft_model, folder = _drafter(options)
    path: Path = options.rounds or options.out or folder / FILE_NAME
    _check_place(path, options.overwrite)
    digest = weights_sha256(folder)  # before the rollout: of the weights that it runs on
    bar = ProgressBar()
    try:
        with open_session(
            options.model, draft_model=draft_model, device=options.device, dtype=options.dtype, progress=bar
        ) as session:
            recorded = Recorded(digest, *_roll_out(session, texts, settings, options, bar))
    finally:
        bar.close()
    calibration = _fitted(recorded)
    if options.rounds:  # first: a reader that went away must not cost the rollouts
        write_recorded(path, recorded)
    else:
        write_calibration(path, calibration)
    for setting in calibration.settings:
        sys.stdout.write(table(setting) + "\n\n")
    write_text(sys.stdout, f"written: {path}\n")
    return 0


def _drafter(options: argparse.Namespace) -> tuple[str, Path]:
    """What to open and its folder: the one drafter that was named, or the default of those that ship."""
    folders = find_draft_folders(find_model(options.model), options.draft_model)
    if not folders:
        raise ParameterError(
            f"There is no drafter to calibrate: --model {options.model}, --draft-model {options.draft_model}. "
            "Name its folder with --draft-model."
        )
    name, folder = next(iter(folders.items()))
    if options.draft_model == "auto":
        return name, folder.path
    if len(folders) > 1:
        raise ParameterError(
            f"--draft-model {options.draft_model} names {len(folders)} drafters; one is calibrated at a time. Name one."
        )
    return options.draft_model, folder.path


def _prompts(path: Path, limit: int) -> list[str]:
    if limit < 0:
        raise ParameterError(f"limit is {limit}; it must be 0 (all) or more.")
    texts = list(dict.fromkeys(prompt.text for prompt in from_file(path)))  # one prompt must not be in both parts
    texts = texts[: limit or None]
    if len(texts) < 2:
        raise ParameterError(
            f"{len(texts)} different prompt is too few: one part is fitted on, the other measured on. Give 2 or more."
        )
    return texts


def _check_place(path: Path, overwrite: bool) -> None:
    """Refuse before hours of rollouts what could not be written after them."""
    check_place(path)
    if path.exists() and not overwrite:
        raise ParameterError(
            f"{path} exists already. Say --overwrite to replace it, or name another file with --out FILE."
        )


def _roll_out(
    session: Session,
    texts: Sequence[str],
    samplings: Sequence[SamplingParams],
    options: argparse.Namespace,
    bar: ProgressBar,
) -> tuple[FittedOn, int, dict[float, tuple[Rounds, ...]]]:
    """What the answers are made by, γ, and their rounds by sampling temperature."""
    from dspark_core.calibration.rollout import Countdown, roll_out

    drafter = session.drafters[session.default_drafter]
    if not drafter.has_confidence:
        raise ParameterError(
            f"The drafter {drafter.name!r} has no confidence head, so there is nothing to calibrate. Name another one "
            "with --draft-model."
        )
    countdown = Countdown(bar, len(texts) * len(samplings))
    parts = {}
    for sampling in samplings:
        countdown.stage = f"rollout at temperature {sampling.temperature:g}"
        requests = _requests(session, texts, sampling, drafter.num_draft_tokens)
        answered = roll_out(session.engine, requests, drafter.num_draft_tokens, countdown.step)
        parts[sampling.temperature] = tuple(answered)
    made_by = FittedOn(
        model=session.info.model,
        dtype=session.info.dtype,
        drafter=drafter.name,
        prompts=options.prompts.name,
        fit_prompts=len(texts[0::2]),
        held_out_prompts=len(texts[1::2]),
        max_new_tokens=options.max_new_tokens,
        seed=options.seed,
    )
    return made_by, drafter.num_draft_tokens, parts


def _fitted(recorded: Recorded) -> Calibration:
    from dspark_core.calibration.halves import fitted_setting

    settings = [fitted_setting(t, parts, recorded.num_positions) for t, parts in recorded.parts.items()]
    return Calibration(recorded.weights_sha256, recorded.made_by, tuple(settings))


def _requests(
    session: Session, texts: Sequence[str], sampling: SamplingParams, num_draft_tokens: int
) -> list[GenerationRequest]:
    """Every draft is verified, whatever its confidence: what is cut could not be learnt from."""
    from dspark_core.bench.paired import NUM_SEEDS

    schedule = ScheduleParams("fixed", num_draft_tokens, num_draft_tokens)
    seeded = [replace(sampling, seed=((sampling.seed or 0) + i) % NUM_SEEDS) for i in range(len(texts))]
    return [
        session.request([{"role": "user", "content": text}], params, schedule, session.default_drafter)
        for text, params in zip(texts, seeded, strict=True)
    ]
