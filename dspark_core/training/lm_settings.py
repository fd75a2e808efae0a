"""Everything that decides the training of a small language model; kept in its work folder and beside its weights."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.fields import LARGEST, read_object, shown
from dspark_core.training.files import write_json
from dspark_core.training.settings import MAX_WORKERS, check_ranges

_MOST = 10**12
_WHOLES = {
    "hidden": (2, LARGEST),
    "layers": (1, 1024),
    "heads": (1, 2**16),
    "kv_heads": (1, 2**16),
    "mlp": (1, LARGEST),
    "predictions": (1, _MOST),
    "seed": (0, 2**63 - 1),
    "workers": (1, MAX_WORKERS),
    "batch_tokens": (2, LARGEST),
    "common_tokens": (1, LARGEST),
    "step_tokens": (1, LARGEST),
    "warmup_steps": (0, _MOST),
    "log_steps": (1, _MOST),
}
_NUMBERS = {
    "hours": (0.0001, 100_000.0),
    "cool_weight": (0.001, 1000.0),
    "rate": (1e-9, 1.0),  # a step of AdamW is about its rate: at most 1, so finite weights stay finite
    "weight_decay": (0.0, 1.0),
    "clip_norm": (0.0001, 10_000.0),
    "checkpoint_s": (0.0, 1e9),
    "validate_s": (0.0, 1e9),
}
_MOVABLE = ("hours", "predictions")
_WAY_OUT = "Give another work folder, or delete this one to begin anew."


@dataclass(frozen=True)
class LmSettings:
    """`predictions` are answer positions trained on, each time one is seen; seconds say so.

    `hidden`, `layers`, `heads`, `kv_heads`, `mlp`: the model's sizes.
    `hours` ends a run by the clock as well: the learning rate falls with whichever is further along.
    `workers` batches of `batch_tokens` (with padding) are computed side by side, one thread each, and their gradients
    averaged into one step.
    `common_tokens` are the draft vocabulary; a step's loss is over `step_tokens` of them and the batch's own tokens.
    `cool_weight`: how many times more a (nearly) greedy answer weighs.
    """

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    mlp: int = 384
    predictions: int = 2_500_000
    hours: float | None = None
    seed: int = 0
    workers: int = 2
    batch_tokens: int = 1024
    common_tokens: int = 8192
    step_tokens: int = 4096
    cool_weight: float = 3.0
    rate: float = 4e-3
    warmup_steps: int = 30
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    autocast: bool = True
    log_steps: int = 10
    checkpoint_s: float = 90.0
    validate_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse what cannot train, by name. ParameterError."""
        check_ranges(vars(self), _WHOLES, _NUMBERS)
        if self.hidden % (2 * self.heads):
            raise ParameterError(
                f"hidden is {self.hidden} with {self.heads} heads; the size of a head must be whole and even: "
                f"give a multiple of {2 * self.heads}."
            )
        if self.heads % self.kv_heads:
            raise ParameterError(f"kv_heads is {self.kv_heads}; it must divide the {self.heads} heads.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def same_lm_run(file: Path, settings: LmSettings) -> None:
    """Make sure that a resumed run is the run that was begun, and write `file` for the runs that continue it.

    Only the end (hours, predictions) of a run may move. ParameterError when `file` is broken or of a run with other
    settings, ResourceError when it cannot be written.
    """
    here = settings.to_dict()
    if file.exists():
        there = read_object(file, ParameterError, _WAY_OUT)
        changed = [
            f"{name} {shown(there.get(name))} there, {shown(here.get(name))} here"
            for name in sorted((there.keys() | here.keys()) - set(_MOVABLE))
            if there.get(name) != here.get(name)
        ]
        if changed:
            raise ParameterError(
                f"{file.parent} holds a run with other settings ({'; '.join(changed)}). Repeat its own. {_WAY_OUT}"
            )
    write_json(file, here, indent=2)
