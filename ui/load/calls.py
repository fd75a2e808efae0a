"""The endpoint ``load``: what the tab does, for programs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

from gradio.events import api

from dspark_core.bench.prompts import DEFAULT_SETS
from dspark_core.errors import DSparkError
from ui.endpoints import MAX_CALLS, in_steps, refusal
from ui.host import SessionHost
from ui.inputs import read_drafter, read_texts
from ui.load.asked import Wanted
from ui.load.desk import MAX_RUN_S, Desk
from ui.load.watch import LOOK_S, cells_json

Report = dict[str, Any]


class LoadCalls:
    """The named function over the server's one load run, which programs and visitors share."""

    def __init__(self, host: SessionHost, desk: Desk) -> None:
        self._host = host
        self._desk = desk

    def publish(self) -> None:
        """Register it; must be called inside ``gr.Blocks``."""
        api(
            in_steps(self.load, ("running", {})),
            api_name="load",
            concurrency_limit=MAX_CALLS,
            concurrency_id="programs",
        )

    def load(
        self,
        users: int = 4,
        policy: str = "threshold",
        drafter: str = "",
        l_min: int = 0,
        l_max: int = 8,
        threshold: float = 0.6,
        temperature: float = 0.0,
        max_tokens: int = 64,
        sets: list[str] | None = None,
        seconds: float = 6.0,
    ) -> Iterator[tuple[str, Report]]:
        """Let so many virtual users ask at once, and measure for some seconds once all of them are served.

        Args:
            users: 1 to 32, as far as the last places stay free for visitors.
            policy: the schedule policy.
            drafter: one of the page's drafters ("none" is plain decoding); empty: the first one.
            l_min: verify at least so many drafts a round.
            l_max: verify at most so many.
            threshold: the policy "threshold" cuts below this confidence, 0 to 1.
            temperature: 0 (greedy) to 10.
            max_tokens: of an answer.
            sets: prompts to ask: chat, maths, code, chinese; empty: the first three.
            seconds: 2 to 60.

        Returns:
            In steps, "running" with the figures of the last five seconds, none at first (throughput,
            user_tokens_per_s, budget, batch, waiting, …); at last "done" with those of the whole window, measured, with
            95 % intervals (throughput, throughput_interval, budget, tau, wasted_share, joules_per_token (null: not
            measured here), answers, window_s, …). One load run goes on at a time, whoever asked for it. Cancelling or
            leaving ends it.
        """
        owner = f"call-{secrets.token_hex(8)}"
        try:
            session = self._host.opened("Call again when it is.")
            wanted = Wanted(
                users, read_drafter(drafter, list(session.info.drafters)), policy, l_min, l_max, threshold, temperature,
                max_tokens, read_texts("The sets", sets) or list(DEFAULT_SETS), seconds, False,
            )  # fmt: skip
            run = self._desk.begin(owner, lambda: wanted.opened(session, walking=False, timed=True))
            until = time.monotonic() + MAX_RUN_S
            while not run.over and time.monotonic() < until:
                run.poll()
                yield "running", run.moment()
                time.sleep(LOOK_S)
            self._desk.end(owner)
            cells = cells_json(run)
            if run.failure or not cells:
                raise DSparkError(
                    run.failure or "Nothing was measured: not all users were served in time. Ask for fewer."
                )
            yield "done", cells[-1]
        except Exception as error:
            raise refusal(error) from None
        finally:
            self._desk.end(owner)
