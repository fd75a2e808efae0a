"""The controls of the tab Cost and what they do."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dspark_core.cost import ARTICLE
from dspark_core.errors import DSparkError
from ui.answering import Changes
from ui.cost.reckoning import REQUESTS, TOKENS, Entered, article_fleet, reckoned
from ui.panels import feed, panel
from ui.tab import Deck
from ui.trace import to_json
from ui.words import say

_ENTERED = (
    "gpus", "price", "currency", "unit", "before", "after", "tokens", "joules_before", "joules_after", "elasticity",
)  # fmt: skip
_TAKE = "() => window.dsparkPage.takeForCost('{}')"


class Cost:
    """Live figures from a few numbers; nothing of it touches the engine."""

    key, title = "cost", "Cost"

    def build(self) -> None:
        """Controls above, figures and the rebound's plot below."""
        self._feed = feed("cost")
        fleet = article_fleet()
        with gr.Column(elem_id="ds-cost-controls", elem_classes=["ds-card", "ds-settings"]):
            with gr.Row(elem_classes=["ds-cost-row"]):
                self._article = gr.Button(say("The article's 100 cards"), size="sm", min_width=150, scale=0)
                self._load = gr.Button(say("Take from Load"), size="sm", min_width=130, scale=0)
                self._chat = gr.Button(say("Take from Chat"), size="sm", min_width=130, scale=0)
            with gr.Row(elem_classes=["ds-cost-row"]):
                self._gpus = gr.Number(fleet.gpus, label=say("GPUs"), precision=0, minimum=1, min_width=110)
                self._price = gr.Number(
                    fleet.price_per_gpu_hour, label=say("Price of a GPU-hour"), minimum=0, min_width=130
                )
                self._currency = gr.Textbox("$", label=say("Currency"), max_lines=1, min_width=90)
                self._unit = gr.Radio(
                    [(say("requests a second, whole fleet"), REQUESTS), (say("tokens a second, one GPU"), TOKENS)],
                    value=REQUESTS, label=say("Throughput in"), min_width=280,
                )  # fmt: skip
                self._before = gr.Number(ARTICLE.requests_per_s[0], label=say("Before: plain decoding"), min_width=130)
                self._after = gr.Number(ARTICLE.requests_per_s[1], label=say("After: with drafts"), min_width=130)
            with gr.Row(elem_classes=["ds-cost-row"]):
                self._tokens = gr.Number(200, label=say("Tokens a request"), min_width=120)
                self._joules_before = gr.Number(None, label=say("Joules a token before"), min_width=130)
                self._joules_after = gr.Number(None, label=say("Joules a token after"), min_width=130)
                self._elasticity = gr.Slider(
                    0, 3, 1.3, step=0.05, label=say("Elasticity of demand ε"),
                    info=say("demand rises by ε % when the cost falls by 1 %"), min_width=240,
                    elem_id="ds-cost-elasticity",
                )  # fmt: skip
            self._source = gr.Textbox("", visible="hidden", label="source")
        panel("cost", elem_id="ds-cost-panel")

    def connect(self, deck: Deck) -> None:
        """Attach the listeners; see `Deck`."""
        quiet = deck.quiet
        entered: list[Any] = [
            self._gpus, self._price, self._currency, self._unit, self._before, self._after, self._tokens,
            self._joules_before, self._joules_after, self._elasticity, self._source,
        ]  # fmt: skip
        # Not the source, which says what was measured: an address could say anything.
        for name, part in zip(_ENTERED, entered[:-1], strict=True):
            deck.address.add(f"cost_{name}", part)
        gr.on(
            [deck.demo.load, *(part.change for part in entered)],
            self.reckon,
            entered,
            self._feed,
            trigger_mode="always_last",
            queue=False,
            preprocess=False,  # what is half typed must meet our checks and words
            **quiet,
        )
        self._article.click(self.article, None, entered[:6], queue=False, **quiet)
        taken = [self._unit, self._gpus, *entered[4:9], self._source]
        for button, name in ((self._load, "load"), (self._chat, "chat")):
            button.click(None, None, taken, js=_TAKE.format(name), **quiet)

    def reckon(self, *values: Any) -> str:
        """The figures of what is entered, or what is wrong with it."""
        try:
            return to_json(reckoned(Entered(*values)))
        except DSparkError as error:
            return to_json({"kind": "cost", "error": str(error)})

    def article(self) -> Changes:
        """The article's example, to be changed at will."""
        fleet = article_fleet()
        return {
            self._gpus: fleet.gpus,
            self._price: fleet.price_per_gpu_hour,
            self._currency: "$",
            self._unit: REQUESTS,
            self._before: ARTICLE.requests_per_s[0],
            self._after: ARTICLE.requests_per_s[1],
        }
