"""The command ``export``: a drafter in DeepSpec's published layout in full, for engines that read those checkpoints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dspark_core.cache import ensure_model
from dspark_core.catalog import find_model
from dspark_core.draft_folders import LM, find_draft_folders
from dspark_core.errors import ParameterError
from dspark_core.fetch import ProgressBar
from dspark_core.files import check_new_folder
from dspark_core.storage import folder_size
from dspark_core.terminal import printable, tell, write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core export``."""
    parser.add_argument(
        "--model", default="smollm2-135m", help="the target: known name, folder or hub id (%(default)s)"
    )
    parser.add_argument(
        "--draft-model",
        default="auto",
        metavar="NAME",
        help="the drafter: auto (the first that ships for the model), the name of a shipped one, or a folder",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a folder that does not exist yet")


def run(options: argparse.Namespace) -> int:
    """Export; what a reader should know of it goes to stderr."""
    check_new_folder(options.out)
    source = _drafter(options)
    from dspark_core.deepspec import check_layout, write_deepspec  # torch is slow to import

    check_layout(source)  # before anything is fetched
    bar = ProgressBar()
    try:
        target = ensure_model(options.model, bar)
    finally:
        bar.close()
    for note in write_deepspec(source, target, options.out):
        tell(f"dspark: {printable(note)}\n")
    write_text(sys.stdout, f"written: {options.out} ({folder_size(options.out) / 1e6:.0f} MB)\n")
    return 0


def _drafter(options: argparse.Namespace) -> Path:
    """The folder of the one drafter that was named, or of the first of those that ship."""
    folders = find_draft_folders(find_model(options.model), options.draft_model)
    asked = f"--model {options.model}, --draft-model {options.draft_model}"
    if not folders:
        raise ParameterError(f"There is no drafter to export: {asked}. Name its folder with --draft-model.")
    if len(folders) > 1 and options.draft_model != "auto":
        raise ParameterError(f"{asked} names {len(folders)} drafters; one is exported at a time. Name one.")
    first = next(iter(folders.values()))
    if first.kind == LM:
        raise ParameterError(
            f"The drafter in {first.path} is a language model, in Hugging Face's layout already: other engines read "
            "its folder as it is."
        )
    return first.path
