"""Who may run: limits on answers and their tokens, and a line in order of arrival in front of them. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dspark_core.errors import ParameterError, ResourceError, shown, so_many

MAX_ACTIVE = 32
MAX_WAITING = 64
MAX_WAIT_S = 300.0
MAX_HELD_S = 300.0
MAX_TOKENS = 65_536  # or the model's context, where that is more


@dataclass(frozen=True, slots=True)
class Limits:
    """What one engine takes on.

    Attributes:
        max_active: answers that run side by side, ≥ 1.
        max_waiting: further requests that wait for their turn; more are refused. 0 lets nobody wait.
        max_wait_s: seconds after which a request that still waits ends with an error.
        max_tokens: tokens of all running requests together, each counted with its prompt and all that its answer may
            have, since so much memory is held for it. None takes 65,536, or the model's context where that is more.
        max_held_s: seconds for which one answer may be held all in all (see `dspark_core.pace`).

    Raises:
        ParameterError: a value is outside its range.
    """

    max_active: int = MAX_ACTIVE
    max_waiting: int = MAX_WAITING
    max_wait_s: float = MAX_WAIT_S
    max_tokens: int | None = None
    max_held_s: float = MAX_HELD_S

    def __post_init__(self) -> None:
        for name, low in (("max_active", 1), ("max_waiting", 0), ("max_tokens", 1)):
            value = getattr(self, name)
            if value is None and name == "max_tokens":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise ParameterError(f"{name} is {shown(value)}; it must be a whole number from {low} on.")
        for name in ("max_wait_s", "max_held_s"):
            wait = getattr(self, name)
            if not isinstance(wait, (int, float)) or isinstance(wait, bool) or not wait > 0:  # NaN is not above 0
                raise ParameterError(f"{name} is {shown(wait)}; it must be a number of seconds above 0.")


class Held(Protocol):
    """A request as the line sees it."""

    @property
    def tokens(self) -> int:
        """Prompt and answer at most: what is held for it as long as it runs."""


Item = TypeVar("Item", bound=Held)


class Line(Generic[Item]):
    """First come, first served: whoever is at the head begins as soon as it fits, and nobody overtakes it.

    So a large request waits no longer than the answers before it take. Not thread-safe: the engine's lock guards it.

    Args:
        limits: how much may run and wait.
        max_context: tokens that the model takes at most.

    Attributes:
        max_tokens: tokens of all that run, together.
    """

    def __init__(self, limits: Limits, max_context: int) -> None:
        self.running: list[Item] = []  # in order of arrival, as is `waiting`
        self.waiting: list[Item] = []
        self._limits = limits
        self.max_tokens = max(MAX_TOKENS, max_context) if limits.max_tokens is None else limits.max_tokens

    def __len__(self) -> int:
        return len(self.running) + len(self.waiting)

    def join(self, item: Item) -> None:
        """Let ``item`` run at once if it can, else wait. Raises ResourceError: it can never fit, or too many wait."""
        if item.tokens > self.max_tokens:
            raise ResourceError(
                f"The request needs room for {so_many(item.tokens, 'token')} (prompt and answer), and this engine "
                f"holds {self.max_tokens} in all. Ask for fewer new tokens or shorten the prompt."
            )
        waits = bool(self.waiting) or not self._fits(item)
        if waits and len(self.waiting) >= self._limits.max_waiting:
            line = (
                f", and {so_many(len(self.waiting), 'request waits', 'requests wait')} already" if self.waiting else ""
            )
            raise ResourceError(f"{self._reason(item)}{line}: this engine takes no more now. Try again in a moment.")
        self.waiting.append(item)
        self._admit()

    def leave(self, item: Item) -> None:
        """Strike ``item`` out, wherever it is; those who fit now begin."""
        (self.running if item in self.running else self.waiting).remove(item)
        self._admit()

    @property
    def reason(self) -> str:
        """Why the one at the head of the line waits, for the screen; '' when nobody does."""
        return self._reason(self.waiting[0]) if self.waiting else ""

    def _reason(self, item: Item) -> str:
        if len(self.running) >= self._limits.max_active:
            return f"{so_many(len(self.running), 'answer is', 'answers are')} running, the most at once"
        return f"{self._held} of {self.max_tokens} tokens are taken, and the next request needs {item.tokens}"

    @property
    def _held(self) -> int:
        return sum(item.tokens for item in self.running)

    def _fits(self, item: Item) -> bool:
        return len(self.running) < self._limits.max_active and self._held + item.tokens <= self.max_tokens

    def _admit(self) -> None:
        while self.waiting and self._fits(self.waiting[0]):
            self.running.append(self.waiting.pop(0))
