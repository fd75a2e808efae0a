"""Text on its way to a terminal. A model's text is untrusted: a terminal must not obey it."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all of C0 and C1 except tab and newline


def printable(text: str) -> str:
    """``text`` without control characters (escape sequences lose their ESC and show as plain text)."""
    return _CONTROLS.sub("", text)


def open_missing_streams() -> None:
    """Give standard streams that the caller has closed (``2>&-``) a place that takes everything and holds nothing.

    In this order they also get their own numbers back, so that no file opened later is written to by mistake.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the end


def tell(text: str) -> None:
    """Write ``text`` to stderr as it is. What is said beside the answer must never cost the answer."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def write_text(stream: TextIO, text: str) -> None:
    """Write and flush ``text``: exactly into a file or a pipe, without control characters onto a terminal."""
    stream.write(printable(text) if stream.isatty() else text)
    stream.flush()
