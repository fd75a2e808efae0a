"""Recorded traces: a header and an answer's events as JSON lines, and back, checked: a file may be anybody's.

The header is the first line and tells where, when and how the events were made. Older files have none.
"""

from __future__ import annotations

import gzip
import json
import math
import platform
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from dspark_core import __version__
from dspark_core.errors import ParameterError
from dspark_core.event_json import from_line, to_line
from dspark_core.events import Event
from dspark_core.files import write_whole
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.ports import Origin
from dspark_core.typed_json import decode

HEADER = "header"
_WAY_OUT = " Load a file as Rounds saves it, unchanged."


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation that was answered."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Bias:
    """A token's entry of ``logit_bias``; None bans it (JSON has no infinity)."""

    id: int
    bias: float | None


@dataclass(frozen=True, slots=True)
class Header:
    """Where, when and how a trace was made.

    Attributes:
        kind: "recorded": its figures were measured then and there, not where it is read.
        model, device, dtype: the target, the machine, ready for the screen, and the weights' number format.
        drafter: the drafter asked for at the start.
        schedule: the schedule at the start; each round tells its own.
        sampling: the law of the tokens, without its ``logit_bias``.
        logit_bias: that.
        messages: the conversation; the last message is what is answered.
        date: when the recording began, ISO 8601 with its offset.
        versions: of this project and of what computed, for the screen.
    """

    kind: Literal["recorded"]
    model: str
    device: str
    dtype: str
    drafter: str
    schedule: ScheduleParams
    sampling: SamplingParams
    messages: tuple[Message, ...]
    date: str
    versions: str
    logit_bias: tuple[Bias, ...] = field(default=(), metadata={"may_be_absent": True})
    type: Literal["header"] = "header"

    def __post_init__(self) -> None:
        try:
            datetime.fromisoformat(self.date)
        except ValueError as error:
            raise ParameterError(f"header.date is {self.date!r:.60}; it must be a date as 2026-11-30.") from error

    @property
    def day(self) -> str:
        """The date without the time, as 2026-11-30."""
        return self.date[:10]


@dataclass(frozen=True, slots=True)
class Recording:
    """What a file holds: events in order, and its header if it has one."""

    header: Header | None
    events: tuple[Event, ...]


def header_of(info: Origin, request: GenerationRequest, messages: Sequence[Mapping[str, str]]) -> Header:
    """The header of an answer that begins now."""
    sampling = request.sampling
    return Header(
        kind="recorded",
        model=info.model,
        device=info.device_label,
        dtype=info.dtype,
        drafter=request.drafter,
        schedule=request.schedule,
        sampling=replace(sampling, logit_bias=()),
        messages=tuple(Message(_role(said["role"]), said["content"]) for said in messages),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions=_versions(),
        logit_bias=tuple(Bias(i, None if bias == -math.inf else bias) for i, bias in sampling.logit_bias),
    )


def _role(name: str) -> Literal["system", "user", "assistant"]:
    role: Literal["system", "user", "assistant"] = decode(Literal["system", "user", "assistant"], name, "role")
    return role


def _versions() -> str:
    try:
        torch = f"torch {version('torch')}, "
    except PackageNotFoundError:
        torch = ""
    return f"DSpark Playground {__version__}, {torch}Python {platform.python_version()}"


def lines(events: Iterable[Event], header: Header | None = None) -> Iterator[str]:
    """The file's lines, each with its end: pure ASCII JSON."""
    if header is not None:
        yield json.dumps({"type": header.type, **_plain(header)}, allow_nan=False) + "\n"
    for event in events:
        yield to_line(event) + "\n"


def _plain(header: Header) -> dict[str, Any]:
    data = asdict(header)
    del data["sampling"]["logit_bias"]
    return data


def parse(source: Iterable[str | bytes], name: str) -> Recording:
    """The recording that ``source``, the lines of a file called ``name``, holds. Empty lines are allowed.

    Raises:
        ParameterError: a line is not an event, or a header that is not the first line; the message names the line.
    """
    header: Header | None = None
    events: list[Event] = []
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            if not events and header is None and (header := _header_from(line)) is not None:
                continue
            events.append(from_line(line))
        except ParameterError as error:
            raise ParameterError(f"Line {number} of {name} is not a recorded event: {error}{_WAY_OUT}") from error
    return Recording(header, tuple(events))


def _header_from(line: str | bytes) -> Header | None:
    """The header, or None where the line is something else."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None  # `from_line` says so
    if not isinstance(data, dict) or data.get("type") != HEADER:
        return None
    header: Header = decode(Header, data, HEADER)
    return header


def write(recording: Recording, path: Path) -> None:
    """Write the file, whole or not at all; gzip-compressed where its name ends in ``.gz``. ResourceError."""
    text = "".join(lines(recording.events, recording.header)).encode("ascii")
    data = gzip.compress(text, mtime=0) if path.suffix == ".gz" else text
    write_whole(path, lambda unfinished: unfinished.write_bytes(data))


def read(path: Path) -> Recording:
    """The recording in a file, which may be gzip-compressed.

    Raises:
        ParameterError: as `parse`, and for a compressed file that is damaged.
        OSError: the file cannot be read.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            return parse(file, str(path))
    except (zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise ParameterError(f"{path} is damaged or no gzip file ({error}).{_WAY_OUT}") from error


def file_name(header: Header) -> str:
    """A name for the file that is safe everywhere: letters, digits, dots and dashes."""
    words = f"dspark-{header.model}-{header.drafter}-{header.schedule.policy}-{header.date[:19]}".lower()
    return re.sub(r"[^a-z0-9.]+", "-", words).strip("-.")[:120] + ".jsonl"
