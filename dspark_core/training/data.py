"""Conversations that the target wrote: reading, splitting, counting."""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dspark_core.errors import ParameterError


@dataclass(frozen=True)
class Conversation:
    """Token ids of a prompt (chat template included) and of the target's own answer, drawn at `temperature`."""

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    temperature: float

    @property
    def ids(self) -> tuple[int, ...]:
        """Prompt and answer in one sequence."""
        return self.prompt_ids + self.answer_ids


def read_conversations(path: Path) -> list[Conversation]:
    """Read one `.jsonl`/`.jsonl.gz` file or all such files of a folder, in name order.

    A line is an object with `p` (prompt ids), `r` (answer ids) and `T` (temperature).
    ParameterError names the file and line that cannot be read.
    """
    files = sorted(path.glob("*.jsonl*")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise ParameterError(
            f"No conversations at {path}: give a .jsonl or .jsonl.gz file, or a folder that holds some."
        )
    return [conversation for file in files for conversation in _read_file(file)]


def _read_file(file: Path) -> list[Conversation]:
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        found = []
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                found.append(Conversation(tuple(row["p"]), tuple(row["r"]), float(row["T"])))
            except (ValueError, KeyError, TypeError) as error:
                raise ParameterError(
                    f"{file} line {number} is not a conversation with p, r and T: {error!r}."
                ) from error
    return found


def split(
    conversations: Sequence[Conversation], held_out_share: float
) -> tuple[list[Conversation], list[Conversation]]:
    """Training part and held-out part (the last lines, at least one); the order is kept."""
    if not 0 < held_out_share < 1:
        raise ParameterError(f"held_out_share is {held_out_share}; it must lie between 0 and 1.")
    held_out = max(1, round(len(conversations) * held_out_share))
    if held_out >= len(conversations):
        raise ParameterError(f"{len(conversations)} conversations are too few to hold any out; give at least two.")
    return list(conversations[:-held_out]), list(conversations[-held_out:])


def commonest_tokens(sequences: Iterable[Sequence[int]], vocab_size: int, size: int) -> list[int]:
    """The `size` most frequent token ids in rising order; ties and unseen ids go to the smaller id."""
    counts = [0] * vocab_size
    for sequence in sequences:
        for token in sequence:
            counts[token] += 1
    ranked = sorted(range(vocab_size), key=lambda token: (-counts[token], token))
    return sorted(ranked[:size])
