"""Feature cache: what the target says about every token of the data, written once, read as memory-mapped bfloat16.

Files of a cache folder: `index.json` (taps, hidden size, sequences in training order), `tokens.bin` (int32 ids),
`features.bin` (bfloat16 rows [tokens, (m+1)·H]: the m tapped layers, then the final hidden state after the last norm),
`progress.json` (sequences finished; a killed run goes on from there).
"""

import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from dspark_core.errors import ParameterError, ResourceError
from dspark_core.modules.copy_head import LONGEST
from dspark_core.suffix_index import followers
from dspark_core.training.cache_files import FORMAT, PARTS, check_size, read_index, read_progress
from dspark_core.training.data import Conversation
from dspark_core.training.files import make_folder, write_json, write_whole

_CHUNK = 64  # sequences between two progress marks
_SPARE_BYTES = 1 << 30


class FeatureSource(Protocol):
    """The frozen target as the cache needs it."""

    def __call__(self, texts: Sequence[Sequence[int]]) -> list[tuple[Tensor, Tensor]]:
        """For each text: tapped layers [T, m·H] and the final hidden state after the last norm [T, H]."""
        ...


@dataclass(frozen=True)
class CachedSequence:
    """Where a conversation lies: first row, number of tokens, tokens of its prompt, and which part it belongs to."""

    start: int
    length: int
    prompt_length: int
    temperature: float
    split: str


class FeatureCache:
    """Read access to a cache folder; sequences not finished yet are left out. ParameterError when a file is broken."""

    def __init__(self, folder: Path) -> None:
        index = read_index(folder)
        self.folder = folder
        self.taps: tuple[int, ...] = tuple(index["taps"])
        self.hidden_size: int = index["hidden_size"]
        self.total = len(index["sequences"])
        self._sequences = [
            CachedSequence(s["start"], s["length"], s["prompt_length"], s["temperature"], s["split"])
            for s in index["sequences"]
        ]
        self._matches: dict[int, Tensor] = {}
        width = (len(self.taps) + 1) * self.hidden_size
        rows = index["tokens"]
        _check_sizes(folder, rows, width)
        self._tokens = _map(folder / "tokens.bin", np.int32, "r", (rows,))
        self._features = _map(folder / "features.bin", np.uint16, "r", (rows, width))
        self.refresh()

    def refresh(self) -> int:
        """Look again how many sequences are finished; returns that number."""
        self.ready = read_progress(self.folder, self.total)
        return self.ready

    def sequences(self, part: str) -> list[CachedSequence]:
        """Finished sequences of `part` ("train" or "validation"), in training order."""
        return [s for s in self._sequences[: self.ready] if s.split == part]

    def tokens(self, sequence: CachedSequence) -> Tensor:
        """Token ids [n], int64."""
        return torch.from_numpy(self._tokens[sequence.start : sequence.start + sequence.length].astype(np.int64))

    def matches(self, sequence: CachedSequence) -> Tensor:
        """Of each token, how long a match of the text before it was and what that foretold: [2, n], int64."""
        found = self._matches.get(sequence.start)
        if found is None:
            pairs = followers(self.tokens(sequence).tolist(), LONGEST)
            found = self._matches[sequence.start] = torch.tensor(pairs, dtype=torch.int32).T
        return found.long()

    def rows(self, sequence: CachedSequence, first: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        """Tapped features [n, m·H] and final hidden states [n, H] of tokens first..stop-1, bfloat16."""
        stop = sequence.length if stop is None else stop
        block = np.array(self._features[sequence.start + first : sequence.start + stop])
        both = torch.from_numpy(block.view(np.int16)).view(torch.bfloat16)
        width = len(self.taps) * self.hidden_size
        return both[:, :width], both[:, width:]


def cache_bytes(tokens: int, taps: int, hidden_size: int) -> int:
    """Size of a cache of that many tokens, told before anything is written."""
    return tokens * ((taps + 1) * hidden_size * 2 + 4)


def build_cache(
    folder: Path,
    source: FeatureSource,
    taps: Sequence[int],
    hidden_size: int,
    train: Sequence[Conversation],
    held_out: Sequence[Conversation],
    *,
    seed: int = 0,
    batch: int = 8,
    report: Callable[[int, int], None] | None = None,
) -> FeatureCache:
    """Run the target over all conversations once; an unfinished cache of the same data is continued.

    `report(done_tokens, all_tokens)` is called after every chunk. ResourceError when the disk is too small,
    ParameterError when the folder holds a cache of other data, or a broken one.
    """
    if hidden_size < 1 or not taps or not (train or held_out):
        raise ParameterError("A feature cache needs a hidden size, at least one tapped layer and one conversation.")
    make_folder(folder)
    order = list(train)
    random.Random(seed).shuffle(order)
    parts = [(c, PARTS[0]) for c in order] + [(c, PARTS[1]) for c in held_out]
    sequences, rows = _layout(parts)
    index = {
        "format": FORMAT,
        "taps": list(taps),
        "hidden_size": hidden_size,
        "tokens": rows,
        "sequences": [asdict(s) for s in sequences],
    }
    width = (len(taps) + 1) * hidden_size
    done = _prepare(folder, index, [c for c, _ in parts], cache_bytes(rows, len(taps), hidden_size))
    features = _map(folder / "features.bin", np.uint16, "r+", (rows, width))
    while done < len(sequences):
        chunk = list(range(done, min(done + _CHUNK, len(sequences))))
        chunk.sort(key=lambda i: sequences[i].length)  # similar lengths together: little padding
        for first in range(0, len(chunk), batch):
            _write_batch(features, source, [(sequences[i], parts[i][0]) for i in chunk[first : first + batch]])
        features.flush()
        done += len(chunk)
        write_json(folder / "progress.json", {"sequences_done": done})
        if report is not None:
            report(sequences[done - 1].start + sequences[done - 1].length, rows)
    return FeatureCache(folder)


def _layout(parts: Sequence[tuple[Conversation, str]]) -> tuple[list[CachedSequence], int]:
    sequences, start = [], 0
    for conversation, part in parts:
        length = len(conversation.ids)
        sequences.append(CachedSequence(start, length, len(conversation.prompt_ids), conversation.temperature, part))
        start += length
    return sequences, start


def _prepare(folder: Path, index: dict[str, Any], conversations: Sequence[Conversation], size: int) -> int:
    """Create the files, or check that they are of the same data; returns the number of finished sequences."""
    ids = np.concatenate([np.array(c.ids, dtype=np.int32) for c in conversations])
    width = (len(index["taps"]) + 1) * index["hidden_size"]
    if (folder / "progress.json").exists():
        same = read_index(folder) == index
        if same:
            _check_sizes(folder, len(ids), width)
        if not same or not np.array_equal(_map(folder / "tokens.bin", np.int32, "r", ids.shape), ids):
            raise ParameterError(f"{folder} holds a cache of other data or taps; give another folder or delete it.")
        return read_progress(folder, len(conversations))
    free = shutil.disk_usage(folder).free
    if free < size + _SPARE_BYTES:
        raise ResourceError(
            f"The feature cache needs {size / 1e9:.1f} GB (and 1 GB to spare), {folder} has {free / 1e9:.1f} GB free. "
            "Give another folder or fewer conversations."
        )
    write_whole(folder / "tokens.bin", ids.tofile)
    _reserve(folder / "features.bin", index["tokens"] * width * 2)
    write_json(folder / "index.json", index)
    write_json(folder / "progress.json", {"sequences_done": 0})
    return 0


def _reserve(file: Path, size: int) -> None:
    """A file of that many bytes with its place on the disk taken: writing into a map of it cannot fail any more."""
    try:
        with file.open("wb") as opened:
            if hasattr(os, "posix_fallocate") and size:
                os.posix_fallocate(opened.fileno(), 0, size)
            else:
                opened.truncate(size)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise ResourceError(
            f"{file} cannot be given its {size / 1e9:.2f} GB ({error.strerror or error}). Free some space or give "
            "another folder."
        ) from error


def _map(file: Path, dtype: type[Any], mode: Literal["r", "r+"], shape: tuple[int, ...]) -> Any:
    """The file as an array. ResourceError when the disk refuses."""
    try:
        return np.memmap(file, dtype=dtype, mode=mode, shape=shape)
    except OSError as error:
        raise ResourceError(
            f"{file} cannot be opened ({error.strerror or error}). Free some space, allow the access, or give another "
            "folder."
        ) from error


def _check_sizes(folder: Path, rows: int, width: int) -> None:
    check_size(folder / "tokens.bin", rows * 4)
    check_size(folder / "features.bin", rows * width * 2)


@torch.inference_mode()
def _write_batch(
    features: "np.memmap[Any, np.dtype[np.uint16]]",
    source: FeatureSource,
    batch: Sequence[tuple[CachedSequence, Conversation]],
) -> None:
    told = source([conversation.ids for _, conversation in batch])
    for (sequence, _), (taps, final) in zip(batch, told, strict=True):
        block = torch.cat((taps, final), dim=-1).to("cpu", torch.bfloat16).contiguous()
        rows = block.view(torch.int16).numpy().view(np.uint16)
        features[sequence.start : sequence.start + sequence.length] = rows
