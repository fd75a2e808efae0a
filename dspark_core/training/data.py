"""Conversations that the target wrote: reading, splitting, counting."""

import gzip
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dspark_core.errors import ParameterError
from dspark_core.fields import LARGEST, LARGEST_NUMBER, shown

_WANTED = "Give a .jsonl or .jsonl.gz file, or a folder that holds some."
_FORM = 'A conversation is one line such as {"p": [1, 2], "r": [3, 4], "T": 0.7}: prompt, answer, temperature.'


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


def read_conversations(path: Path, vocab_size: int = LARGEST, longest: int = LARGEST) -> list[Conversation]:
    """Read one `.jsonl`/`.jsonl.gz` file or all such files of a folder, in name order (hidden files are no data).

    A line is an object with `p` (prompt ids), `r` (answer ids) and `T` (temperature), ids below `vocab_size`, prompt
    and answer together of `longest` tokens at most; other keys are ignored and blank lines skipped. ParameterError
    names the file and the line that cannot be trained on.
    """
    return [conversation for file in _data_files(path) for conversation in _read_file(file, vocab_size, longest)]


def _data_files(path: Path) -> list[Path]:
    try:
        files = sorted(filter(_is_data, path.iterdir())) if path.is_dir() else [path] if path.exists() else []
    except OSError as error:
        raise ParameterError(f"{path} cannot be read ({error.strerror or error}). {_WANTED}") from error
    if not files:
        raise ParameterError(f"No conversations at {path}. {_WANTED}")
    return files


def _is_data(file: Path) -> bool:
    return file.name.endswith((".jsonl", ".jsonl.gz")) and not file.name.startswith(".")


def _read_file(file: Path, vocab_size: int, longest: int) -> list[Conversation]:
    found, number = [], 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.isspace():
                    found.append(_conversation(line, f"{file} line {number}", vocab_size))
                    _check_length(found[-1], f"{file} line {number}", longest)
    except (OSError, EOFError, zlib.error) as error:  # a damaged archive raises any of the three
        raise ParameterError(
            f"{file} cannot be read beyond line {number} ({error}). Take the file again from its source."
        ) from error
    if not found:
        raise ParameterError(f"{file} holds no conversation. Fill it, or take it away from the data.")
    return found


def _conversation(line: bytes, where: str, vocab_size: int) -> Conversation:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else getattr(error, "msg", error)
        raise ParameterError(f"{where} is not JSON in UTF-8 ({reason}). {_FORM}") from error
    if not isinstance(row, dict):
        raise ParameterError(f"{where} holds a {type(row).__name__}, not an object. {_FORM}")
    missing = [name for name in ("p", "r", "T") if name not in row]
    if missing:
        raise ParameterError(f"{where} lacks {' and '.join(missing)}. {_FORM}")
    prompt, answer = (_ids(row[name], f"{where}: {name}", vocab_size) for name in ("p", "r"))
    temperature = row["T"]
    if type(temperature) not in (int, float) or not 0 <= temperature <= LARGEST_NUMBER:
        raise ParameterError(f"{where}: T is {shown(temperature)}; it must be a finite number, 0 or above. {_FORM}")
    return Conversation(prompt, answer, float(temperature))


def _check_length(conversation: Conversation, where: str, longest: int) -> None:
    if len(conversation.ids) > longest:
        raise ParameterError(
            f"{where} has {len(conversation.ids)} tokens, and the target's context holds {longest}, so it cannot have "
            "been written by it. Shorten the line or take it away."
        )


def _ids(value: object, where: str, vocab_size: int) -> tuple[int, ...]:
    """The ids as a tuple. Kinds and ends are looked at as a whole: data have millions of ids."""
    if not isinstance(value, list) or not value:
        raise ParameterError(f"{where} is {shown(value)}; it must be a list of at least one token id. {_FORM}")
    if set(map(type, value)) != {int}:
        odd = next(item for item in value if type(item) is not int)
        raise ParameterError(f"{where} holds {shown(odd)}, and token ids are whole numbers. {_FORM}")
    for token in (min(value), max(value)):
        if not 0 <= token < vocab_size:
            raise ParameterError(
                f"{where} holds the token id {shown(token)}, and the target's ids go from 0 to {vocab_size - 1}. "
                "Give conversations that this target's own tokenizer wrote."
            )
    return tuple(value)


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
