"""What parts of the program need of an open session: slices of `dspark_core.loading.Session`, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dspark_core.events import Event, LoadSample
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams


class Generation(Protocol):
    """A running answer."""

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event, or None after ``timeout_s`` seconds without one."""

    def cancel(self) -> None:
        """End the answer after the round in progress."""


class Engine(Protocol):
    """The engine."""

    @property
    def num_active(self) -> int:
        """Requests that run or wait."""

    def submit(self, request: GenerationRequest) -> Generation:
        """Start an answer, or let it wait for its turn. Raises ResourceError when too many wait."""


class LoadedEngine(Engine, Protocol):
    """An engine that also tells how busy it and the hardware are."""

    def load(self) -> LoadSample:
        """How busy hardware and engine are, at once."""


class Origin(Protocol):
    """Where figures come from."""

    @property
    def model(self) -> str:
        """Name of the target."""

    @property
    def device_label(self) -> str:
        """Where it runs, ready for the screen."""

    @property
    def dtype(self) -> str:
        """Number format of the weights."""


class Info(Origin, Protocol):
    """What is open."""

    @property
    def num_draft_tokens(self) -> int:
        """The largest γ of the drafters."""

    @property
    def drafters(self) -> Mapping[str, str]:
        """Drafter names, the default first, each with a note ('' if there is nothing to say)."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies that can serve here."""

    @property
    def step_curve(self) -> str:
        """Where the step times come from, or why there are none; some policies need them."""


class Session(Protocol):
    """An open model with its engine."""

    @property
    def engine(self) -> Engine:
        """The engine."""

    @property
    def info(self) -> Info:
        """What was opened."""

    def request(
        self, messages: Sequence[dict[str, str]], sampling: SamplingParams, schedule: ScheduleParams, drafter: str
    ) -> GenerationRequest:
        """The request for a conversation. Raises ParameterError for what cannot be honoured."""
