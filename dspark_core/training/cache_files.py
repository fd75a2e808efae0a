"""What the files of a feature cache say of themselves, checked before anything is read or written by it."""

from pathlib import Path
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.fields import Fields, read_object, shown

FORMAT = 1
PARTS = ("train", "validation")
_MOST_TOKENS = 10**12
_WAY_OUT = "Delete this folder, then its features are computed anew."


def read_index(folder: Path) -> dict[str, Any]:
    """`index.json` with every key in its place: sequences lie one behind the other and fill all `tokens` rows.

    ParameterError when it is missing, broken or tells something that no cache holds.
    """
    file = folder / "index.json"
    index = _read(file)
    fields = Fields(index, str(file), ParameterError, _WAY_OUT)
    fields.whole("format", FORMAT, FORMAT)
    fields.whole("hidden_size")
    if not fields.wholes("taps"):
        raise fields.refusal("taps", "must hold at least one layer")
    sequences = index.get("sequences")
    if not isinstance(sequences, list) or not sequences:
        raise fields.refusal("sequences", "must be a list of at least one sequence")
    end = 0
    for sequence in sequences:
        if not _is_sequence(sequence, end):
            raise ParameterError(f"{file} holds a sequence that cannot be: {shown(sequence)}. {_WAY_OUT}")
        end += sequence["length"]
    if fields.whole("tokens", 1, _MOST_TOKENS) != end:
        raise fields.refusal("tokens", f"must be the {end} of its sequences")
    return index


def _is_sequence(value: object, start: int) -> bool:
    """Does `value` begin at row `start`, with a prompt and an answer?"""
    if not isinstance(value, dict) or value.keys() != {"start", "length", "prompt_length", "temperature", "split"}:
        return False
    counts = [value[name] for name in ("start", "length", "prompt_length")]
    if any(type(count) is not int for count in counts) or type(value["temperature"]) not in (int, float):
        return False
    return counts[0] == start and 0 < counts[2] < counts[1] and value["temperature"] >= 0 and value["split"] in PARTS


def read_progress(folder: Path, total: int) -> int:
    """Sequences finished, of `total`. ParameterError when `progress.json` is missing or tells anything else."""
    file = folder / "progress.json"
    return Fields(_read(file), str(file), ParameterError, _WAY_OUT).whole("sequences_done", 0, total)


def check_size(file: Path, wanted: int) -> None:
    """ParameterError unless `file` has `wanted` bytes: a map would lengthen a short file without a word."""
    try:
        found = file.stat().st_size
    except OSError as error:
        raise ParameterError(f"{file} cannot be read ({error.strerror or error}). {_WAY_OUT}") from error
    if found != wanted:
        raise ParameterError(
            f"{file} has {found} bytes, and the cache's index asks for {wanted}: it was cut, or belongs to another "
            f"cache. {_WAY_OUT}"
        )


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise ParameterError(f"{file} does not exist, so its folder is no feature cache. {_WAY_OUT}")
    return read_object(file, ParameterError, _WAY_OUT)
