"""Recorded answers: those that ship with the page, those that visitors load, and the saving of one's own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dspark_core.errors import DSparkError, ParameterError
from dspark_core.events import DecodeRound, Finished
from dspark_core.recording import Recording, file_name, lines, parse, read
from dspark_core.trace_check import check_answer
from ui.trace import Trace, figures_json, to_json

TRACES = Path(__file__).parent / "traces"
SHIPPED = {
    "code": "Code, policy threshold: what was cut is shown too",
    "maths": "Maths at temperature 1, threshold 0.6",
    "chat": "Chat, always 4 verified",
    "prefix": "Story, policy prefix: lengths by expected tokens a second",
}  # file in `TRACES` → its name on the page
MAX_BYTES = 20_000_000  # of a trace that is loaded: more than any answer of 2,048 tokens with its laws takes
_BREATH_BYTES = 32_000  # checking pauses after so many bytes: the engine needs the interpreter too
_BREATH_S = 0.002


def recorded_json(recording: Recording, name: str) -> dict[str, Any]:
    """What the page needs to show a recording as an answer. Raises ParameterError where it is not one whole answer."""
    header = check_answer(recording, name)
    trace = Trace(f"recorded-{secrets.token_hex(6)}")
    after = []
    for event in recording.events:
        trace.add(event)
        if isinstance(event, DecodeRound):
            after.append(list(figures_json(trace.figures).values()))
    said = [[message.role, message.content] for message in header.messages if message.role != "system"]
    end = recording.events[-1]
    text = end.text if isinstance(end, Finished) else ""
    return {
        "answer": trace.body(),
        "after": after,  # the figures after each round, in the order of the answer's own
        "turns": said,
        "text": text,
        "device": header.device,
        "date": header.day,
        "model": header.model,
        "dtype": header.dtype,
        "versions": header.versions,
        "temperature": header.sampling.temperature,
    }


@cache
def shipped_json(key: str) -> dict[str, Any]:
    """The message body of a trace that ships, made once. Raises ParameterError for a name that is none of them."""
    if key not in SHIPPED:
        raise ParameterError(f"There is no recorded answer {key!r:.40} here. Choose one of: {', '.join(SHIPPED)}.")
    return recorded_json(read(TRACES / f"{key}.jsonl.gz"), f"{key}.jsonl.gz")


def loaded_json(text: object, name: object) -> dict[str, Any]:
    """The message body of a trace that a visitor brings. Raises ParameterError where it is none, or too large."""
    if not isinstance(text, str) or not isinstance(name, str):
        raise ParameterError("A trace must be a text file with JSON lines. Load a file that Rounds has saved.")
    shown = f"{name!r:.80}"
    if len(text) > MAX_BYTES:
        raise ParameterError(
            f"{shown} has {len(text):,} characters; at most {MAX_BYTES:,} are read. Save a shorter answer, or one "
            "without its laws."
        )
    return recorded_json(parse(_slowly(text), shown), shown)


def _slowly(text: str) -> Iterator[str]:
    """The lines, with a rest now and then."""
    read_since = 0
    for line in text.splitlines() if "\r" in text else text.split("\n"):
        read_since += len(line)
        if read_since > _BREATH_BYTES:
            read_since = 0
            time.sleep(_BREATH_S)
        yield line


def saved_json(recording: Recording) -> dict[str, Any]:
    """The file that the browser shall save. Raises ParameterError while the answer runs."""
    if recording.header is None or not recording.events or not isinstance(recording.events[-1], Finished):
        raise ParameterError("The answer still runs. Save it when it has ended, or stop it first.")
    return {"name": file_name(recording.header), "text": "".join(lines(recording.events, recording.header))}


def message(kind: str, **body: Any) -> str:
    """A message for the page's store; no two are equal, so that each arrives."""
    return to_json({"kind": kind, "id": secrets.token_hex(4), **body})


def failure(error: DSparkError) -> str:
    """An error for the panel of recorded answers."""
    return message("recorded-error", text=str(error))
