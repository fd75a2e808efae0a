"""Drafter checkpoints on disk: `config.json` + `model.safetensors` in DeepSpec's layout, names and shapes checked.

Two savings are ours alone, each named in the config (`export` writes the full set): the target's tables may be left
out, and W2 may be stored as the rows of `draft_vocabulary.json` only. A row of a token that is never drafted is never
read; W1 stays whole, since any token may be the anchor.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dspark_core.drafters.vocabulary import FILE_NAME, read_draft_vocabulary, write_draft_vocabulary
from dspark_core.errors import CheckpointError
from dspark_core.fields import Fields, read_object
from dspark_core.files import make_folder, write_json, write_whole
from dspark_core.modules.config import DraftConfig
from dspark_core.modules.drafter import Drafter

CONFIG_NAME, WEIGHTS_NAME = "config.json", "model.safetensors"
EMBED_NAME, HEAD_NAME = "embed_tokens.weight", "lm_head.weight"
W2_NAME = "markov_head.markov_w2.weight"
_W2_ROWS, _ALL, _DRAFTED = "markov_w2_rows", "all", "draft_vocabulary"  # a key of the config and its values
_DIGEST = "draft_vocabulary_sha256"  # in the weights' own header: rows of other tokens would draft noise
_WAY_OUT = "Take it again from its source."
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
    return DraftConfig.from_dict(_read_values(path))


def _read_values(path: Path) -> dict[str, Any]:
    file = path / CONFIG_NAME
    if not file.exists():
        raise CheckpointError(
            f"{path} holds no drafter: {CONFIG_NAME} is missing. Give the folder that has both files."
        )
    return read_object(file, CheckpointError, _WAY_OUT)


def load_drafter(
    path: Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> LoadedDrafter:
    """Load a checkpoint folder for inference (frozen, eval mode) in `dtype`.

    CheckpointError for an unknown layout, missing, surplus or misshapen tensors, tensors that are no finite numbers
    of a floating type, or a damaged file. W2 is [V, r] whatever the file holds; rows that it leaves out are zero.
    """
    values = _read_values(path)
    config = DraftConfig.from_dict(values)
    tensors, header = _read_tensors(path / WEIGHTS_NAME)
    rows = _stored_rows(path, values, config, header)
    if not _sizes_agree(tensors, config):
        check_tensors(tensors, _compact(expected_shapes(config), rows), path.name)
    modules = Drafter(config)  # on the CPU: the meta device imports a second's worth of torch
    check_tensors(tensors, _compact(_shapes_of(modules, config), rows), path.name)
    _check_types(tensors, path.name)
    tensors = {name: value.to(device=device, dtype=dtype) for name, value in tensors.items()}
    _check_finite(tensors, path.name)
    if rows is not None:
        whole = torch.zeros(config.vocab_size, config.markov_rank, device=device, dtype=dtype)
        tensors[W2_NAME] = whole.index_copy_(0, torch.tensor(rows, device=device), tensors[W2_NAME])
    embed_tokens, lm_head = tensors.pop(EMBED_NAME, None), tensors.pop(HEAD_NAME, None)
    modules.load_state_dict(tensors, assign=True)
    modules.requires_grad_(False)
    modules.eval()
    return LoadedDrafter(config, modules, embed_tokens, lm_head)


def save_drafter(
    path: Path, config: DraftConfig, tensors: Mapping[str, Tensor], *, draft_vocabulary: Sequence[int] | None = None
) -> None:
    """Write a checkpoint folder; each file appears whole or not at all (the config last).

    `tensors` carries the names and shapes of `expected_shapes`; they are stored in the config's dtype. With a
    `draft_vocabulary` (token ids), its file is written too and W2 holds the rows of these tokens only.
    CheckpointError when a tensor does not fit, ParameterError or ResourceError when the disk refuses.
    """
    check_tensors(tensors, expected_shapes(config), path.name)
    stored = {name: value.detach().to("cpu", _DTYPES[config.dtype]).contiguous() for name, value in tensors.items()}
    values, header = config.to_dict(), {}
    rows = None if draft_vocabulary is None else sorted(set(draft_vocabulary))
    if rows is not None and not (rows and rows[0] >= 0 and rows[-1] < config.vocab_size):
        raise CheckpointError(f"The draft vocabulary must be token ids from 0 to {config.vocab_size - 1}, one or more.")
    if rows is not None and config.markov_rank:
        stored[W2_NAME] = stored[W2_NAME][rows]
        values[_W2_ROWS], header[_DIGEST] = _DRAFTED, _digest(rows)
    make_folder(path)
    if rows is not None:
        write_draft_vocabulary(path, rows)
    write_tensors(path / WEIGHTS_NAME, stored, header)
    write_json(path / CONFIG_NAME, values, indent=2)


def _compact(shapes: Mapping[str, tuple[int, ...]], rows: Sequence[int] | None) -> Mapping[str, tuple[int, ...]]:
    """The shapes with only so many rows of W2."""
    return shapes if rows is None else {**shapes, W2_NAME: (len(rows), shapes[W2_NAME][1])}


def _stored_rows(
    path: Path, values: Mapping[str, Any], config: DraftConfig, header: Mapping[str, str]
) -> tuple[int, ...] | None:
    """The tokens whose rows of W2 the file holds, rising; None for all."""
    fields = Fields(values, str(path / CONFIG_NAME), CheckpointError, _WAY_OUT)
    kind = fields.text(_W2_ROWS, _ALL)
    if kind == _ALL or (kind == _DRAFTED and not config.markov_rank):
        return None
    if kind != _DRAFTED:
        raise fields.refusal(_W2_ROWS, f"must be {_ALL!r} or {_DRAFTED!r}")
    rows = read_draft_vocabulary(path, config.vocab_size)
    if rows is None or _digest(rows) != header.get(_DIGEST):
        fault = "is missing" if rows is None else "is not the one that the weights were saved with"
        raise CheckpointError(
            f"{path / FILE_NAME} {fault}: it tells which tokens the rows of {W2_NAME} belong to. {_WAY_OUT}"
        )
    return rows


def _digest(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(",".join(map(str, token_ids)).encode()).hexdigest()


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


def _read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the texts in the file's header."""
    if not file.exists():
        raise CheckpointError(f"{file.parent} holds no drafter weights: {file.name} is missing.")
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, RuntimeError) as error:  # torch's own too
        raise CheckpointError(f"{file} cannot be read ({error}); it may be cut short. Fetch it again.") from error


def write_tensors(file: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with the texts of `header`, whole or not at all. ResourceError when the disk refuses.

    Without a header it says "pt", as transformers wants; with one of one text alone, the same weights give the same
    bytes (safetensors keeps no order among several).
    """

    def write(place: Path) -> None:
        try:
            save_file(dict(tensors), place, metadata=dict(header) if header else {"format": "pt"})
        except SafetensorError as error:  # the disk's refusal, in the library's words
            raise OSError(str(error)) from error
        place.chmod(0o644)  # safetensors writes 0600

    write_whole(file, write)
