"""Who has the load run: one at a time for the whole server, since the engine is shared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dspark_core.errors import ResourceError
from dspark_core.load_test.live import LiveRun

MAX_RUN_S = 600.0  # then it ends by itself: others want their turn


class Desk:
    """Hands the one run out; every method is safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: str | None = None
        self._run: LiveRun | None = None

    def begin(self, owner: str, opened: Callable[[], LiveRun]) -> LiveRun:
        """Open a run for ``owner``. Raises ResourceError while another goes on, and what ``opened`` raises."""
        with self._lock:
            if self._run is not None:
                whose = "Yours" if self._owner == owner else "Another visitor's"
                raise ResourceError(
                    f"{whose} goes on, and the engine has room for one load run at a time. "
                    f"Wait for its end: at most {MAX_RUN_S / 60:.0f} minutes from its start."
                )
            self._run, self._owner = opened(), owner
            return self._run

    def of(self, owner: str) -> LiveRun | None:
        """The run that goes on, if it is this one's."""
        with self._lock:
            return self._run if self._owner == owner else None

    def end(self, owner: str) -> None:
        """Stop the owner's run; returns when nothing of it runs any more. Without effect where there is none."""
        run = self.of(owner)
        if run is None:
            return
        run.stop()
        with self._lock:
            if self._run is run:
                self._run = self._owner = None

    def sign(self) -> dict[str, Any] | None:
        """What every visitor may know of the run that goes on."""
        with self._lock:
            return None if self._run is None else {"users": self._run.part.users}
