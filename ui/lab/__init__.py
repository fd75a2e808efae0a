"""The tab Lab: plain decoding and a policy side by side, and the paper's toy whose law hindsight bends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from dspark_core.lab.comparison import LEAST_TEXTS, MOST_TEXTS
from dspark_core.scheduling import POLICIES
from ui.answering import visitor_of
from ui.lab.running import Experiments
from ui.lab.toy import exact_json, toy_messages
from ui.panels import feed, panel
from ui.tab import Deck
from ui.words import say

PROMPT = "Tell me a story about the sea."


class Lab:
    """The losslessness lab."""

    key, title = "lab", "Losslessness"

    def build(self) -> None:
        """The controls of an experiment, its panel, the toy and its button."""
        self._feed = feed("lab")
        with gr.Column(elem_id="ds-lab-controls", elem_classes=["ds-card", "ds-settings"]):
            self._prompt = gr.Textbox(PROMPT, label=say("Prompt"), max_lines=3, elem_id="ds-lab-prompt")
            with gr.Row(elem_classes=["ds-settings-row"]):
                self._policy = gr.Dropdown(
                    list(POLICIES), value="threshold", label=say("Policy"), min_width=120, elem_id="ds-lab-policy",
                    info=say("the drafter is the one under Chat"),
                )  # fmt: skip
                self._threshold = gr.Slider(
                    0, 1, 0.3, step=0.01, label=say("Threshold"), min_width=120, elem_id="ds-lab-threshold",
                    info=say("of the policy threshold"),
                )  # fmt: skip
                self._temperature = gr.Slider(
                    0.1, 2, 1, step=0.05, label=say("Temperature"), min_width=120, elem_id="ds-lab-temperature",
                    info=say("at 0 there is nothing to compare"),
                )  # fmt: skip
                self._tokens = gr.Slider(
                    1, 3, 2, step=1, label=say("Tokens compared"), min_width=120, elem_id="ds-lab-tokens",
                    info=say("from the second on, drafts decide"),
                )  # fmt: skip
                self._texts = gr.Slider(
                    LEAST_TEXTS, MOST_TEXTS, 400, step=100, label=say("Texts of each"), min_width=120,
                    elem_id="ds-lab-texts", info=say("more find smaller differences"),
                )  # fmt: skip
            with gr.Row(elem_classes=["ds-settings-buttons"]):
                self._start = gr.Button(
                    say("Compare"), variant="primary", min_width=120, scale=0, elem_id="ds-lab-start"
                )
                self._stop = gr.Button(
                    say("Stop"), variant="stop", interactive=False, min_width=80, scale=0, elem_id="ds-lab-stop"
                )
        panel("lab", elem_id="ds-lab-panel")
        self._toy = panel("toy", elem_id="ds-toy-panel")

    def connect(self, deck: Deck) -> None:
        """Compare, Stop, and the toy's button."""
        quiet: dict[str, Any] = deck.quiet
        experiments = Experiments(deck.host)
        asked = [
            self._prompt, deck.parts.drafter, self._policy, self._threshold, self._temperature, self._tokens,
            self._texts,
        ]  # fmt: skip
        names = ("prompt", None, "policy", "threshold", "temperature", "tokens", "texts")  # the drafter is Chat's
        for name, part in zip(names, asked, strict=True):
            if name:
                deck.address.add(f"lab_{name}", part)

        def compare(request: gr.Request, *values: Any) -> Iterator[dict[Any, Any]]:
            messages = experiments.compare(*values, request)  # type: ignore[call-arg]  # as many as `asked`
            yield from experiments.runs.told(visitor_of(request), messages, self._feed, self._start, self._stop)

        self._start.click(
            compare, asked, [self._feed, self._start, self._stop], preprocess=False, concurrency_limit=8,
            concurrency_id="lab", **quiet,
        )  # fmt: skip
        self._stop.click(experiments.stop, None, None, queue=False, **quiet)
        self._toy.click(toy_messages, None, self._feed, concurrency_limit=8, concurrency_id="toy", **quiet)
        deck.demo.load(exact_json, None, self._feed, **quiet)

        def leave(request: gr.Request) -> None:
            experiments.runs.stop(visitor_of(request))

        deck.demo.unload(leave)
