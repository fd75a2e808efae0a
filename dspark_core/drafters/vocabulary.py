"""The draft vocabulary: the tokens a drafter proposes, where reading the whole LM head would cost more than it gives.

A checkpoint folder may hold `draft_vocabulary.json` beside the DeepSpec files: {"token_ids": [...]}. Tokens left out
are never drafted, the target still emits them: the draft law is truncated, and the very law that is drawn from is
the one that acceptance uses, so the output's law stays the target's (EAGLE-3's d2t serves the same end).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dspark_core.errors import CheckpointError
from dspark_core.files import write_json

FILE_NAME = "draft_vocabulary.json"


def read_draft_vocabulary(folder: Path, vocab_size: int) -> tuple[int, ...] | None:
    """Token ids in rising order, or None where the folder has no such file (then every token may be drafted).

    Raises:
        CheckpointError: the file is broken, or does not fit a vocabulary of ``vocab_size``.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))["token_ids"]
        valid = bool(ids) and all(type(i) is int and 0 <= i < vocab_size for i in ids) and len(set(ids)) == len(ids)
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({type(error).__name__}: {error}). Take it again from where the drafter came."
        ) from error
    if not valid:
        raise CheckpointError(
            f"{path} must list different token ids from 0 to {vocab_size - 1}. "
            "Take it again from where the drafter came, or delete it: then every token may be drafted."
        )
    return tuple(sorted(ids))


def write_draft_vocabulary(folder: Path, token_ids: Sequence[int]) -> None:
    """Write the file, whole or not at all. ResourceError when it cannot be written."""
    write_json(folder / FILE_NAME, {"token_ids": sorted(token_ids)})
