"""The short way in for Python: one object, `generate` a string or `stream` the events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dspark_core.errors import DSparkError
from dspark_core.events import Event, Finished
from dspark_core.loading import Session, open_session
from dspark_core.params import SamplingParams, ScheduleParams


class DSpark:
    """A target model with its drafter.

    Args:
        main_model: the target: a catalogue name, a hub id or a local folder.
        draft_model: "auto" (the drafters that ship for it), "none", a shipped name, a folder, or several with commas
            between: the first one drafts.
        max_draft_len: L_max, at most so many drafts are verified a round (more than the drafter's γ acts as γ).
        confidence_threshold: verification is cut before the first c_k below it.
        min_draft_len: L_min, so many drafts are verified whatever their confidence.
        device, dtype: as in `open_session`.

    Raises:
        DSparkError: with the way out in its message.
    """

    def __init__(
        self,
        main_model: str = "smollm2-135m",
        draft_model: str = "auto",
        max_draft_len: int = 10,
        confidence_threshold: float = 0.7,
        *,
        min_draft_len: int = 0,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        self.schedule = ScheduleParams("threshold", min_draft_len, max_draft_len, confidence_threshold)
        self.session: Session = open_session(main_model, draft_model=draft_model, device=device, dtype=dtype)

    def generate(self, prompt: str | Sequence[Mapping[str, str]], max_length: int = 1024, **sampling: Any) -> str:
        """The answer to a prompt or a list of chat messages.

        Args:
            prompt: the user's text, or messages with role and content.
            max_length: most new tokens.
            sampling: further fields of `SamplingParams` (temperature, top_p, seed, stop, …); greedy by default.

        Raises:
            DSparkError: the request is refused, or something failed before the answer was finished.
        """
        *_, last = self.stream(prompt, max_length, **sampling)
        if not isinstance(last, Finished):
            raise RuntimeError("The stream of events ended without its last one.")
        if last.finish_reason == "error":
            raise DSparkError(f"The answer was not finished: {last.detail} It had got to: {last.text!r}")
        return last.text

    def stream(
        self, prompt: str | Sequence[Mapping[str, str]], max_length: int = 1024, **sampling: Any
    ) -> Iterator[Event]:
        """The events of the answer, as they happen; arguments as `generate`."""
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        params = SamplingParams(max_new_tokens=max_length, **sampling)
        request = self.session.request(messages, params, self.schedule)
        with self.session.engine.submit(request) as generation:
            yield from generation

    def close(self) -> None:
        """Stop the engine."""
        self.session.close()

    def __enter__(self) -> DSpark:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
