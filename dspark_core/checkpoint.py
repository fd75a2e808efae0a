"""Drafter checkpoints on disk: `config.json` + `model.safetensors` in DeepSpec's layout, names and shapes checked."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dspark_core.errors import CheckpointError
from dspark_core.fields import read_object
from dspark_core.files import make_folder, write_json, write_whole
from dspark_core.modules.config import DraftConfig
from dspark_core.modules.drafter import Drafter

CONFIG_NAME, WEIGHTS_NAME = "config.json", "model.safetensors"
EMBED_NAME, HEAD_NAME = "embed_tokens.weight", "lm_head.weight"
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True)
class LoadedDrafter:
    """A checkpoint in memory; `embed_tokens` and `lm_head` [V, H] are None where the target's own table is meant."""

    config: DraftConfig
    modules: Drafter
    embed_tokens: Tensor | None
    lm_head: Tensor | None


def expected_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that the file of this config must hold."""
    with torch.device("meta"):  # no memory, whatever sizes the config claims
        return _shapes_of(Drafter(config), config)


def _sizes_agree(tensors: Mapping[str, Tensor], config: DraftConfig) -> bool:
    """Whether the file's largest tensors have the config's sizes, so that building the modules cannot ask for more."""
    last = f"layers.{config.num_hidden_layers - 1}."
    wanted = {
        "fc.weight": (config.hidden_size, len(config.target_layer_ids) * config.hidden_size),
        last + "mlp.gate_proj.weight": (config.intermediate_size, config.hidden_size),
        last + "self_attn.q_proj.weight": (config.num_attention_heads * config.head_dim, config.hidden_size),
    }
    if config.markov_rank:
        wanted["markov_head.markov_w1.weight"] = (config.vocab_size, config.markov_rank)
    return all(name in tensors and tuple(tensors[name].shape) == shape for name, shape in wanted.items())


def _shapes_of(modules: Drafter, config: DraftConfig) -> dict[str, tuple[int, ...]]:
    shapes = {name: tuple(value.shape) for name, value in modules.state_dict().items()}
    table = (config.vocab_size, config.hidden_size)
    if not config.embed_tokens_from_target:
        shapes[EMBED_NAME] = table
    if not config.lm_head_from_target:
        shapes[HEAD_NAME] = table
    return shapes


def read_config(path: Path) -> DraftConfig:
    """The config of a checkpoint folder, without touching its weights."""
    file = path / CONFIG_NAME
    if not file.exists():
        raise CheckpointError(
            f"{path} holds no drafter: {CONFIG_NAME} is missing. Give the folder that has both files."
        )
    data = read_object(file, CheckpointError, "Take it again from its source.")
    return DraftConfig.from_dict(data)


def load_drafter(
    path: Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> LoadedDrafter:
    """Load a checkpoint folder for inference (frozen, eval mode) in `dtype`.

    CheckpointError for an unknown layout, missing, surplus or misshapen tensors, tensors that are no finite numbers
    of a floating type, or a damaged file.
    """
    config = read_config(path)
    tensors = _read_tensors(path / WEIGHTS_NAME)
    if not _sizes_agree(tensors, config):
        check_tensors(tensors, expected_shapes(config), path.name)
    modules = Drafter(config)  # on the CPU: the meta device imports a second's worth of torch
    check_tensors(tensors, _shapes_of(modules, config), path.name)
    _check_types(tensors, path.name)
    tensors = {name: value.to(device=device, dtype=dtype) for name, value in tensors.items()}
    _check_finite(tensors, path.name)
    embed_tokens, lm_head = tensors.pop(EMBED_NAME, None), tensors.pop(HEAD_NAME, None)
    modules.load_state_dict(tensors, assign=True)
    modules.requires_grad_(False)
    modules.eval()
    return LoadedDrafter(config, modules, embed_tokens, lm_head)


def save_drafter(path: Path, config: DraftConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint folder; each file appears whole or not at all (weights first, then the config).

    `tensors` carries the names of `expected_shapes`; they are stored in the config's dtype. CheckpointError when they
    do not, ParameterError or ResourceError when the folder or a file cannot be written.
    """
    check_tensors(tensors, expected_shapes(config), path.name)
    make_folder(path)
    stored = {name: value.detach().to("cpu", _DTYPES[config.dtype]).contiguous() for name, value in tensors.items()}
    write_tensors(path / WEIGHTS_NAME, stored)
    write_json(path / CONFIG_NAME, config.to_dict(), indent=2)


def export_drafter(source: Path, destination: Path, *, embed_tokens: Tensor, lm_head: Tensor) -> DraftConfig:
    """Write the full DeepSpec set for other engines: the target's embedding and LM head [V, H] go into the file."""
    loaded = load_drafter(source, dtype=torch.float32)
    config = replace(loaded.config, embed_tokens_from_target=False, lm_head_from_target=False)
    tensors = dict(loaded.modules.state_dict())
    tensors[EMBED_NAME] = embed_tokens if loaded.embed_tokens is None else loaded.embed_tokens
    tensors[HEAD_NAME] = lm_head if loaded.lm_head is None else loaded.lm_head
    if tensors[HEAD_NAME] is tensors[EMBED_NAME]:
        tensors[HEAD_NAME] = tensors[HEAD_NAME].clone()  # safetensors stores no shared memory
    save_drafter(destination, config, tensors)
    return config


def check_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]], label: str) -> None:
    """Raise CheckpointError that names the tensors which are missing, surplus or of the wrong shape."""
    missing, surplus = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or surplus:
        raise CheckpointError(
            f"Drafter {label}: its tensors do not match its config. Missing: {_some(missing)}; surplus: "
            f"{_some(surplus)}. "
            "Use the config.json and model.safetensors of one and the same checkpoint."
        )
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise CheckpointError(
                f"Drafter {label}: {name} has shape {list(tensors[name].shape)}, the config asks for {list(shape)}. "
                "Use the config.json and model.safetensors of one and the same checkpoint."
            )


def _check_types(tensors: Mapping[str, Tensor], label: str) -> None:
    for name, value in tensors.items():
        if value.dtype not in _DTYPES.values():
            raise CheckpointError(
                f"Drafter {label}: {name} is stored as {str(value.dtype).removeprefix('torch.')}; only "
                f"{', '.join(_DTYPES)} are read. Take the weights unquantised from their source."
            )


def _check_finite(tensors: Mapping[str, Tensor], label: str) -> None:
    """After the cast to the type computed in: what overflows there is as useless as what was stored broken."""
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(
                f"Drafter {label}: {name} holds values that are not finite in {str(value.dtype).removeprefix('torch.')}"
                ", so its drafts would be noise. Take the weights again from their source, or use another dtype."
            )


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _read_tensors(file: Path) -> dict[str, Tensor]:
    if not file.exists():
        raise CheckpointError(f"{file.parent} holds no drafter weights: {file.name} is missing.")
    try:
        return load_file(file)
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, RuntimeError) as error:  # torch's own too
        raise CheckpointError(f"{file} cannot be read ({error}); it may be cut short. Fetch it again.") from error


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, whole or not at all. ResourceError when the disk is full or refuses."""

    def write(place: Path) -> None:
        try:
            save_file(dict(tensors), place, metadata={"format": "pt"})
        except SafetensorError as error:  # the disk's refusal, in the library's words
            raise OSError(str(error)) from error
        place.chmod(0o644)  # safetensors writes 0600

    write_whole(file, write)
