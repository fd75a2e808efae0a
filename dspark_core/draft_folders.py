"""From what ``--draft-model`` says to folders of drafters and their names in a session; no weights are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dspark_core.catalog import ModelEntry
from dspark_core.errors import CheckpointError, ModelUnavailableError, ParameterError
from dspark_core.fields import Fields, read_object, shown
from dspark_core.modules.config import DraftConfig

CHECKPOINTS = Path(__file__).parent / "checkpoints"
LM, DFLASH = "lm", "dflash"

_BUILT_IN = ("none", "ngram")
_TAKEN_IN_BENCH = ("plain", "transformers_generate", "by_set", "machine", "settings")  # keys of its report


@dataclass(frozen=True, slots=True)
class DraftFolder:
    """A drafter on disk.

    Attributes:
        path: its folder.
        kind: "lm" (a language model), "dflash" (no sequential head), "dspark", or "dspark-" and the type of another
            head than the vanilla one.
    """

    path: Path
    kind: str


def find_draft_folders(model: ModelEntry | Path, draft_model: str) -> dict[str, DraftFolder]:
    """The drafters that ``draft_model`` names for ``model``, by their names in a session, in the order given.

    Args:
        model: the target; a catalogue's entry has drafters that ship for it.
        draft_model: "none", or one or several of these with commas between: "auto" (all that ship for this model), a
            name or folder name of a shipped one, a path. A shipped name wins over a folder here (write ``./lm``).

    Raises:
        ModelUnavailableError: there is none of that name.
        CheckpointError: a config is missing, broken, or of another kind.
        ParameterError: "none" together with others, or two that would have one name.
    """
    found: dict[str, DraftFolder] = {}
    for name, path in _named(model, draft_model):
        if any(path.samefile(other.path) for other in found.values()):
            continue
        folder = DraftFolder(path, _kind_of(path))
        found[_free_name([name or folder.kind, path.resolve().name], found, path)] = folder
    return found


def drafter_names(model: ModelEntry | Path, draft_model: str) -> list[str]:
    """What a request may ask for in a session of ``model`` and ``draft_model``: the default comes first.

    Raises as `find_draft_folders`.
    """
    folders = find_draft_folders(model, draft_model)
    borrowed = [] if lender_of_dflash(folders) is None else [DFLASH]
    return [*folders, *borrowed, *_BUILT_IN]


def lender_of_dflash(folders: Mapping[str, DraftFolder]) -> str | None:
    """The name of the DSpark drafter that serves as dflash with its head switched off; None where none has to."""
    if DFLASH in folders:
        return None
    return next((name for name, folder in folders.items() if folder.kind not in (LM, DFLASH)), None)


def _named(model: ModelEntry | Path, draft_model: str) -> Iterator[tuple[str | None, Path]]:
    """(name in the catalogue or None, folder) of each drafter asked for."""
    shipped = _shipped_for(model)
    parts = [part.strip() for part in draft_model.split(",")]
    if os.path.isdir(os.path.expanduser(draft_model)):  # a path may hold commas
        parts = [draft_model]
    if "none" in parts and len(parts) > 1:
        raise ParameterError(f"The draft model {shown(draft_model)} asks for none and for others. Leave one side out.")
    for part in parts:
        if part == "auto":
            yield from shipped.items()
        elif part in shipped:
            yield part, shipped[part]
        elif part != "none":
            yield None, _folder_named(part, shipped)


def _shipped_for(model: ModelEntry | Path) -> dict[str, Path]:
    drafters = model.drafters if isinstance(model, ModelEntry) else {}
    folders = {name: CHECKPOINTS / folder for name, folder in drafters.items()}
    return {name: folder for name, folder in folders.items() if (folder / "config.json").is_file()}


def _folder_named(name: str, shipped: Mapping[str, Path]) -> Path:
    folder_names = sorted(path.name for path in CHECKPOINTS.glob("*") if (path / "config.json").is_file())
    folder = CHECKPOINTS / name if name in folder_names else Path(os.path.expanduser(name))
    if not name or not os.path.isdir(folder):  # Path.is_dir raises for a name that is too long
        known = ", ".join([*shipped, *folder_names])
        raise ModelUnavailableError(
            f"There is no drafter {shown(name)}. Say 'auto', 'none', a folder with config.json and model.safetensors, "
            f"or one of the shipped ones: {known or 'none ships'}."
        )
    return folder


def _kind_of(folder: Path) -> str:
    path = folder / "config.json"
    if not path.exists():
        raise CheckpointError(
            f"{folder} holds no drafter: {path.name} is missing. Give the folder that has it and the weights."
        )
    values = read_object(path, CheckpointError, "Take it again from its source.")
    fields = Fields(values, str(path), CheckpointError, "Take it again from its source.")
    if any(name.endswith("ForCausalLM") for name in fields.texts("architectures", ())):
        return LM
    config = DraftConfig.from_dict(values)
    if not config.markov_rank:
        return DFLASH
    return "dspark" if config.markov_head_type == "vanilla" else f"dspark-{config.markov_head_type}"


def _free_name(wanted: list[str], found: Mapping[str, DraftFolder], path: Path) -> str:
    for name in wanted:
        if name not in (*found, *_BUILT_IN, *_TAKEN_IN_BENCH):
            return name
    raise ParameterError(
        f"The drafter in {path} has no name left: {' and '.join(map(shown, wanted))} are taken. Rename its folder."
    )
