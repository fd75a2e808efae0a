"""The one session behind the page: opened in the background; what it can do is measured when the engine is idle."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dspark_core.errors import DSparkError, ParameterError
from dspark_core.events import DecodeRound, Finished
from dspark_core.params import SamplingParams, ScheduleParams
from dspark_core.telemetry import Summary, fold
from ui.ports import Opener, SessionPort

_LOG = logging.getLogger(__name__)
BASELINE_PROMPT = "Explain in a few sentences why the sky is blue."
BASELINE_WARM_UP_TOKENS = 8
BASELINE_TOKENS = 64
PROFILE_WAITS = "Step times are measured once, in an idle moment"
_IDLE_S = 1.0  # the engine is idle when nothing has run for so long: between two laps of a race nothing runs either
_IDLE_CHECK_S = 0.05
_OPENING_S = 1.0  # nothing can end an opening half-way: closing waits so long for one that is about to end
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Baseline:
    """Plain decoding, measured on this machine through the same engine.

    Attributes:
        figures: telemetry's figures of the measured run (the warm-up left out).
        clock: local time of day of the measurement, "17:02".
    """

    figures: Summary
    clock: str


@dataclass(frozen=True, slots=True)
class HostState:
    """What the page says about the session.

    Attributes:
        phase: "loading", "ready" or "failed".
        stage: what is being done, or the error.
        fraction: 0..1 of the loading.
    """

    phase: Literal["loading", "ready", "failed"]
    stage: str
    fraction: float = 0.0


class SessionHost:
    """Opens the session once, keeps it, measures plain decoding; every method is safe from any thread.

    Args:
        opener: opens the session; gets a progress callback.
        name: what is being opened, for the screen.
        profile_s: seconds in which step times are measured where none are stored, after the baseline; 0 for never.
    """

    def __init__(self, opener: Opener, name: str, profile_s: float = 0.0) -> None:
        self.name = name
        self._opener = opener
        self._wake = threading.Condition()
        self._state = HostState("loading", "starting")
        self._session: SessionPort | None = None
        self._baseline: Baseline | None = None
        self._baseline_note = "waits for the model"
        self._wanted = True  # a baseline is wanted
        self._profile_s = profile_s
        self._profile_note = ""
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin opening in the background; again after a failure; otherwise without effect."""
        with self._wake:
            if self._thread is not None and self._state.phase != "failed":
                return
            self._state = HostState("loading", "starting")
            self._thread = threading.Thread(target=self._run, name="dspark-host", daemon=True)
            self._thread.start()

    @property
    def state(self) -> HostState:
        """How far the opening is."""
        with self._wake:
            return self._state

    @property
    def session(self) -> SessionPort | None:
        """The session once it is ready."""
        with self._wake:
            return self._session

    def opened(self, then: str) -> SessionPort:
        """The session; before it is ready, ParameterError says how far it is, and ``then`` what to do."""
        session = self.session
        if session is None:
            raise ParameterError(f"The model is not ready: {self.state.stage}. {then}")
        return session

    @property
    def baseline(self) -> tuple[Baseline | None, str]:
        """The latest measurement, and what is going on about it ('' if nothing)."""
        with self._wake:
            return self._baseline, self._baseline_note

    @property
    def profile_note(self) -> str:
        """What is going on about step times that are not there yet; '' where nothing is to come."""
        with self._wake:
            return self._profile_note

    def want_baseline(self) -> None:
        """Measure again as soon as the engine is idle."""
        with self._wake:
            self._wanted = True
            if self._session is not None:
                self._baseline_note = "waits for an idle moment"
            self._wake.notify_all()

    def close(self) -> bool:
        """End the background thread and give the session back; a model that is being loaded is not waited for.

        Returns:
            Whether nothing of it runs any more. What is still being opened is given back once it is.
        """
        with self._wake:
            self._closing = True
            thread, session = self._thread, self._session
            self._session = None
            self._wake.notify_all()
        if thread is not None:
            thread.join(timeout=_OPENING_S if session is None else 30)
        if session is not None:
            session.close()
        return thread is None or not thread.is_alive()

    def _progress(self, stage: str, fraction: float) -> None:
        with self._wake:
            self._state = HostState("loading", stage, min(1.0, max(0.0, fraction)))

    def _run(self) -> None:
        try:
            session = self._opener(self._progress)
        except DSparkError as error:
            self._fail(str(error))
            return
        except Exception as error:  # the page must say it, whatever it is; the log has the traceback
            _LOG.exception("Opening the session failed.")
            self._fail(f"{type(error).__name__}: {error}. The server's log has the details.")
            return
        with self._wake:
            closed = self._closing
            self._session = None if closed else session
            self._state = HostState("ready", "ready", 1.0)
            self._baseline_note = "waits for an idle moment"
            if self._profile_s and not session.info.step_times:
                self._profile_note = PROFILE_WAITS
        if closed:
            session.close()
            return
        self._measure_when_idle(session)

    def _fail(self, message: str) -> None:
        shown = message.replace(f"{_ROOT}{os.sep}", "")  # visitors need not know where this lies on the server
        with self._wake:
            self._state = HostState("failed", shown)

    def _measure_when_idle(self, session: SessionPort) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._wanted or self._profile_note or self._closing)
                if self._closing:
                    return
                baseline = self._wanted
            if self._idle(session):
                if baseline:
                    self._try_baseline(session)
                else:
                    self._try_profile(session)

    def _idle(self, session: SessionPort) -> bool:
        """Whether nothing runs, seen again and again for `_IDLE_S`; returns as soon as something does."""
        until = time.monotonic() + _IDLE_S
        while session.engine.num_active == 0 and not self._closing:
            if time.monotonic() >= until:
                return True
            time.sleep(_IDLE_CHECK_S)
        time.sleep(_IDLE_CHECK_S)
        return False

    def _try_baseline(self, session: SessionPort) -> None:
        self._note("measuring now")
        try:
            warm = self._plain(session, BASELINE_WARM_UP_TOKENS)
            figures = None if warm is None else self._plain(session, BASELINE_TOKENS)
        except Exception as error:  # the page stands without a baseline, and says why there is none
            if not isinstance(error, DSparkError):
                _LOG.exception("Measuring plain decoding failed.")
            self._note(f"could not be measured: {error}", wanted=False)
            return
        if figures is None:
            self._note("waits for an idle moment")
            return
        with self._wake:
            self._baseline = Baseline(figures, time.strftime("%H:%M"))
            self._baseline_note = ""
            self._wanted = False

    def _try_profile(self, session: SessionPort) -> None:
        try:
            measured = session.measure_steps(self._profile_s, self._profiling)
        except Exception as error:  # the page stands without step times, and says why there are none
            if not self._closing:
                _LOG.warning("Step times could not be measured: %s", error, exc_info=not isinstance(error, DSparkError))
            measured = True
        with self._wake:
            self._profile_note = "" if measured else PROFILE_WAITS

    def _profiling(self, stage: str, _fraction: float) -> None:
        with self._wake:
            if self._closing:
                raise DSparkError("The session is being closed.")
            self._profile_note = stage

    def _note(self, note: str, *, wanted: bool = True) -> None:
        with self._wake:
            self._baseline_note = note
            self._wanted = wanted

    def _plain(self, session: SessionPort, tokens: int) -> Summary | None:
        """Figures of a plain run; None when it was cut short, or another answer ran beside it and falsified them."""
        request = session.request(
            [{"role": "user", "content": BASELINE_PROMPT}],
            SamplingParams(temperature=0.0, max_new_tokens=tokens),
            ScheduleParams("fixed", 0, 0),
            "none",
        )
        generation = session.engine.submit(request)
        events = []
        try:
            while True:
                event = generation.next_event(1.0)
                if self._closing or session.engine.num_active > 1:
                    return None
                if isinstance(event, DecodeRound):
                    events.append(event)
                elif isinstance(event, Finished):
                    if event.finish_reason == "error":
                        raise DSparkError(event.detail)
                    return None if event.finish_reason == "cancelled" else fold(events)
        finally:
            generation.cancel()
