"""Everything that decides a training run; kept in its work folder, and written beside the checkpoint it gives."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.fields import LARGEST, read_object, shown
from dspark_core.modules.config import HEAD_TYPES, MAX_BLOCK_SIZE
from dspark_core.modules.copy_head import LONGEST
from dspark_core.training.files import write_json

SETTINGS_NAME = "settings.json"
MAX_WORKERS = 64  # below 99, which seeds what the workers share
_MOST = 10**12
_WHOLES = {
    "stage1_anchors": (0, _MOST),
    "stage2_anchors": (0, _MOST),
    "seed": (0, 2**63 - 1),  # as torch's generators take it
    "workers": (1, MAX_WORKERS),
    "batch_sequences": (1, LARGEST),
    "batch_predictions": (1, LARGEST),
    "block_size": (1, MAX_BLOCK_SIZE),
    "layers": (1, 1024),
    "markov_rank": (0, LARGEST),
    "copy_longest": (0, 64),
    "mask_token_id": (0, LARGEST - 1),
    "common_tokens": (1, LARGEST),
    "step_tokens": (1, LARGEST),
    "warmup_steps": (0, _MOST),
    "log_steps": (1, _MOST),
}
_NUMBERS = {
    "hours": (0.0001, 100_000.0),
    "stage1_share": (0.0, 1.0),
    "prompt_share": (0.0, 1.0),
    "cool_weight": (0.001, 1000.0),
    "stage1_rate": (1e-9, 1.0),  # a step of AdamW is about its rate: at most 1, so finite weights stay finite
    "stage2_rate": (1e-9, 1.0),
    "table_rate": (1e-9, 1.0),
    "weight_decay": (0.0, 1.0),
    "clip_norm": (0.0001, 10_000.0),
    "checkpoint_s": (0.0, 1e9),
    "validate_s": (0.0, 1e9),
    "held_out_share": (0.0001, 0.9999),
}
_FLAGS = {"autocast", "confidence_reads_law", "only_confidence"}
_MOVABLE = ("hours", "stage1_anchors", "stage2_anchors")
_BEFORE: dict[str, Any] = {  # what a run did that is older than the setting
    "confidence_reads_law": False,
    "cool_weight": 1.0,
    "copy_longest": 0,
    "head_type": "vanilla",
    "only_confidence": False,
    "step_tokens": LARGEST,
}
_WAY_OUT = "Give another work folder, or delete this one to begin anew."


def check_ranges(
    values: Mapping[str, Any], wholes: Mapping[str, tuple[int, int]], numbers: Mapping[str, tuple[float, float]]
) -> None:
    """Refuse a setting of another type or outside its range, by name. ParameterError.

    `wholes` and `numbers` name the ranges. Only `hours` may be None; `_FLAGS` are true or false.
    """
    for ranges, kinds, wanted in ((wholes, (int,), "a whole number"), (numbers, (int, float), "a number")):
        for name, (low, high) in ranges.items():
            value = values[name]
            if name == "hours" and value is None:
                continue
            if type(value) not in kinds or not low <= value <= high:  # NaN is in no range
                raise ParameterError(f"{name} is {shown(value)}; it must be {wanted} from {low} to {high}.")
    for name in _FLAGS & values.keys():
        if type(values[name]) is not bool:
            raise ParameterError(f"{name} is {shown(values[name])}; it must be true or false.")


@dataclass(frozen=True)
class TrainSettings:
    """Counts are anchors (one anchor = one block of predictions); rates are AdamW's; seconds say so.

    `hours` ends a run by the clock as well: learning rates fall with whichever is further along, anchors or time.
    `block_lengths`, `block_shares`: predictions per anchor and how often; short blocks train the early positions, which
    decide most of τ, for less time, and let a drafter run with fewer drafts than γ.
    `workers` batches are computed side by side, one thread each, and their gradients averaged into one step: on shared
    cores that is twice as fast as two threads inside every operation (each of which waits for the slower one).
    `cool_weight`: how many times more often an answer of temperature 0.3 or less is drawn (greedy chat comes first).
    `copy_longest` is the longest match that a copy head tells apart; 0 leaves that head out.
    `confidence_reads_law`: whether confidences also heed how sure each draft's law is. `only_confidence` trains nothing
    but how they do, and leaves all other weights and the draft vocabulary as they were.
    `markov_rank` 0 leaves the sequential head out: the drafter is then DFlash, trained by itself.
    `batch_sequences` and `batch_predictions` are those of one worker.
    `common_tokens` may be drafted; a step's loss is over the labels, the commonest and some others of them,
    `step_tokens` in all: half the price, and every token still has its turn.
    """

    stage1_anchors: int = 500_000
    stage2_anchors: int = 1_000_000
    hours: float | None = None
    stage1_share: float = 0.35
    seed: int = 0
    workers: int = 2
    batch_sequences: int = 2
    batch_predictions: int = 2048
    block_size: int = 15
    block_lengths: tuple[int, ...] = (15, 7, 5, 4)
    block_shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4)
    layers: int = 2
    markov_rank: int = 128
    head_type: str = "vanilla"
    copy_longest: int = LONGEST
    confidence_reads_law: bool = True
    only_confidence: bool = False
    mask_token_id: int = 4
    common_tokens: int = 8192
    step_tokens: int = 4096
    prompt_share: float = 0.03
    cool_weight: float = 3.0
    stage1_rate: float = 2e-3
    stage2_rate: float = 1e-3
    table_rate: float = 2e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    autocast: bool = True
    log_steps: int = 20
    checkpoint_s: float = 90.0
    validate_s: float = 300.0
    held_out_share: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what cannot train, by name. ParameterError."""
        check_ranges(vars(self), _WHOLES, _NUMBERS)
        if self.stage1_anchors + self.stage2_anchors == 0:
            raise ParameterError("Nothing to train: both stages have 0 anchors. Give one of them some.")
        if self.head_type not in HEAD_TYPES:
            raise ParameterError(f"head_type is {shown(self.head_type)}; choose one of {', '.join(HEAD_TYPES)}.")
        if self.only_confidence and not (self.confidence_reads_law and self.stage1_anchors == 0):
            raise ParameterError(
                "only_confidence trains how confidences heed the law, in stage 2: it needs confidence_reads_law, and "
                "stage1_anchors 0."
            )
        self._check_blocks()

    def _check_blocks(self) -> None:
        lengths, shares = self.block_lengths, self.block_shares
        whole = isinstance(lengths, tuple) and all(type(n) is int and n >= 1 for n in lengths)
        if not whole or max(lengths, default=0) != self.block_size:
            raise ParameterError(
                f"block_lengths is {shown(lengths)}; it must hold whole numbers from 1 to γ = {self.block_size}, and γ."
            )
        numbers = isinstance(shares, tuple) and all(type(x) in (int, float) and 0 <= x <= 1 for x in shares)
        if not numbers or len(shares) != len(lengths) or not math.isclose(math.fsum(shares), 1, abs_tol=1e-9):
            raise ParameterError(
                f"block_shares is {shown(shares)}; it must hold one number from 0 to 1 for each of the "
                f"{len(lengths)} block_lengths, and they must add up to 1."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `read_settings` reads them back."""
        return asdict(self)


def read_settings(file: Path) -> TrainSettings:
    """The settings of an earlier run; a setting that is younger than the run has the value that the run then had.

    ParameterError when the file cannot be read, lacks a setting, has an unknown one, or one that cannot train.
    """
    stored = read_object(file, ParameterError, _WAY_OUT)
    if unknown := sorted(stored.keys() - _names()):
        raise ParameterError(
            f"{file} has settings that are not known here ({shown(', '.join(unknown))}): another version wrote them. "
            f"Use that version. {_WAY_OUT}"
        )
    if missing := sorted(_names() - stored.keys() - _BEFORE.keys()):
        raise ParameterError(f"{file} lacks {', '.join(missing)}. {_WAY_OUT}")
    values: dict[str, Any] = _BEFORE | stored
    for name in ("block_lengths", "block_shares"):
        if isinstance(values[name], list):  # JSON knows no tuple
            values[name] = tuple(values[name])
    try:
        return TrainSettings(**values)
    except ParameterError as error:
        raise ParameterError(f"{file} cannot be trained with: {error} {_WAY_OUT}") from error


def same_run(file: Path, settings: TrainSettings) -> None:
    """Make sure that a resumed run is the run that was begun, and write `file` for the runs that continue it.

    Only the end (hours, anchors) of a run may move. ParameterError when `file` is broken or of a run with other
    settings, ResourceError when it cannot be written.
    """
    if file.exists():
        begun = read_settings(file)
        pairs = {name: (getattr(begun, name), getattr(settings, name)) for name in _names() - set(_MOVABLE)}
        changed = [
            f"{name} {shown(old)} there, {shown(new)} here" for name, (old, new) in sorted(pairs.items()) if old != new
        ]
        if changed:
            raise ParameterError(
                f"{file.parent} holds a run with other settings ({'; '.join(changed)}). Repeat its own. {_WAY_OUT}"
            )
    write_json(file, settings.to_dict(), indent=2)


def _names() -> set[str]:
    return {f.name for f in fields(TrainSettings)}
