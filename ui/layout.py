"""The page's components and where they stand. No behaviour here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from dspark_core.params import PRESETS, LoadSignal, ScheduleParams
from dspark_core.scheduling import POLICIES
from ui.inputs import SAMPLING_CONTROLS, SCHEDULE_CONTROLS
from ui.panels import feed, panel
from ui.words import say

if TYPE_CHECKING:
    from ui.tab import Tab

EXAMPLES = (
    "Why is the sky blue?",
    "Write a short story about a lighthouse keeper.",
    "Write a Python function that reverses a string.",
    "Count from one to twenty in words.",
)
SLIDER_TOP = 15  # of L_min and L_max until the drafter's γ is known
DEFAULT_SCHEDULE = ScheduleParams()
LOAD_NAMES: dict[str, LoadSignal] = {
    say("occupancy: answers that run"): "occupancy",
    say("engine: its busy share"): "engine",
    say("device: GPU or CPU in use"): "device",
    say("simulated: by the slider"): "simulated",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """The components that handlers read or change."""

    headline: gr.HTML
    chat: gr.HTML
    history: gr.State
    prompt: gr.Textbox
    send: gr.Button
    stop: gr.Button
    regenerate: gr.Button
    clear: gr.Button
    retry: gr.Button
    examples: tuple[gr.Button, ...]
    drafter: gr.Dropdown
    policy: gr.Dropdown
    presets: tuple[gr.Button, ...]
    l_min: gr.Slider
    l_max: gr.Slider
    threshold: gr.Slider
    beyond_cut: gr.Checkbox
    band_low: gr.Slider
    band_high: gr.Slider
    load_signal: gr.Dropdown
    simulated_load: gr.Slider
    temperature: gr.Slider
    top_p: gr.Slider
    min_p: gr.Slider
    repetition_penalty: gr.Slider
    presence_penalty: gr.Slider
    frequency_penalty: gr.Slider
    max_tokens: gr.Slider
    seed: gr.Textbox
    inspect: gr.Checkbox
    system: gr.Textbox
    answer: gr.HTML
    status: gr.HTML
    notice: gr.HTML
    schedule_note: gr.HTML
    address: gr.HTML
    link: gr.HTML
    stepper: gr.HTML
    recorded: gr.HTML
    recordings: gr.HTML

    @property
    def controls(self) -> list[Any]:
        """What an answer is asked with, in the order that `ui.answering` takes."""
        sampling = [getattr(self, name) for name in SAMPLING_CONTROLS]
        return [self.system, self.drafter, *self.schedule, *sampling, self.inspect]

    @property
    def schedule(self) -> list[Any]:
        """What makes the schedule, in the order that `ui.inputs.read_schedule` takes."""
        return [getattr(self, name) for name in SCHEDULE_CONTROLS]

    @property
    def streamed(self) -> list[Any]:
        """What an answer changes."""
        return [
            self.chat, self.history, self.prompt, self.send, self.stop, self.regenerate, self.answer, self.notice,
        ]  # fmt: skip


def build_layout(tabs: Sequence[Tab]) -> Parts:
    """Put everything on the page, ``tabs`` behind Chat; must be called inside ``gr.Blocks``."""
    history = gr.State([])
    feeds = {name: feed(name) for name in ("chat", "answer", "status", "notice", "schedule", "address", "recorded")}
    panel("header", elem_id="ds-header")
    recorded = panel("recorded", elem_id="ds-recorded-panel")
    headline = panel("headline", elem_id="ds-headline")
    # All tabs are always in the document: what one shows reads another's legend, and scripts are mounted once.
    with gr.Tabs(elem_id="ds-tabs"):
        with gr.Tab(say("Chat"), id="chat", render_children=True), gr.Row(elem_id="ds-shell"):
            with gr.Column(elem_id="ds-main", min_width=280):
                conversation = _conversation()
                panel("ribbon", elem_id="ds-ribbon-panel")
                panel("table", elem_id="ds-table-panel")
            with gr.Column(elem_id="ds-side", min_width=280):
                controls = _controls()
                panel("charts", elem_id="ds-charts-panel")
        for tab in tabs:
            with gr.Tab(say(tab.title), id=tab.key, render_children=True):
                tab.build()
    panel("footer", elem_id="ds-footer")
    return Parts(
        headline=headline,
        history=history,
        chat=feeds["chat"],
        answer=feeds["answer"],
        status=feeds["status"],
        notice=feeds["notice"],
        schedule_note=feeds["schedule"],
        address=feeds["address"],
        recorded=recorded,
        recordings=feeds["recorded"],
        **conversation,
        **controls,
    )


def _conversation() -> dict[str, Any]:
    with gr.Column(elem_id="ds-chat-card", elem_classes=["ds-card"]):
        panel("chat", elem_id="ds-chat")
        stepper = panel("stepper", elem_id="ds-stepper-panel")
        panel("notice", elem_id="ds-notice-panel")
        with gr.Row(elem_id="ds-ask"):
            prompt = gr.Textbox(
                label=say("Your message"),
                show_label=False,
                container=False,
                placeholder=say("Your message (Enter sends, Shift+Enter makes a new line, Esc stops)"),
                lines=1,
                max_lines=6,
                scale=8,
                min_width=160,
                elem_id="ds-prompt",
                autofocus=False,
            )
            send = gr.Button(
                say("Send"), variant="primary", interactive=False, min_width=72, scale=0, elem_id="ds-send"
            )
            stop = gr.Button(say("Stop"), variant="stop", interactive=False, min_width=72, scale=0, elem_id="ds-stop")
        with gr.Row(elem_id="ds-after"):
            regenerate = gr.Button(
                say("Regenerate"), size="sm", min_width=96, scale=0, interactive=False, elem_id="ds-regenerate"
            )
            clear = gr.Button(say("New chat"), size="sm", min_width=88, scale=0, elem_id="ds-clear")
            retry = gr.Button(
                say("Load the model again"), size="sm", min_width=140, scale=0, visible=False, elem_id="ds-retry"
            )
        with gr.Row(elem_id="ds-examples"):
            examples = tuple(
                gr.Button(text, size="sm", min_width=60, scale=0, elem_classes=["ds-example"]) for text in EXAMPLES
            )
    return {
        "prompt": prompt, "send": send, "stop": stop, "regenerate": regenerate, "clear": clear,
        "retry": retry, "examples": examples, "stepper": stepper,
    }  # fmt: skip


def _controls() -> dict[str, Any]:
    with gr.Column(elem_id="ds-controls", elem_classes=["ds-card", "ds-settings"]):
        with gr.Row(elem_classes=["ds-pair"]):
            drafter = gr.Dropdown(["dspark"], value="dspark", label=say("Drafter"), min_width=120, elem_id="ds-drafter")
            policy = gr.Dropdown(
                list(POLICIES), value=DEFAULT_SCHEDULE.policy, label=say("Schedule policy"), min_width=120,
                elem_id="ds-policy",
            )  # fmt: skip
        with gr.Row(elem_id="ds-presets"):
            presets = tuple(
                gr.Button(
                    f"{say(preset.name)}: {preset.schedule.l_min}–{preset.schedule.l_max}, {preset.schedule.threshold}",
                    size="sm",
                    min_width=120,
                    elem_classes=["ds-preset"],
                )
                for preset in PRESETS
            )
        link = panel("link", elem_id="ds-link-panel")
        with gr.Row(elem_classes=["ds-pair"]):
            l_min = gr.Slider(
                0, SLIDER_TOP, DEFAULT_SCHEDULE.l_min, step=1, label=say("L_min"), min_width=120,
                info=say("verify at least"), elem_id="ds-l-min",
            )  # fmt: skip
            l_max = gr.Slider(
                0, SLIDER_TOP, DEFAULT_SCHEDULE.l_max, step=1, label=say("L_max"), min_width=120,
                info=say("verify at most"), elem_id="ds-l-max",
            )  # fmt: skip
        with gr.Row(elem_classes=["ds-pair"]):
            threshold = gr.Slider(
                0, 1, DEFAULT_SCHEDULE.threshold, step=0.01, label=say("Threshold"), min_width=120,
                info=say("cut below it"), elem_id="ds-threshold",
            )  # fmt: skip
            temperature = gr.Slider(
                0, 2, 0, step=0.05, label=say("Temperature"), min_width=120,
                info=say("0 is greedy"), elem_id="ds-temperature",
            )  # fmt: skip
        bands = _bands()
        beyond_cut = gr.Checkbox(
            True, label=say("Draft beyond the cut"), elem_id="ds-beyond-cut",
            info=say("to see what was cut; without it drafting ends there: faster, and the text has the same law"),
        )  # fmt: skip
        panel("schedule", elem_id="ds-schedule-panel")
        with gr.Accordion(
            say("More: top-p, min-p, penalties, length, seed, laws, system prompt"), open=False, elem_id="ds-more"
        ):
            with gr.Row(elem_classes=["ds-pair"]):
                top_p = gr.Slider(
                    0.05,
                    1,
                    1,
                    step=0.05,
                    label=say("Top-p"),
                    min_width=120,
                    info=say("1 keeps all"),
                    elem_id="ds-top-p",
                )
                max_tokens = gr.Slider(
                    1, 2048, 256, step=1, label=say("Max tokens"), min_width=120, info=say("of an answer"),
                    elem_id="ds-max-tokens",
                )  # fmt: skip
            law = _law()
            seed = gr.Textbox(
                label=say("Seed"), placeholder=say("empty: a new one for each answer"), max_lines=1, elem_id="ds-seed"
            )
            inspect = gr.Checkbox(
                True, label=say("Collect the laws for Rounds"), elem_id="ds-inspect",
                info=say("the most likely tokens of every law; takes time beside the rounds, not in their figures"),
            )  # fmt: skip
            system = gr.Textbox(
                label=say("System prompt"),
                placeholder=say("empty: the model's own"),
                lines=2,
                max_lines=6,
                elem_id="ds-system",
            )
    return {
        "drafter": drafter, "policy": policy, "presets": presets, "link": link, "l_min": l_min, "l_max": l_max,
        "threshold": threshold, "beyond_cut": beyond_cut, "temperature": temperature, "top_p": top_p,
        "max_tokens": max_tokens, "seed": seed, "inspect": inspect, "system": system, **bands, **law,
    }  # fmt: skip


def _law() -> dict[str, Any]:
    """Sliders of the law's rarer options, two a row."""
    min_p = ("min_p", say("Min-p"), 0, 1, 0, say("0 keeps all"))
    repetition = ("repetition_penalty", say("Repetition penalty"), 0.5, 2, 1, say("1: none"))
    presence = ("presence_penalty", say("Presence penalty"), -2, 2, 0, say("0: none"))
    frequency = ("frequency_penalty", say("Frequency penalty"), -2, 2, 0, say("0: none"))
    law = {}
    for pair in ((min_p, repetition), (presence, frequency)):
        with gr.Row(elem_classes=["ds-pair"]):
            for name, label, low, high, value, info in pair:
                law[name] = gr.Slider(
                    low, high, value, step=0.05, label=label, min_width=120, info=info,
                    elem_id=f"ds-{name.replace('_', '-')}",
                )  # fmt: skip
    return law


def _bands() -> dict[str, Any]:
    """What only the policy ``banded`` heeds; the page shows it under that policy."""
    with gr.Column(elem_id="ds-bands"):
        with gr.Row(elem_classes=["ds-pair"]):
            band_low = gr.Slider(
                0, 1, DEFAULT_SCHEDULE.band_low, step=0.01, label=say("Lower band"), min_width=120,
                info=say("stop below it"), elem_id="ds-band-low",
            )  # fmt: skip
            band_high = gr.Slider(
                0, 1, DEFAULT_SCHEDULE.band_high, step=0.01, label=say("Upper band"), min_width=120,
                info=say("verify above it"), elem_id="ds-band-high",
            )  # fmt: skip
        with gr.Row(elem_classes=["ds-pair"]):
            load_signal = gr.Dropdown(
                list(LOAD_NAMES.items()), value=DEFAULT_SCHEDULE.load_signal, label=say("Load signal"), min_width=120,
                info=say("what decides between the bands"), elem_id="ds-load-signal",
            )  # fmt: skip
            simulated_load = gr.Slider(
                0, 1, DEFAULT_SCHEDULE.simulated_load, step=0.01, label=say("Simulated load"), min_width=120,
                info=say("0 idle, 1 full"), elem_id="ds-simulated-load",
            )  # fmt: skip
    return {
        "band_low": band_low, "band_high": band_high, "load_signal": load_signal, "simulated_load": simulated_load,
    }  # fmt: skip
