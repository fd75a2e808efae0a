"""What a training run tells on stderr, and the compact log that ships beside a checkpoint."""

import csv
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

_HIDDEN = ("planned", "rate", "progress", "left_s")
_COLUMNS = (
    "stage",
    "anchors",
    "elapsed_s",
    "loss",
    "cosine",
    "ce",
    "tv",
    "confidence",
    "accept",
    "greedy_tau",
    "law_tau",
    "law_acceptance",
)


class Reporter:
    """Writes one line a report, with the time left of the stage at its present speed."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._started = time.monotonic()

    def written(self, done: int, wanted: int) -> None:
        """Progress of the target's own writing in conversations."""
        self._write(f"self-written: {done}/{wanted} conversations")

    def cache(self, done: int, total: int) -> None:
        """Progress of the feature cache in tokens."""
        left = (time.monotonic() - self._started) * (total - done) / max(1, done)
        self._write(f"features: {done}/{total} tokens, {_clock(left)} left")

    def row(self, row: dict[str, Any]) -> None:
        """A row of the training log."""
        shown = ", ".join(f"{k} {v}" for k, v in row.items() if k not in _HIDDEN and not isinstance(v, dict))
        left = f", {_clock(row['left_s'])} left" if row.get("left_s") is not None else ""
        self._write(f"{100 * row['progress']:3.0f} % of stage {row['stage']}{left}: {shown}")

    def say(self, text: str) -> None:
        """Any other line."""
        self._write(text)

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def write_compact_log(source: Path, destination: Path, *, rows: int = 300) -> None:
    """A CSV of at most about `rows` evenly spaced rows of a JSON-lines log, every validation row included.

    Lines that are damaged are left out: the weights are worth more than a row of their log.
    """
    entries = list(log_rows(source))
    step = max(1, len(entries) // rows)
    kept = [e for i, e in enumerate(entries) if i % step == 0 or "greedy_tau" in e or i == len(entries) - 1]
    _write_csv(destination, kept)


def log_rows(log: Path) -> Iterable[dict[str, Any]]:
    """The rows of a JSON-lines log; damaged lines are left out."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _write_csv(destination: Path, rows: Iterable[dict[str, Any]]) -> None:
    with destination.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, extrasaction="ignore", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
