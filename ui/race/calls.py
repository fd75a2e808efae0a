"""The endpoint ``race``: what the tab does, for programs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from gradio.events import api

from dspark_core.bench.duel_report import duel_report
from ui.answering import MAX_YIELDS_PER_S
from ui.endpoints import MAX_CALLS, in_steps, refusal
from ui.race.racing import Racing

Report = dict[str, Any]


class RaceCalls:
    """The named function over the page's races; its laps take turns with those of visitors."""

    def __init__(self, racing: Racing) -> None:
        self._racing = racing

    def publish(self) -> None:
        """Register it; must be called inside ``gr.Blocks``."""
        api(
            in_steps(self.race, ("waiting", {})),
            api_name="race",
            concurrency_limit=MAX_CALLS,
            concurrency_id="programs",
        )

    def race(
        self,
        prompt: str,
        lanes: list[str],
        temperature: float = 0.0,
        max_tokens: int = 64,
        seed: int | None = None,
        repeats: int = 1,
    ) -> Iterator[tuple[str, Report]]:
        """Answer one prompt by 2 to 4 lanes, one after the other after a warm-up, and compare speeds and texts.

        Args:
            prompt: the message.
            lanes: names such as "plain", "dspark+threshold@0.6", "ngram+fixed@4": plain decoding, or a drafter and a
                policy (of the first drafter, where only a policy is named).
            temperature: 0 (greedy) to 10.
            max_tokens: of each answer, at most 512.
            seed: the same for all lanes, 0 to 2^63 - 1; empty: a new one, which the report tells.
            repeats: how often each lane answers, 1 to 5, in rotating order.

        Returns:
            In steps, what happens ("waiting", "warm-up", "running", "comparing", at last "done") and the report; all
            figures are measured inside the engine. The report has reference, repeats, disturbed (whether somebody
            else's answer ran beside a lane), about, and lanes, each with name, error, laps, speed and ratio over plain
            (median, low, high, n), figures (tau, drafted, verified, accepted, wasted, draft_s, verify_s, …),
            finish_s, energy_j (null: not measured here), text, sameness (greedy only) and gap. Closing the connection
            or cancelling ends the race.
        """
        try:
            race = self._racing.prepare(prompt, lanes, temperature, max_tokens, seed, repeats)
            told_at = 0.0
            with closing(self._racing.run(f"call-{secrets.token_hex(8)}", race)) as going:
                for now in going:
                    if time.monotonic() >= told_at + 1 / MAX_YIELDS_PER_S:
                        told_at = time.monotonic()
                        yield now.phase, {}
            yield "done", {"about": race.about, **duel_report(race.duel, tracks=False)}
        except Exception as error:
            raise refusal(error) from None
