"""What the page needs of a session: the surface of `dspark_core.loading.Session`, without importing torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dspark_core.admission import Limits
from dspark_core.events import Event, LoadSample
from dspark_core.pace import Held
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams

Progress = Callable[[str, float], None]


class InfoPort(Protocol):
    """What the page says about the open session."""

    @property
    def model(self) -> str:
        """Name of the target."""

    @property
    def device_label(self) -> str:
        """Where it runs, ready for the screen."""

    @property
    def dtype(self) -> str:
        """Number format of the weights."""

    @property
    def num_draft_tokens(self) -> int:
        """γ of the session's drafter."""

    @property
    def drafters(self) -> Mapping[str, str]:
        """Drafter names, each with a note ('' if there is nothing to say)."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the schedule policies."""

    @property
    def step_curve(self) -> str:
        """Where the step times come from, or why there are none; some policies need them."""

    @property
    def step_times(self) -> tuple[tuple[int, float], ...]:
        """The step curve: tokens in the target's pass, and its seconds; empty where there is none."""

    @property
    def max_context(self) -> int:
        """Tokens that prompt and answer may have together."""


class GenerationPort(Protocol):
    """A running answer: a stream of events that other threads may steer."""

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event, or None after ``timeout_s`` seconds without one."""

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

    def cancel(self) -> None:
        """End the answer after the round in progress."""


class EnginePort(Protocol):
    """The engine."""

    def load(self) -> LoadSample:
        """How busy hardware and engine are, at once."""

    @property
    def num_active(self) -> int:
        """Requests that run or wait."""

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


class SessionPort(Protocol):
    """An open model with its engine."""

    @property
    def engine(self) -> EnginePort:
        """The engine."""

    @property
    def info(self) -> InfoPort:
        """What was opened."""

    def request(
        self,
        messages: Sequence[dict[str, str]],
        sampling: SamplingParams,
        schedule: ScheduleParams,
        drafter: str,
    ) -> GenerationRequest:
        """The request for a conversation. Raises ParameterError."""

    def close(self) -> None:
        """Give everything back."""


Opener = Callable[[Progress], SessionPort]
