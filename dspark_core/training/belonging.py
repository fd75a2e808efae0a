"""What folders belong to: a run reads features of its own target, keeps its first weights, overwrites its own kind."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from dspark_core.errors import CheckpointError, ParameterError
from dspark_core.fields import read_object, shown
from dspark_core.modules.config import DraftConfig
from dspark_core.training.files import write_json

ORIGIN_NAME = "origin.json"
_CONFIG, _RECORD = "config.json", "training.json"
_SAMPLED = 4096  # numbers of a tensor, at least
_WAY_OUT = "Give another work folder, or delete this one to begin anew."


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A digest of every tensor's name, type, shape and some thousand numbers spread over it; hexadecimal.

    Two trainings of one model differ in it, and it costs little however large they are.
    """
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode(errors="backslashreplace"))
        flat = value.detach().reshape(-1)
        sample = flat[:: max(1, len(flat) // _SAMPLED)].contiguous().cpu()
        digest.update(sample.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def same_target(work: Path, tensors: Mapping[str, Tensor], target: Path) -> None:
    """Make sure that the features in ``work`` are of this target, and note it there for the runs that follow.

    A folder that is older than the note is taken as it is. ParameterError when they are another target's, or the note
    is broken; ResourceError when it cannot be written.
    """
    _same(work, "target", fingerprint(tensors), f"the model in {target} has other weights than the one it was made for")


def same_start(work: Path, tensors: Mapping[str, Tensor] | None, start: Path | None) -> None:
    """Make sure that a run that goes on began with these weights (None: without any). Errors as `same_target`."""
    found = "none" if tensors is None else fingerprint(tensors)
    here = "without --start-from" if start is None else f"with the weights in {start}"
    _same(work, "start_from", found, f"its run did not begin {here}")


def _same(work: Path, name: str, found: str, fault: str) -> None:
    file = work / ORIGIN_NAME
    noted = read_object(file, ParameterError, _WAY_OUT) if file.exists() else {}
    if noted.get(name, found) != found:
        raise ParameterError(f"The folder {work} does not belong to this run: {fault}. {_WAY_OUT}")
    if name not in noted:
        write_json(file, noted | {name: found}, indent=2)


def check_drafter_folder(out: Path, start: Path | None) -> None:
    """Refuse an ``out`` whose files a drafter's checkpoint would spoil. ParameterError."""
    if start is not None and _is_same(out, start):
        raise ParameterError(
            f"--out and --start-from are the same folder, {out}: the weights that the run begins with would be "
            "overwritten, and it could not be repeated. Give another --out."
        )
    config = _config_in(out)
    if config is None:
        return
    try:
        DraftConfig.from_dict(config)
    except CheckpointError as error:
        raise _spoiled(out, config, "a drafter") from error


def check_lm_folder(out: Path, wanted: Mapping[str, object], note: str) -> None:
    """Refuse an ``out`` with a model that `train lm` did not write; ``wanted`` is its config. ParameterError.

    What it wrote has a record with its ``note``, or, where it was killed before that, its very config.
    """
    config = _config_in(out)
    record = out / _RECORD
    way_out = f"Delete it, or give another --out than {out}."
    written = record.exists() and read_object(record, ParameterError, way_out).get("note") == note
    if config is not None and not written and config != wanted:
        raise _spoiled(out, config, "a small language model")


def _config_in(out: Path) -> dict[str, object] | None:
    file = out / _CONFIG
    return read_object(file, ParameterError, "Give another --out.") if os.path.exists(file) else None


def _spoiled(out: Path, config: Mapping[str, object], kind: str) -> ParameterError:
    return ParameterError(
        f"--out is {out}, which holds something else (model_type {shown(config.get('model_type'))} in its {_CONFIG}): "
        f"{kind} written over it would spoil both. Give a folder of its own."
    )


def _is_same(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:
        return False
