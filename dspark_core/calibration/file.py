"""`calibration.json` beside a drafter's weights: read and checked, written whole or not at all.

It names the weights that it belongs to by their SHA-256. Beside other weights (the drafter was trained again) it is not
used, and the drafter's note says so: confidences then stay as the head gives them, and no answer's law depends on
them. A file that is damaged is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dspark_core.calibration.calibration import Calibration, Setting
from dspark_core.checkpoint import WEIGHTS_NAME
from dspark_core.errors import CheckpointError, ParameterError
from dspark_core.fields import read_object
from dspark_core.files import write_whole_text
from dspark_core.params import SamplingParams
from dspark_core.typed_json import decode

FILE_NAME = "calibration.json"
LEAST_TEMPERATURE, LARGEST_TEMPERATURE = 0.01, 100.0  # of a confidence: beyond, nothing of its logit is left

_FORMAT = 1
_WAY_OUT = (
    "Remove the file (confidences are then used as the drafter gives them), or fit it again after that: "
    "python -m dspark_core calibrate."
)
_STALE = (
    f"{FILE_NAME} beside this drafter belongs to other weights and is not used: its confidences are not calibrated. "
    "Fit it again: python -m dspark_core calibrate --overwrite (and --draft-model FOLDER)."
)
_BLOCK = 1 << 20


def read_calibration(folder: Path, num_draft_tokens: int) -> tuple[Calibration | None, str]:
    """The calibration of the drafter in ``folder``, of γ = ``num_draft_tokens``, and a note ('' if there is none).

    None without a note where there is no such file, None with a note where it belongs to other weights.

    Raises:
        CheckpointError: the file is damaged, of another version, or does not fit γ.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return None, ""
    values = read_object(path, CheckpointError, _WAY_OUT)
    found = values.pop("format", None)
    if found != _FORMAT:
        raise CheckpointError(f"{path} has the format {found!r:.40}; this version reads {_FORMAT}. {_WAY_OUT}")
    try:
        calibration: Calibration = decode(Calibration, values, FILE_NAME)
        _check(calibration)
    except ParameterError as error:
        raise CheckpointError(f"{path}: {error} {_WAY_OUT}") from error
    if calibration.weights_sha256 != weights_sha256(folder):
        return None, _STALE
    for setting in calibration.settings:
        if len(setting.confidence_temperatures) != num_draft_tokens:
            raise CheckpointError(
                f"{path} has {len(setting.confidence_temperatures)} temperatures for {setting.name}; this drafter "
                f"drafts γ = {num_draft_tokens} tokens and needs as many. {_WAY_OUT}"
            )
    return calibration, ""


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write the file at ``path``; whatever goes wrong, Ctrl-C included, an older one is untouched.

    Raises:
        ResourceError: the folder cannot be written or the disk is full.
    """
    write_whole_text(path, _layout({"format": _FORMAT, **asdict(calibration)}) + "\n")


def weights_sha256(folder: Path) -> str:
    """The SHA-256 of the drafter's weights in ``folder``, in hexadecimal. Raises CheckpointError."""
    digest = hashlib.sha256()
    try:
        with (folder / WEIGHTS_NAME).open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise CheckpointError(
            f"{folder / WEIGHTS_NAME} cannot be read ({error.strerror or error}). Give a folder that holds a drafter."
        ) from error
    return digest.hexdigest()


def _check(calibration: Calibration) -> None:
    """Ranges, after the types. Raises ParameterError."""
    if not re.fullmatch("[0-9a-f]{64}", calibration.weights_sha256):
        raise ParameterError("weights_sha256 must be 64 hexadecimal digits.")
    if not calibration.settings:
        raise ParameterError("settings is empty; it must hold one setting or more.")
    for setting in calibration.settings:
        _check_setting(setting)
    if len({setting.sampling_temperature for setting in calibration.settings}) < len(calibration.settings):
        raise ParameterError("settings has two of one sampling_temperature; each may have one only.")


def _check_setting(setting: Setting) -> None:
    SamplingParams(temperature=setting.sampling_temperature)  # refuses what no request can ask for
    for k, temperature in enumerate(setting.confidence_temperatures, start=1):
        if not LEAST_TEMPERATURE <= temperature <= LARGEST_TEMPERATURE:
            raise ParameterError(
                f"confidence_temperatures of {setting.name} hold {temperature} at position {k}; each must be a number "
                f"from {LEAST_TEMPERATURE} to {LARGEST_TEMPERATURE:g}."
            )


def _layout(value: Any, depth: int = 4, indent: str = "") -> str:
    """JSON with objects and lists opened ``depth`` deep, one position's figures a line."""
    if depth == 0 or not isinstance(value, (dict, list, tuple)) or not _holds_more(value):
        return json.dumps(value, allow_nan=False)
    deeper = indent + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_layout(item, depth - 1, deeper)}" for key, item in value.items()]
    else:
        items = [_layout(item, depth - 1, deeper) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(items) + f"\n{indent}{closing}"


def _holds_more(value: dict[str, Any] | list[Any] | tuple[Any, ...]) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict) or any(isinstance(item, (dict, list, tuple)) for item in items)
