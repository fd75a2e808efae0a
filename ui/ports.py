"""What the page needs of a session, beyond what `dspark_core.ports` names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dspark_core.admission import Limits
from dspark_core.events import Event
from dspark_core.pace import Held
from dspark_core.params import GenerationRequest, ScheduleParams
from dspark_core.ports import Generation, Info, LoadedEngine, Session

Progress = Callable[[str, float], None]


class InfoPort(Info, Protocol):
    """What the page says about the open session."""

    @property
    def step_times(self) -> tuple[tuple[int, float], ...]:
        """The step curve: tokens in the target's pass, and its seconds; empty where there is none."""

    @property
    def max_context(self) -> int:
        """Tokens that prompt and answer may have together."""


class GenerationPort(Generation, Protocol):
    """A running answer: a stream of events that other threads may steer."""

    def update_schedule(self, schedule: ScheduleParams) -> None:
        """Use ``schedule`` from the next round on."""

    @property
    def held(self) -> Held:
        """Whether it is paused or slowed down, and why it was let go on."""

    def pause(self) -> None:
        """Take part in no further round until told so. Raises ResourceError when it was held long enough."""

    def resume(self, rounds_per_s: float | None = None) -> None:
        """Go on, at full speed or at so many rounds a second."""

    def step(self) -> None:
        """One round more, then be paused."""


class EnginePort(LoadedEngine, Protocol):
    """The engine."""

    @property
    def limits(self) -> Limits:
        """How much it takes on at once."""

    @property
    def max_tokens(self) -> int:
        """Tokens that it holds for all answers together."""

    def submit(self, request: GenerationRequest, listener: Callable[[Event], None] | None = None) -> GenerationPort:
        """Start an answer, or let it wait for its turn. Raises ResourceError when too many wait.

        A ``listener`` gets the events in the engine's own thread; the answer then has none to read.
        """


class SessionPort(Session, Protocol):
    """An open model with its engine."""

    @property
    def engine(self) -> EnginePort:
        """The engine."""

    @property
    def info(self) -> InfoPort:
        """What was opened."""

    def measure_steps(self, budget_s: float, progress: Progress) -> bool:
        """Measure what a step costs, and let all policies serve; False when a request came. Raises DSparkError."""

    def close(self) -> None:
        """Give everything back."""


Opener = Callable[[Progress], SessionPort]
