"""What a training run tells on stderr, and the compact log that ships beside a checkpoint."""

import csv
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from dspark_core.terminal import write_text
from dspark_core.training.files import keep_lines, write_whole

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


@dataclass(frozen=True)
class _Step:
    """Where a step's reports began: `done` of `wanted` at the time `began`."""

    done: int
    wanted: int
    began: float


class Reporter:
    """Writes one line a report, with the time left of the stage at its present speed."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._step: _Step | None = None

    def written(self, done: int, wanted: int) -> None:
        """Progress of the target's own writing in conversations."""
        self._write(f"self-written: {done}/{wanted} conversations{self._left(done, wanted)}")

    def cache(self, done: int, total: int) -> None:
        """Progress of the feature cache in tokens."""
        self._write(f"features: {done}/{total} tokens{self._left(done, total)}")

    def row(self, row: dict[str, Any]) -> None:
        """A row of the training log."""
        shown = ", ".join(f"{k} {v}" for k, v in row.items() if k not in _HIDDEN and not isinstance(v, dict))
        left = f", {_clock(row['left_s'])} left" if row.get("left_s") is not None else ""
        whole = "the run" if row["stage"] > 2 else f"stage {row['stage']}"
        self._write(f"{100 * row['progress']:3.0f} % of {whole}{left}: {shown}")

    def say(self, text: str) -> None:
        """Any other line."""
        self._write(text)

    def _left(self, done: int, wanted: int) -> str:
        """The time that the rest takes at the speed since this step's first report, which knows none yet."""
        now = time.monotonic()
        if self._step is None or self._step.wanted != wanted or done < self._step.done:
            self._step = _Step(done, wanted, now)
        gained = done - self._step.done
        return f", {_clock((now - self._step.began) * (wanted - done) / gained)} left" if gained else ""

    def _write(self, text: str) -> None:
        write_text(self._stream, text + "\n")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def write_compact_log(source: Path, destination: Path, *, rows: int = 300) -> None:
    """A CSV of at most about `rows` evenly spaced rows of a JSON-lines log, every validation row included.

    Lines that are damaged are left out: the weights are worth more than a row of their log. ResourceError when the
    disk refuses.
    """
    entries = list(log_rows(source))
    step = max(1, len(entries) // rows)
    kept = [e for i, e in enumerate(entries) if i % step == 0 or "greedy_tau" in e or i == len(entries) - 1]
    write_whole(destination, lambda file: _write_csv(file, kept))


def log_rows(log: Path) -> Iterable[dict[str, Any]]:
    """The rows of a JSON-lines log; damaged lines are left out, and a log that is missing has none."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return [row for row in map(_row, text.splitlines()) if row is not None]


def trim_log(log: Path, stage: int, step: int) -> None:
    """Take damaged rows out of a log, and those beyond a run's state: a run that goes on from it makes them again.

    ResourceError when the disk refuses.
    """

    def is_before(line: str) -> bool:
        row = _row(line) or {}
        at = row.get("stage"), row.get("step")
        return all(type(n) is int for n in at) and at <= (stage, step)

    keep_lines(log, is_before)


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _write_csv(destination: Path, rows: Iterable[dict[str, Any]]) -> None:
    with destination.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, extrasaction="ignore", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
