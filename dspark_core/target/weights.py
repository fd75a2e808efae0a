"""Tensors of a Hugging Face folder, mapped from disk rather than read."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from dspark_core.errors import ModelUnavailableError
from dspark_core.fields import Fields, read_object
from dspark_core.storage import way_to_repair

_INDEX = "model.safetensors.index.json"
_TEXT_PREFIXES = ("language_model.model.", "model.language_model.")  # of models that have a text part among others


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the folder's ``*.safetensors`` files (those that the index names, where there is one), mapped into
    memory, under their names; a text part's tensors go by the names that a model of text alone has.

    Raises:
        ModelUnavailableError: no such file, or one is missing or broken.
    """
    tensors: dict[str, torch.Tensor] = {}
    for path in _files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    tensors[_plain(name)] = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelUnavailableError(
                f"{path} is broken ({error}), so the model cannot be loaded. {way_to_repair(folder)}"
            ) from error
    return tensors


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.exists():
        values = read_object(index, ModelUnavailableError, way_to_repair(folder))
        named = Fields(values, str(index), ModelUnavailableError, way_to_repair(folder)).section("weight_map").values()
        paths = sorted({folder / Path(str(name)).name for name in named})  # no name may lead out of the folder
        lacking = [path.name for path in paths if not path.is_file()]
    else:
        paths, lacking = sorted(folder.glob("*.safetensors")), []
    if lacking:
        raise ModelUnavailableError(
            f"{folder} lacks {', '.join(lacking[:3])}{' and more' if len(lacking) > 3 else ''}, named in {_INDEX}, so "
            f"weights are missing. {way_to_repair(folder)}"
        )
    if not paths:
        raise ModelUnavailableError(
            f"{folder} holds no *.safetensors file, so there are no weights to load. {way_to_repair(folder)}"
        )
    return paths


def _plain(name: str) -> str:
    for prefix in _TEXT_PREFIXES:
        if name.startswith(prefix):
            return "model." + name.removeprefix(prefix)
    return name.removeprefix("language_model.")  # its LM head
