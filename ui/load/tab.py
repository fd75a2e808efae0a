"""The controls of the tab Load and what they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from dspark_core.bench.prompts import DEFAULT_SETS, SETS
from dspark_core.errors import DSparkError
from dspark_core.load_test.room import MOST_USERS, check_users
from dspark_core.params import PRESETS, Preset, ScheduleParams
from dspark_core.scheduling import POLICIES
from ui.answering import Changes, told, visitor_of
from ui.inputs import read_whole
from ui.load.asked import LEAST_S, Wanted, cases_of, most_for
from ui.load.calls import LoadCalls
from ui.load.desk import Desk
from ui.load.watch import Watch, machine_json
from ui.panels import feed, panel
from ui.ports import SessionPort
from ui.tab import Deck
from ui.trace import to_json
from ui.words import say

_WANTED = (
    "users", "drafter", "policy", "l_min", "l_max", "threshold", "temperature", "tokens", "sets", "seconds", "plain",
)  # fmt: skip
_SCHEDULE = ScheduleParams("threshold", 0, 8, 0.6)


class Load:
    """One page's tab; it owns the one load run of the server."""

    key, title = "load", "Load"

    def __init__(self) -> None:
        self.desk = Desk()

    def build(self) -> None:
        """Controls above, charts and tables below."""
        self._feed = feed("load")
        with gr.Column(elem_id="ds-load-controls", elem_classes=["ds-card", "ds-settings"]):
            self._build_crowd()
            self._build_method()
            self._build_buttons()
        self._panel = panel("loadtab", elem_id="ds-loadtab-panel")

    def _build_crowd(self) -> None:
        with gr.Row(elem_classes=["ds-settings-row"]):
            self._users = gr.Slider(
                1, MOST_USERS, 4, step=1, label=say("Virtual users"), info=say("move it while they ask"),
                elem_id="ds-load-users",
            )  # fmt: skip
            self._seconds = gr.Slider(
                LEAST_S, 30, 6, step=1, label=say("Seconds for each step"), info=say("of the walk"),
                elem_id="ds-load-seconds",
            )  # fmt: skip
            self._plain = gr.Checkbox(
                True, label=say("Plain decoding beside it"), info=say("each step also without drafts: twice as long"),
                elem_id="ds-load-plain",
            )  # fmt: skip

    def _build_method(self) -> None:
        with gr.Row(elem_classes=["ds-settings-row"]):
            self._drafter = gr.Dropdown(["dspark"], value="dspark", label=say("Drafter"))
            self._policy = gr.Dropdown(
                list(POLICIES), value=_SCHEDULE.policy, label=say("Schedule policy"), elem_id="ds-load-policy"
            )
            self._l_min = gr.Slider(0, 15, _SCHEDULE.l_min, step=1, label=say("L_min"))
            self._l_max = gr.Slider(0, 15, _SCHEDULE.l_max, step=1, label=say("L_max"))
            self._threshold = gr.Slider(0, 1, _SCHEDULE.threshold, step=0.01, label=say("Threshold"))
        with gr.Row(elem_classes=["ds-settings-buttons"]):
            self._presets = tuple(
                gr.Button(
                    f"{say(p.name)}: {p.schedule.l_min}–{p.schedule.l_max}, {p.schedule.threshold}",
                    size="sm", min_width=150, scale=0, elem_classes=["ds-preset"],
                )
                for p in PRESETS
            )  # fmt: skip
        with gr.Row(elem_classes=["ds-settings-row"]):
            self._temperature = gr.Slider(0, 2, 0, step=0.05, label=say("Temperature"))
            self._tokens = gr.Slider(8, 256, 64, step=8, label=say("Tokens an answer"))
            self._sets = gr.CheckboxGroup(_sets(), value=list(DEFAULT_SETS), label=say("Prompts"))

    def _build_buttons(self) -> None:
        with gr.Row(elem_classes=["ds-settings-buttons"]):
            self._start = gr.Button(say("Start"), variant="primary", min_width=90, scale=0, elem_id="ds-load-start")
            self._stop = gr.Button(
                say("Stop"), variant="stop", interactive=False, min_width=90, scale=0, elem_id="ds-load-stop"
            )
            self._walk = gr.Button(say("Walk 1→32"), min_width=120, scale=0, elem_id="ds-load-walk")

    @property
    def _wanted(self) -> list[Any]:
        """The controls, in the order of `Wanted`."""
        return [
            self._users, self._drafter, self._policy, self._l_min, self._l_max, self._threshold, self._temperature,
            self._tokens, self._sets, self._seconds, self._plain,
        ]  # fmt: skip

    def connect(self, deck: Deck) -> None:
        """Attach the listeners; see `Deck`."""
        self._host = deck.host
        quiet = deck.quiet
        deck.signs["load_run"] = self.desk.sign
        shown = [self._feed, self._start, self._walk, self._stop]
        shared: dict[str, Any] = {**quiet, "concurrency_limit": 8, "concurrency_id": "load", "preprocess": False}
        self._start.click(self.start, self._wanted, shown, **shared)
        self._walk.click(self.walk, self._wanted, shown, **shared)
        self._stop.click(self.stop, None, None, queue=False, **quiet)
        fitted = [self._drafter, self._policy, self._l_min, self._l_max, self._users]
        deck.fits.append((fitted, self.fit))
        for name, part in zip(_WANTED, self._wanted, strict=True):
            deck.address.add(f"load_{name}", part, clipped=name in ("l_min", "l_max", "users"))
        deck.address.pair("load_l_min", "load_l_max")
        self._panel.click(self.machine, None, self._feed, queue=False, **quiet)
        steering: list[Any] = [self._users, self._policy, self._l_min, self._l_max, self._threshold]
        gr.on(
            [part.change for part in steering],
            self.steer,
            self._wanted,
            self._feed,
            trigger_mode="always_last",
            queue=False,
            preprocess=False,  # a number half typed must meet our checks and words, not an exception of Gradio's
            **quiet,
        )
        for button, preset in zip(self._presets, PRESETS, strict=True):
            button.click(_preset(self, preset), None, [*steering[1:], self._feed], queue=False, **quiet)
        deck.demo.unload(self.leave)
        LoadCalls(deck.host, self.desk).publish()

    def start(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        """So many users until they are stopped."""
        yield from self._watched(request, values, walking=False)

    def walk(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        """Measure one number of users after the other."""
        yield from self._watched(request, values, walking=True)

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own run; what was measured stays."""
        run = self.desk.of(visitor_of(request))
        if run is not None:
            run.stop()

    def leave(self, request: gr.Request) -> None:
        """The browser tab is gone: its users go too."""
        self.desk.end(visitor_of(request))

    def steer(self, request: gr.Request, *values: Any) -> Any:
        """Another number of users, or another schedule, for the visitor's own run from the next round on."""
        run, session = self.desk.of(visitor_of(request)), self._host.session
        if run is None or session is None or run.place[1] > 1:
            return gr.skip()
        wanted = Wanted(*values)
        try:
            users, lane, sampling = read_whole("The number of users", wanted.users), wanted.lane(), wanted.sampling()
            check_users(
                users, most_for(session, cases_of(session, wanted.sets, sampling), sampling),
                session.engine.limits.max_active,
            )  # fmt: skip
            if lane.drafter == run.part.lane.drafter:
                run.steer(lane)
            run.resize(users)
        except DSparkError as error:
            return note("error", f"{error} The users go on as before.")
        return note("info", "")

    def machine(self) -> Any:
        """What is known of this machine."""
        session = self._host.session
        return gr.skip() if session is None else to_json(machine_json(session))

    def fit(self, session: SessionPort) -> Changes:
        """The drafters, policies, lengths and users that the session has."""
        info, top = session.info, max(1, session.info.num_draft_tokens)
        names = list(info.drafters)
        policy = _SCHEDULE.policy if _SCHEDULE.policy in info.policies else info.policies[0]
        most = most_for(session, cases_of(session, SETS, _usual()), _usual())
        return {
            self._drafter: gr.update(choices=names, value=names[0]),
            self._policy: gr.update(choices=list(info.policies), value=policy),
            self._l_min: gr.update(maximum=top),
            self._l_max: gr.update(maximum=top, value=min(_SCHEDULE.l_max, top)),
            self._users: gr.update(maximum=max(1, most), value=min(4, max(1, most))),
        }

    def preset(self, preset: Preset) -> Changes:
        """The preset within the drafter's γ, with a note where that matters."""
        schedule, said, session = preset.schedule, "", self._host.session
        if session is not None:
            schedule, said = preset.clipped_to(session.info.num_draft_tokens)
        return {
            self._policy: schedule.policy,
            self._l_min: schedule.l_min,
            self._l_max: schedule.l_max,
            self._threshold: schedule.threshold,
            self._feed: note("info", said),
        }

    def _watched(self, request: gr.Request, values: tuple[Any, ...], *, walking: bool) -> Iterator[Changes]:
        visitor = visitor_of(request)
        try:
            session = self._host.opened("Try again when it is.")
            run = self.desk.begin(visitor, lambda: Wanted(*values).opened(session, walking=walking))
        except Exception as error:
            yield {self._feed: note("error", told(error))}
            return
        watch = Watch(run, session, walking=walking, tokens=Wanted(*values).sampling().max_new_tokens)
        stopped = True
        try:
            yield {self._feed: note("info", ""), **self._buttons(running=True)}
            for message in watch.messages():
                yield {self._feed: message}
            stopped = not walking or run.place[0] < run.place[1]
        finally:  # also when the browser went away
            self.desk.end(visitor)
        yield {self._feed: watch.ending(stopped=stopped), **self._buttons(running=False)}

    def _buttons(self, *, running: bool) -> Changes:
        return {
            self._start: gr.update(interactive=not running),
            self._walk: gr.update(interactive=not running),
            self._stop: gr.update(interactive=running),
        }


def note(level: str, text: str) -> str:
    """A message beside the controls."""
    return to_json({"kind": "load_note", "level": level, "text": text})


def _sets() -> list[tuple[str, str]]:
    """The prompt sets with their names for the screen."""
    names = {"chat": say("chat"), "maths": say("maths"), "code": say("code"), "chinese": say("Chinese")}
    return [(names[key], key) for key in SETS]


def _usual() -> Any:
    return Wanted(1, "none", "fixed", 0, 0, 0, 0, 64, SETS, LEAST_S, False).sampling()


def _preset(tab: Load, preset: Preset) -> Any:
    def apply() -> Changes:
        return tab.preset(preset)

    return apply
