"""Short texts of a stranger's file that stand inside of our own sentences: no sign in them may bend these.

A direction override turns the words that follow it around, so that "not here and now" can no longer be read; zero-width
and control characters hide, and a text of a megabyte buries what stands beside it. Texts of a model are another matter:
they are shown whole, each in a place of its own.
"""

from __future__ import annotations

LONGEST = 1000  # characters


def is_label(text: str) -> bool:
    """Whether ``text`` is short and each of its characters can be seen."""
    return len(text) <= LONGEST and all(sign.isprintable() or sign == "\n" for sign in text)


def as_label(text: str, longest: int = LONGEST) -> str:
    """``text``, cut, with a mark in place of what cannot be seen."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text[:longest])
