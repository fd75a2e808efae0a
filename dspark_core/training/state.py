"""A training run's state on disk: whole or not there, and taken only by the run that it belongs to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dspark_core.errors import CheckpointError
from dspark_core.fields import Fields, shown
from dspark_core.training.files import write_whole

LAST_STAGE = 3  # a run that has ended
_MOST_STEPS = 10**15
_WAY_OUT = "Repeat the run's own options, or delete this file: then the run begins anew from the same features."


@dataclass(frozen=True)
class Position:
    """How far a run is: `step` and `anchors` count within `stage` (3 when both are done); seconds are of training."""

    stage: int
    step: int = 0
    anchors: int = 0
    elapsed_s: float = 0.0
    stage_started_s: float = 0.0


@dataclass(frozen=True)
class Trained:
    """What training changes: the drafter and its optimizers, by name."""

    drafter: nn.Module
    optimizers: Mapping[str, torch.optim.Optimizer]


def write_state(file: Path, trained: Trained, position: Position) -> None:
    """Write the state, whole or not at all. ResourceError when the disk refuses."""
    state = {
        "drafter": trained.drafter.state_dict(),
        "optimizers": {name: optimizer.state_dict() for name, optimizer in trained.optimizers.items()},
    } | vars(position)
    write_whole(file, lambda path: torch.save(state, path))


def read_state(file: Path, trained: Trained, device: torch.device) -> Position:
    """Fill `trained` from the file. CheckpointError when it is broken, another drafter's, or not all finite numbers."""
    state = _load(file, device)
    fields = Fields(state, str(file), CheckpointError, _WAY_OUT)
    position = Position(
        stage=fields.whole("stage", 1, LAST_STAGE),
        step=fields.whole("step", 0, _MOST_STEPS),
        anchors=fields.whole("anchors", 0, _MOST_STEPS),
        elapsed_s=_seconds(fields, state, "elapsed_s"),
        stage_started_s=_seconds(fields, state, "stage_started_s"),
    )
    _check_weights(file, fields.section("drafter"), trained.drafter)
    trained.drafter.load_state_dict(state["drafter"])
    states = fields.section("optimizers")
    if states.keys() != trained.optimizers.keys():
        raise CheckpointError(
            f"{file} holds the optimizers {shown(', '.join(map(str, states)))}; this run has "
            f"{', '.join(trained.optimizers)}: it is of another number of workers or an earlier version. {_WAY_OUT}"
        )
    for name, optimizer in trained.optimizers.items():
        _fill(file, name, optimizer, states[name])
    return position


def _load(file: Path, device: torch.device) -> dict[str, Any]:
    try:
        state = torch.load(file, map_location=device, weights_only=True)
    except Exception as error:  # it says so in a dozen types, some of whose texts advise to trust the file
        raise CheckpointError(
            f"{file} cannot be read ({type(error).__name__}); it is cut or damaged. {_WAY_OUT}"
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{file} holds a {type(state).__name__}, not the state of a run. {_WAY_OUT}")
    return state


def _seconds(fields: Fields, state: Mapping[str, Any], name: str) -> float:
    value: Any = state.get(name)
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise fields.refusal(name, "must be a finite number, 0 or above")
    return float(value)


def _check_weights(file: Path, found: Mapping[str, Any], drafter: nn.Module) -> None:
    wanted = {name: tuple(value.shape) for name, value in drafter.state_dict().items()}
    shapes = {name: tuple(value.shape) if isinstance(value, Tensor) else None for name, value in found.items()}
    odd = sorted(str(name) for name in wanted.keys() | shapes.keys() if wanted.get(name) != shapes.get(name))
    if odd:
        raise CheckpointError(
            f"{file} is the state of another drafter: {shown(', '.join(odd))} differ in shape or exist in one alone. "
            f"{_WAY_OUT}"
        )
    if not all(bool(torch.isfinite(value).all()) for value in found.values()):
        raise CheckpointError(f"{file} holds weights that are not finite numbers. {_WAY_OUT}")


def _fill(file: Path, name: str, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Moments and step counts come from the file; rates, decay and the rest are the run's own."""
    moments = ("momentum_buffer",) if isinstance(optimizer, torch.optim.Muon) else ("exp_avg", "exp_avg_sq")
    groups = optimizer.state_dict()["param_groups"]
    try:
        same = [group["params"] for group in state["param_groups"]] == [group["params"] for group in groups]
        optimizer.load_state_dict({"state": state["state"], "param_groups": groups})
        fits = same and all(
            all(value[moment].shape == parameter.shape for moment in moments)
            and all(bool(torch.isfinite(torch.as_tensor(number)).all()) for number in value.values())
            for parameter, value in optimizer.state.items()
        )
    except Exception as error:  # torch looks at the parts as it comes to them
        raise CheckpointError(f"{file}: its optimizer state {name!r} cannot be read ({error!r}). {_WAY_OUT}") from error
    if not fits:
        raise CheckpointError(f"{file}: its optimizer state {name!r} does not fit this drafter. {_WAY_OUT}")
