"""Token ids → streamed text: whole characters only, and nothing of a stop string is ever shown."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Protocol


class TokenText(Protocol):
    """What the engine needs of a tokenizer to show tokens."""

    def token_bytes(self, token_id: int) -> bytes:
        """Exact bytes of a token; b'' for special tokens."""

    def token_text(self, token_id: int) -> str:
        """A token's own text for the screen; split characters show as U+FFFD, special tokens by name."""


class TextStream:
    """Decodes token by token; holds back split characters and whatever may become a stop string.

    Args:
        token_bytes: exact bytes of a token (b'' for special tokens).
        stop: strings that end the text just before them.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], stop: tuple[str, ...] = ()) -> None:
        self._token_bytes = token_bytes
        self._stop = stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._shown: list[str] = []
        self.stopped_by: str | None = None

    @property
    def text(self) -> str:
        """Everything given out so far."""
        return "".join(self._shown)

    def push(self, token_id: int) -> str:
        """Add a token; returns the text that is certain now ('' while it is held back)."""
        return self._release(self._decoder.decode(self._token_bytes(token_id)), final=False)

    def finish(self) -> str:
        """End of the text: returns what was held back (an unfinished character becomes U+FFFD)."""
        return self._release(self._decoder.decode(b"", final=True), final=True)

    def _release(self, new_text: str, *, final: bool) -> str:
        if self.stopped_by is not None:
            return ""
        self._held += new_text
        hits = [(at, stop) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if hits:
            cut, self.stopped_by = min(hits)
        else:
            cut = len(self._held) if final else len(self._held) - self._possible_stop_length()
        delta, self._held = self._held[:cut], self._held[cut:]
        self._shown.append(delta)
        return delta

    def _possible_stop_length(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = min(len(self._held), max((len(stop) for stop in self._stop), default=0))
        for length in range(longest, 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stop):
                return length
        return 0
