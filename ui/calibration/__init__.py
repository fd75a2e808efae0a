"""The tab Calibration: what confidences said and what happened, before and after Sequential Temperature Scaling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from ui.answering import visitor_of
from ui.calibration.collecting import MOST_PROMPTS, SETTINGS, Collecting
from ui.panels import feed, panel
from ui.tab import Deck
from ui.words import say

# What the page has seen of its own answers, as rows [accepted, observed, confidence …]; read when asked for.
_OWN_ANSWERS = "() => [JSON.stringify(window.dsparkPage?.ownRounds?.() ?? null)]"


class Calibration:
    """Reliability diagrams, errors by position, and a slider for one temperature."""

    key, title = "calibration", "Calibration"

    def build(self) -> None:
        """The controls of collecting, and the panel."""
        self._feed = feed("calibration")
        with gr.Column(elem_id="ds-cal-controls", elem_classes=["ds-card", "ds-settings"]):
            with gr.Row(elem_classes=["ds-settings-row"]):
                self._setting = gr.Radio(
                    [(say("greedy") if name == "greedy" else name, name) for name in SETTINGS],
                    value="greedy",
                    label=say("Answers drawn"),
                    elem_id="ds-cal-setting",
                    min_width=220,
                )
                self._prompts = gr.Slider(
                    2, MOST_PROMPTS, 12, step=2, label=say("Prompts to collect"), min_width=160,
                    info=say("half to fit, half to measure"), elem_id="ds-cal-prompts",
                )  # fmt: skip
            with gr.Row(elem_classes=["ds-settings-buttons"]):
                self._recorded = gr.Button(
                    say("Show the recorded set"), min_width=230, scale=0, elem_id="ds-cal-recorded"
                )
                self._collect = gr.Button(
                    say("Collect here"), variant="primary", min_width=150, scale=0, elem_id="ds-cal-collect"
                )
                self._stop = gr.Button(
                    say("Stop"), variant="stop", interactive=False, min_width=80, scale=0, elem_id="ds-cal-stop"
                )
                self._own = gr.Button(say("Use my answers"), min_width=170, scale=0, elem_id="ds-cal-own")
            self._told = gr.Textbox(visible=False, elem_id="ds-cal-told")
        self._panel = panel("calibration", elem_id="ds-cal-panel")

    def connect(self, deck: Deck) -> None:
        """Recorded, Collect, Stop and the visitor's own answers."""
        quiet: dict[str, Any] = deck.quiet
        collecting = Collecting(deck.host)
        deck.address.add("calibration_setting", self._setting)
        deck.address.add("calibration_prompts", self._prompts)
        self._panel.click(collecting.unasked, self._setting, self._feed, preprocess=False, **quiet)
        asked = [self._recorded.click, self._setting.change]
        gr.on(asked, collecting.recorded, self._setting, self._feed, preprocess=False, **quiet)

        def collect(request: gr.Request, *values: Any) -> Iterator[dict[Any, Any]]:
            messages = collecting.collect(*values, request)  # type: ignore[call-arg]  # as many as it listens to
            yield from collecting.runs.told(visitor_of(request), messages, self._feed, self._collect, self._stop)

        self._collect.click(
            collect, [self._setting, self._prompts, deck.parts.drafter], [self._feed, self._collect, self._stop],
            preprocess=False, concurrency_limit=8, concurrency_id="calibration", **quiet,
        )  # fmt: skip
        self._stop.click(collecting.stop, None, None, queue=False, **quiet)
        self._own.click(collecting.own, self._told, self._feed, js=_OWN_ANSWERS, preprocess=False, **quiet)

        def leave(request: gr.Request) -> None:
            collecting.runs.stop(visitor_of(request))

        deck.demo.unload(leave)
