"""The components of the tab Race, and who listens to whom."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr

from dspark_core.bench.duel import MAX_LANES
from dspark_core.errors import DSparkError
from dspark_core.load_test.lane import PLAIN
from ui.answering import told, visitor_of
from ui.inputs import check_seed
from ui.layout import EXAMPLES
from ui.panels import feed, panel
from ui.ports import SessionPort
from ui.race.calls import RaceCalls
from ui.race.offers import check_lane, first_choice, offered_lanes
from ui.race.racing import MAX_TOKENS, Racing, Told
from ui.tab import Deck
from ui.trace import to_json
from ui.words import say

_DEFAULT_TOKENS = 64
_REPEATS = (1, 3)
_WAITING_RACES = 32  # generators in parallel; races take turns lap by lap
Changes = dict[Any, Any]


class Race:
    """The same prompt and seed by two to four methods, one after the other."""

    key, title = "race", "Race"

    def build(self) -> None:
        """Controls, and the panel that scripts fill."""
        self._feed = feed("race")
        with gr.Column(elem_id="ds-race-controls", elem_classes=["ds-card", "ds-settings"]):
            self._prompt = gr.Textbox(
                EXAMPLES[0], label=say("Prompt of the race"), lines=1, max_lines=5, elem_id="ds-race-prompt"
            )
            self._lanes = gr.Dropdown(
                [PLAIN], value=[PLAIN], multiselect=True, max_choices=MAX_LANES, allow_custom_value=True,
                label=say("Lanes"), elem_id="ds-race-lanes",
                info=say("two to four: plain, or DRAFTER+POLICY; you may type your own, such as dspark+fixed@3"),
            )  # fmt: skip
            with gr.Row(elem_id="ds-race-numbers"):
                self._temperature = gr.Number(
                    0, label=say("Temperature"), minimum=0, maximum=2, step=0.1, min_width=110,
                    elem_id="ds-race-temperature",
                )  # fmt: skip
                self._max_tokens = gr.Number(
                    _DEFAULT_TOKENS, label=say("Max tokens"), minimum=1, maximum=MAX_TOKENS, precision=0,
                    min_width=110, elem_id="ds-race-max-tokens",
                )  # fmt: skip
                self._seed = gr.Textbox(
                    "", label=say("Seed"), placeholder=say("empty: a new one"), max_lines=1, min_width=110,
                    elem_id="ds-race-seed",
                )  # fmt: skip
                self._repeats = gr.Radio(
                    [(say("once"), _REPEATS[0]), (say("3 times, in rotating order"), _REPEATS[1])], value=_REPEATS[0],
                    label=say("Each lane runs"), min_width=220, elem_id="ds-race-repeats",
                )  # fmt: skip
            with gr.Row(elem_classes=["ds-settings-buttons"]):
                self._start = gr.Button(
                    say("Start the race"), variant="primary", interactive=False, min_width=140, scale=0,
                    elem_id="ds-race-start",
                )  # fmt: skip
                self._stop = gr.Button(
                    say("Stop the race"), variant="stop", interactive=False, min_width=140, scale=0,
                    elem_id="ds-race-stop",
                )  # fmt: skip
        panel("race", elem_id="ds-race-panel")

    def connect(self, deck: Deck) -> None:
        """Attach the listeners."""
        self._host = deck.host
        self._racing = Racing(deck.host)
        checks = {"seed": check_seed, "lanes": self._check_lane}  # of what the address gives
        asked = [self._prompt, self._lanes, self._temperature, self._max_tokens, self._seed, self._repeats]
        deck.fits.append(([self._lanes, self._start], self.fit))
        names = ("prompt", "lanes", "temperature", "max_tokens", "seed", "repeats")
        for name, part in zip(names, asked, strict=True):
            deck.address.add(f"race_{name}", part, check=checks.get(name))
        self._start.click(
            self.start, asked, [self._feed, self._start, self._stop],
            preprocess=False,  # what is half typed must meet our checks and words, not an exception of Gradio's
            concurrency_limit=_WAITING_RACES, concurrency_id="races", **deck.quiet,
        )  # fmt: skip
        # Gradio tells no "input" of a typed lane; and "change" comes for our own change as well, which must not clear.
        told: dict[str, Any] = {"preprocess": False, "queue": False, **deck.quiet}
        self._lanes.change(self.chosen, self._lanes, [self._feed, self._lanes], **told)
        self._lanes.input(lambda: _refused(""), None, self._feed, **told)
        self._stop.click(self.stop, None, None, queue=False, **deck.quiet)
        deck.demo.unload(self.leave)
        RaceCalls(self._racing).publish()

    @property
    def racing(self) -> Racing:
        """The races that run on this page."""
        return self._racing

    def fit(self, session: SessionPort) -> Changes:
        """The lanes that the session has."""
        offered = offered_lanes(session)
        return {
            self._lanes: gr.update(choices=offered, value=first_choice(offered)),
            self._start: gr.update(interactive=True),
        }

    def chosen(self, lanes: Any) -> Changes:
        """Take lanes out that cannot run here, as soon as they are chosen, and tell why."""
        kept, refused = [], []
        for name in lanes if isinstance(lanes, list) else []:
            try:
                self._check_lane(str(name))
                kept.append(name)
            except DSparkError as error:
                refused.append(str(error))
        if not refused:
            return {self._feed: gr.skip()}
        return {self._feed: _refused(" ".join(refused)), self._lanes: gr.update(value=kept)}

    def _check_lane(self, name: str) -> None:
        check_lane(name, self._host.session)

    def start(
        self, prompt: Any, lanes: Any, temperature: Any, max_tokens: Any, seed: Any, repeats: Any, request: gr.Request
    ) -> Iterator[Changes]:
        """Run a race and tell how it goes."""
        visitor = visitor_of(request)
        idle = {self._start: gr.update(interactive=True), self._stop: gr.update(interactive=False)}
        changes: Changes = {self._start: gr.update(interactive=False), self._stop: gr.update(interactive=True)}
        try:
            race = self._racing.prepare(prompt, lanes, temperature, max_tokens, seed, repeats)
            messages = Told(race)
            with closing(self._racing.run(visitor, race)) as going:
                for now in going:
                    message = messages.due(now)
                    if message is not None:
                        yield {self._feed: message, **changes}
                        changes = {}
            yield {self._feed: messages.end(), **idle}
        except Exception as error:
            yield {self._feed: _refused(told(error)), **({} if self._racing.running(visitor) else idle)}

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own race; what is done stays."""
        self._racing.stop(visitor_of(request))

    def leave(self, request: gr.Request) -> None:
        """The browser tab is gone: end its race."""
        self._racing.stop(visitor_of(request))


def _refused(text: str) -> str:
    """A message that stands above the race; '' takes the last one away."""
    return to_json({"kind": "race", "state": "refused", "text": text, "id": secrets.token_hex(4)})
