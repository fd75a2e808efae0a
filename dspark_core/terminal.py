"""Text on its way to a terminal. A model's text is untrusted: a terminal must not obey it."""

from __future__ import annotations

import re
from typing import TextIO

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all of C0 and C1 except tab and newline


def printable(text: str) -> str:
    """``text`` without control characters (escape sequences lose their ESC and show as plain text)."""
    return _CONTROLS.sub("", text)


def write_text(stream: TextIO, text: str) -> None:
    """Write and flush ``text``: exactly into a file or a pipe, without control characters onto a terminal."""
    stream.write(printable(text) if stream.isatty() else text)
    stream.flush()
