"""Tensors of a Hugging Face folder, mapped from disk rather than read."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from dspark_core.errors import ModelUnavailableError
from dspark_core.storage import way_to_repair


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the folder's ``*.safetensors`` files, under their names, mapped into memory.

    Raises:
        ModelUnavailableError: no such file, or one is broken.
    """
    tensors: dict[str, torch.Tensor] = {}
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelUnavailableError(
            f"{folder} holds no *.safetensors file, so there are no weights to load. {way_to_repair(folder)}"
        )
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    tensors[name] = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelUnavailableError(
                f"{path} is broken ({error}), so the model cannot be loaded. {way_to_repair(folder)}"
            ) from error
    return tensors
