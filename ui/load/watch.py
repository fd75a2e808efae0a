"""Watching a load run: a generator of the messages for its panel, at most four a second."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

from dspark_core.cost import ARTICLE_GAINS
from dspark_core.load_test.live import LiveRun
from ui.load.desk import MAX_RUN_S
from ui.ports import SessionPort
from ui.trace import to_json

LOOK_S = 0.25
OVERLAP = 8  # a browser tab may coalesce messages: each repeats the last moments

_CELL = (
    "users", "lane", "throughput", "throughput_interval", "user_tokens_per_s", "user_tokens_per_s_interval", "budget",
    "budget_interval", "tau", "wasted_share", "wasted_per_token", "first_token_s", "batch", "pass_tokens", "pass_s",
    "joules_per_token", "answers", "window_s", "over",
)  # fmt: skip


class Watch:
    """Writes a run's messages.

    Args:
        run: the run.
        session: whose engine it is on.
        walking: whether it is a walk.
        tokens: of one answer, at most.
    """

    def __init__(self, run: LiveRun, session: SessionPort, *, walking: bool, tokens: int) -> None:
        self._run = run
        self._session = session
        self._walking = walking
        self._tokens = tokens
        self._id = secrets.token_hex(4)
        self._seq = 0
        self._moments: list[dict[str, Any]] = []

    def messages(self) -> Iterator[str]:
        """Until the run is over, or has lasted as long as one may."""
        until = time.monotonic() + MAX_RUN_S
        while not self._run.over and time.monotonic() < until:
            self._run.poll()
            moment = self._moment()
            if self._run.over:
                return  # it was stopped meanwhile: nobody asks, and the last seconds' figures are no longer the users'
            self._moments = [*self._moments[-OVERLAP + 1 :], moment]
            yield self._message("running")
            time.sleep(LOOK_S)

    def ending(self, *, stopped: bool) -> str:
        """The last message, when nothing runs any more."""
        if self._run.failure:
            return self._message("failed")
        return self._message("stopped" if stopped else "done")

    def _moment(self) -> dict[str, Any]:
        beside = max(0, self._session.engine.num_active - self._run.size)
        self._seq += 1
        return {"i": self._seq, **self._run.moment(), "beside": beside}

    def _message(self, state: str) -> str:
        place, parts = self._run.place
        return to_json(
            {
                "kind": "load",
                "run": self._id,
                "seq": self._seq,
                "state": state,
                "failure": self._run.failure,
                "walking": self._walking,
                "place": [place, parts],
                "lane": self._run.part.lane.name,
                "users": self._run.part.users,
                "tokens": self._tokens,
                "moments": self._moments,
                "cells": cells_json(self._run),
            }
        )


def cells_json(run: LiveRun) -> list[dict[str, Any]]:
    """What was measured so far, by users and lane."""
    return [{name: cell[name] for name in _CELL} for cell in run.figures()]


def machine_json(session: SessionPort) -> dict[str, Any]:
    """What the panel shows before any run: the step curve of this machine, and the article's table."""
    return {
        "kind": "load_machine",
        "curve": [list(pair) for pair in session.info.step_times],
        "curve_note": session.info.step_curve,
        "published": [list(gain) for gain in ARTICLE_GAINS],
        "energy_note": session.engine.load().note,
    }
