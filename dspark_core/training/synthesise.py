"""Self-written conversations on disk: small parts, each whole or absent, so that a killed run goes on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from dspark_core.training.data import Conversation, read_conversations
from dspark_core.training.files import held, make_folder, write_whole

PART = 100  # conversations; about half a minute to two minutes of writing


def synthesise(
    folder: Path,
    count: int,
    write: Callable[[int], Iterator[Conversation]],
    *,
    seed: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> int:
    """Fill `folder` with parts of this seed until they hold `count` conversations; returns how many they hold.

    `write(seed)` starts an endless writer; a run that goes on gives it another seed than any run before it, so that
    nothing is written twice. `report(done, count)` is called after each part.
    """
    make_folder(folder)
    with held(folder / f".self-{seed}.lock"):
        return _fill(folder, count, write, seed, report)


def _fill(
    folder: Path,
    count: int,
    write: Callable[[int], Iterator[Conversation]],
    seed: int,
    report: Callable[[int, int], None] | None,
) -> int:
    parts = sorted(folder.glob(f"self-{seed}-*.jsonl.gz"))
    done = sum(len(read_conversations(part)) for part in parts)
    number = 1 + max((int(part.name.split("-")[-1].split(".")[0]) for part in parts), default=0)
    if done >= count:
        return done
    conversations = write(seed * 100_000 + number)
    while done < count:
        part = [next(conversations) for _ in range(min(PART, count - done))]
        write_conversations(folder / f"self-{seed}-{number:05d}.jsonl.gz", part)
        done, number = done + len(part), number + 1
        if report is not None:
            report(done, count)
    return done


def write_conversations(file: Path, conversations: list[Conversation]) -> None:
    """One `.jsonl.gz` file in the form that `read_conversations` reads, whole or not at all."""
    rows = [{"p": c.prompt_ids, "r": c.answer_ids, "T": c.temperature} for c in conversations]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    write_whole(file, lambda path: path.write_bytes(gzip.compress(text.encode(), mtime=0)))
