"""Errors that a user can act on. Each message says what happened, why it matters and what to do next."""

from __future__ import annotations

import reprlib

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


LONGEST_MESSAGE = 4000  # characters of an error's text


class DSparkError(Exception):
    """Base of every error meant for a user: the page and the command line print it without a traceback.

    As text it is short, whatever was entered: of a long one, its beginning and its end, where what to do stands.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) <= LONGEST_MESSAGE:
            return text
        half = LONGEST_MESSAGE // 2
        return f"{text[:half]} … {text[-half:]}"


class ParameterError(DSparkError, ValueError):
    """A value from outside is wrong or cannot be honoured exactly (it is refused by name, never dropped)."""


class ModelUnavailableError(DSparkError):
    """A model is unknown, or its files are missing, broken or cannot be fetched."""


class CheckpointError(DSparkError):
    """A drafter checkpoint has an unknown layout, a wrong shape or does not fit the target."""


class NumericsError(DSparkError, ArithmeticError):
    """A model computed values that are not finite numbers: nothing may be decided from them."""


class ResourceError(DSparkError):
    """A limit of the machine or of the engine is reached: disk, memory, device, number of requests."""


def so_many(number: int, one: str, many: str = "") -> str:
    """``number`` with its noun, and its verb if wanted: ("lane is", "lanes are"). The usual plural has an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def shown(value: object) -> str:
    """``value`` in a message: short, however long or deep it is."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no whole numbers of more than 4,300 digits
        return "a number of thousands of digits"
