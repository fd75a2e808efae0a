"""The endpoint ``sweep``: what the tab does, for programs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from gradio.events import api

from dspark_core.bench.prompts import DEFAULT_SETS
from dspark_core.errors import DSparkError
from ui.endpoints import MAX_CALLS, STEP_S, in_steps, refusal
from ui.explore.asked import MAX_PROMPTS, MAX_REPEATS, MAX_TOKENS, asked_of, built_in, own_prompts
from ui.explore.desk import Desk
from ui.inputs import read_between, read_texts

Report = dict[str, Any]


class SweepCalls:
    """The named function over the page's sweeps; one runs at a time, whoever asked for it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def publish(self) -> None:
        """Register it; must be called inside ``gr.Blocks``."""
        api(
            in_steps(self.sweep, ("waiting", {})),
            api_name="sweep",
            concurrency_limit=MAX_CALLS,
            concurrency_id="programs",
        )

    def sweep(
        self,
        axes: dict[str, str],
        prompts: list[str] | None = None,
        sets: list[str] | None = None,
        limit: int = 2,
        max_tokens: int = 48,
        repeats: int = 1,
    ) -> Iterator[tuple[str, Report]]:
        """Measure a grid of settings beside plain decoding, on the same prompts, in turn.

        Args:
            axes: values of drafter, policy, gamma, l_min, l_max, threshold or temperature, as the page takes them:
                {"threshold": "0:0.9:0.3", "l_max": "4,8"}; what is left out has its default.
            prompts: own prompts; empty: the built-in ones of `sets`.
            sets: chat, maths, code, chinese; empty: the first three.
            limit: so many prompts of each set, 1 to 24.
            max_tokens: of an answer, at most 512.
            repeats: how often everything is measured, 1 to 10.

        Returns:
            In steps, "waiting" or "running" with done, total and left_s; at last "done" with the report, as the page
            exports it: rows with tokens/s, the ratio to plain decoding and its interval, tau, acceptance and waste, and
            what was left out, with the reasons. Cancelling or leaving ends it.
        """
        owner = f"call-{secrets.token_hex(8)}"
        try:
            own, named = read_texts("The prompts", prompts), read_texts("The sets", sets) or DEFAULT_SETS
            of_each = read_between("limit", limit, 1, MAX_PROMPTS)
            tokens = read_between("max_tokens", max_tokens, 1, MAX_TOKENS)
            times = read_between("repeats", repeats, 1, MAX_REPEATS)
            wanted = own_prompts(own) or built_in(tuple(named), of_each)
            running = self._desk.begin(owner, lambda session: asked_of(session, axes, wanted, tokens, times))
        except Exception as error:
            raise refusal(error) from None
        try:
            while not running.over:
                with running.changed:
                    running.changed.wait(timeout=STEP_S)
                told = running.progress
                figures = {} if told is None else {"done": told.done, "total": told.total, "left_s": told.left_s}
                yield running.state, figures
            if running.state == "failed":
                raise refusal(DSparkError(running.sweep.failure))
            yield running.state, running.result()["report"]
        finally:
            self._desk.sweeps.end(owner, running)
