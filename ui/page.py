"""The page: components from `ui.layout`, behaviour wired here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import gradio as gr

from dspark_core.errors import DSparkError
from dspark_core.params import PRESETS, Preset, ScheduleParams
from ui import quiet
from ui.address import Address
from ui.answering import Answering, Changes, emptied, notice, visitor_of
from ui.endpoints import Endpoints
from ui.host import SessionHost
from ui.inputs import SAMPLING_CONTROLS, SCHEDULE_CONTROLS, check_seed, read_schedule
from ui.layout import DEFAULT_SCHEDULE, Parts, build_layout
from ui.news import News
from ui.ports import InfoPort, SessionPort
from ui.tab import Deck, Fit
from ui.tabs import page_tabs
from ui.trace import figures_json, load_json, to_json
from ui.visitors import Visitors

MAX_ANSWERS = 32  # generators in parallel; the engine refuses earlier, with a message
BOOT_S = 0.5
LATER_S = 5.0
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}  # of every listener


def build_page(host: SessionHost, news: News | None = None) -> gr.Blocks:
    """The Blocks app over ``host``; what its pages ask for by themselves is ``news``, which the server must serve.

    Nothing of it is in module state: several pages may live in one process.
    """
    visitors = Visitors()
    news = news or News()
    quiet.before_queue()
    demo: gr.Blocks = gr.Blocks(title="DSpark Playground", analytics_enabled=False, fill_width=True)
    with demo:
        tabs = page_tabs()
        parts = build_layout(tabs)
        boot, later = gr.Timer(BOOT_S), gr.Timer(LATER_S, active=False)
        signs: dict[str, Callable[[], Any]] = {}
        address = Address(("chat", *(tab.key for tab in tabs)))
        fits: list[Fit] = []
        wiring = Wiring(host, visitors, parts, boot, signs, address, fits, news, later)
        for tab in tabs:
            tab.connect(Deck(demo, host, visitors, parts, QUIET, signs, address, fits))
        wiring.connect(demo)
        Endpoints(host).publish()
    demo.queue(api_open=False, max_size=256, default_concurrency_limit=16)
    quiet.slow_looks(demo)
    news.status = wiring.status
    return demo


class Wiring:
    """Event handlers other than the answers', and who listens to whom."""

    def __init__(
        self,
        host: SessionHost,
        visitors: Visitors,
        parts: Parts,
        boot: gr.Timer,
        signs: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
        address: Address | None = None,
        fits: Sequence[Fit] = (),
        news: News | None = None,
        later: gr.Timer | None = None,
    ) -> None:
        self._later = later or gr.Timer(active=False)
        self._address = address = address or Address(("chat",))
        for name in (*SCHEDULE_CONTROLS, *SAMPLING_CONTROLS, "drafter"):
            clipped, check = name in ("l_min", "l_max"), check_seed if name == "seed" else None
            address.add(name, getattr(parts, name), clipped=clipped, check=check)
        address.add("prompt", parts.prompt, follow=False)
        address.pair("l_min", "l_max")
        address.pair("band_low", "band_high")
        self._host = host
        self._visitors = visitors
        self._parts = parts
        self._boot = boot
        self._signs = signs
        self._fits = fits
        self._news = news or News()
        self._fit: tuple[InfoPort, Changes] | None = None  # the last session's, the same for every visitor

    def connect(self, demo: gr.Blocks) -> None:
        """Attach every listener. All are private: no API page, no direct calls beside the queue."""
        quiet = QUIET
        self._connect_answers(quiet)
        self._connect_schedule(quiet)
        parts = self._parts
        addressed = [*self._address.components, parts.address, parts.notice]
        fitted = [part for components, _ in self._fits for part in components if part not in addressed]
        configured = [self._boot, self._later, parts.send, parts.retry, *addressed, *fitted]
        choosing = [part for part in (*addressed, *fitted) if isinstance(part, gr.Dropdown)]
        gr.on([demo.load, self._boot.tick], self.configure, None, configured, **quiet)
        self._later.tick(self.choices, None, [self._later, *choosing], **quiet)
        demo.load(self.status, None, parts.status, queue=False, **quiet)
        parts.retry.click(self.retry, None, [self._boot, parts.retry, parts.notice], **quiet)
        parts.link.click(self.go, None, addressed, **quiet)
        self._address.follow(quiet)
        parts.headline.click(self.measure_again, None, parts.status, **quiet)
        demo.unload(self.leave)

    def _connect_answers(self, quiet: dict[str, Any]) -> None:
        parts = self._parts
        answering = Answering(self._host, self._visitors, parts, self._news)
        shared: dict[str, Any] = {
            **quiet,
            "concurrency_limit": MAX_ANSWERS,
            "concurrency_id": "answers",
            "preprocess": False,  # a number out of its range must meet our checks and words, as below
        }
        asked = [parts.history, *parts.controls]
        gr.on([parts.send.click, parts.prompt.submit], answering.send, [parts.prompt, *asked], parts.streamed, **shared)
        parts.regenerate.click(answering.regenerate, asked, parts.streamed, **shared)
        for example in parts.examples:
            example.click(answering.send, [example, *asked], parts.streamed, **shared)
        parts.stop.click(answering.stop, None, None, queue=False, **quiet)
        parts.stepper.click(answering.pace, None, parts.notice, queue=False, **quiet)
        # It cancels none of these listeners, as Gradio would let it: the page would no longer hear of one that has just
        # begun, and its Stop would stay. An answer that is forgotten ends by itself, and frees the buttons.
        parts.clear.click(
            self.new_chat,
            None,
            [parts.chat, parts.history, parts.answer, parts.notice, parts.regenerate, parts.send, parts.stop],
            **quiet,
        )

    def _connect_schedule(self, quiet: dict[str, Any]) -> None:
        parts = self._parts
        sliders: list[Any] = [parts.policy, parts.l_min, parts.l_max, parts.threshold]
        gr.on(
            [part.change for part in parts.schedule],
            self.reschedule,
            parts.schedule,
            parts.schedule_note,
            trigger_mode="always_last",
            queue=False,
            preprocess=False,  # a number half typed must meet our checks and words, not an exception of Gradio's
            **quiet,
        )
        for button, preset in zip(parts.presets, PRESETS, strict=True):
            button.click(_preset_handler(self, preset), parts.beyond_cut, [*sliders, parts.schedule_note], **quiet)

    def configure(self, request: gr.Request) -> Changes:
        """Fit the controls to the session once it is open, and to the address; until then ask again."""
        parts, state, session = self._parts, self._host.state, self._host.session
        if state.phase == "failed":
            return {
                self._boot: gr.Timer(active=False),
                parts.retry: gr.update(visible=True),
                parts.notice: notice("error", f"The model could not be opened. {state.stage}"),
            }
        if session is None:
            return {self._boot: gr.Timer(active=True)}
        ready = {
            self._boot: gr.Timer(active=False),
            self._later: gr.Timer(active=bool(self._host.profile_note)),
            parts.send: gr.update(interactive=True),
        }
        fitted = self._fitted(session)
        return ready | self._addressed(request, fitted, fitted)

    def choices(self) -> Changes:
        """What may be chosen once step times are measured; until then ask again. What is chosen stays."""
        session = self._host.session
        if session is None or self._host.profile_note:
            return {self._later: gr.skip()}
        fitted = self._fitted(session)
        known = {part: gr.update(choices=change["choices"]) for part, change in fitted.items() if "choices" in change}
        return {self._later: gr.Timer(active=False), **known}

    def go(self, request: gr.Request) -> Changes:
        """Set what the address says now; the rest stays."""
        session = self._host.session
        if session is None:
            return {self._parts.notice: gr.skip()}
        return self._addressed(request, self._fitted(session), {})

    def _addressed(self, request: gr.Request, fitted: Changes, first: Changes) -> Changes:
        """``first`` with the address's values; ``fitted`` is what the session allows."""
        parts, address = self._parts, self._address
        values, problems = address.read(_asked(request.query_params), fitted)
        changes = address.changes(values, first)
        changes[parts.address] = to_json(address.message(values, fitted))
        if problems:
            said = " ".join(problems)
            changes[parts.notice] = notice("info", f"The address asks for what cannot be set. {said} The rest applies.")
        return changes

    def _fitted(self, session: SessionPort) -> Changes:
        """What the session allows; the caller's own, because Gradio takes the values out of updates that it sends."""
        return {part: copy(change) for part, change in self._fit_to(session).items()}

    def _fit_to(self, session: SessionPort) -> Changes:
        parts, info = self._parts, session.info
        if self._fit is not None and self._fit[0] is info:
            return self._fit[1]
        top = max(1, info.num_draft_tokens)
        names = list(info.drafters)
        policy = DEFAULT_SCHEDULE.policy if DEFAULT_SCHEDULE.policy in info.policies else info.policies[0]
        chat: Changes = {
            parts.drafter: gr.update(choices=names, value=names[0]),
            parts.policy: gr.update(choices=list(info.policies), value=policy),
            parts.l_min: gr.update(maximum=top, value=min(DEFAULT_SCHEDULE.l_min, top)),
            parts.l_max: gr.update(maximum=top, value=min(DEFAULT_SCHEDULE.l_max, top)),
        }
        for _, fit in self._fits:
            chat |= fit(session)
        self._fit = info, chat
        return chat

    def status(self) -> str:
        """What the session does and how busy the machine is, as JSON for the store."""
        state, session = self._host.state, self._host.session
        baseline, note = self._host.baseline
        body: dict[str, Any] = {
            "kind": "status",
            "phase": state.phase,
            "stage": state.stage,
            "fraction": state.fraction,
            "name": self._host.name,
            "baseline": baseline and {"figures": figures_json(baseline.figures), "clock": baseline.clock},
            "baseline_note": note,
            "t": time.monotonic(),
        }
        body |= {name: sign() for name, sign in self._signs.items()}
        if session is not None:
            info = session.info
            body["info"] = [info.model, info.device_label, info.dtype, info.num_draft_tokens, info.max_context]
            body["drafters"] = info.drafters
            body["active"] = session.engine.num_active
            body["step_curve"] = info.step_curve
            body["profiling"] = self._host.profile_note
            body["load"] = load_json(session.engine.load())
        return to_json(body)

    def reschedule(self, request: gr.Request, *controls: Any) -> str:
        """Steer the visitor's running answer by the values of `Parts.schedule`; say what happened."""
        visitor = visitor_of(request)
        asked = dict(zip(SCHEDULE_CONTROLS, controls, strict=False))
        shown = {name: str(asked.get(name)) for name in ("policy", "load_signal")}
        try:
            schedule = read_schedule(*controls)
            running = self._visitors.update_schedule(visitor, schedule)
        except DSparkError as error:
            running = self._visitors.running(visitor)
            rest = "The running answer keeps its last schedule." if running else "Correct it before the next answer."
            return _schedule_note("error", f"{error} {rest}", shown=shown)
        return _schedule_note("info", _described(schedule, running), shown=shown)

    def preset(self, preset: Preset, beyond_cut: bool, request: gr.Request) -> Changes:
        """Set a preset, clipped to the drafter's γ, and say so; a preset leaves the checkbox as it is."""
        parts, session = self._parts, self._host.session
        schedule, note = preset.schedule, ""
        if session is not None:
            schedule, note = preset.clipped_to(session.info.num_draft_tokens)
        schedule = replace(schedule, stop_early=not beyond_cut)
        running = self._visitors.update_schedule(visitor_of(request), schedule)
        return {
            parts.policy: schedule.policy,
            parts.l_min: schedule.l_min,
            parts.l_max: schedule.l_max,
            parts.threshold: schedule.threshold,
            parts.schedule_note: _schedule_note("info", note or _described(schedule, running), sticky=bool(note)),
        }

    def new_chat(self, request: gr.Request) -> Changes:
        """Forget the conversation and end what runs; an answer's own handler frees the buttons."""
        parts = self._parts
        buttons = {
            parts.send: gr.update(interactive=self._host.session is not None),
            parts.stop: gr.update(interactive=False),
        }
        ended = self._visitors.forget(visitor_of(request))
        return {**emptied(parts), parts.notice: notice("none", ""), **({} if ended else buttons)}

    def retry(self) -> Changes:
        """Open the session again after a failure."""
        self._host.start()
        return {
            self._boot: gr.Timer(active=True),
            self._parts.retry: gr.update(visible=False),
            self._parts.notice: notice("none", ""),
        }

    def measure_again(self) -> str:
        """Ask for a new baseline and show that."""
        self._host.want_baseline()
        return self.status()

    def leave(self, request: gr.Request) -> None:
        """The browser tab is gone: end what it had running."""
        self._visitors.forget(visitor_of(request))


def _asked(query: Any) -> Iterable[tuple[str, str]]:
    """Every name of an address with its value, also those that come again."""
    pairs: Iterable[tuple[str, str]] = query.multi_items() if hasattr(query, "multi_items") else query.items()
    return pairs


def _preset_handler(wiring: Wiring, preset: Preset) -> Any:
    def apply(beyond_cut: bool, request: gr.Request) -> Changes:
        return wiring.preset(preset, beyond_cut, request)

    return apply


def _schedule_note(level: str, text: str, *, sticky: bool = False, shown: dict[str, str] | None = None) -> str:
    """A note for the schedule panel; ``shown`` tells by which policy and load signal the page chooses its controls."""
    note = {"kind": "schedule", "level": level, "text": text, "sticky": sticky, "t": time.monotonic()}
    return to_json(note if shown is None else {**note, "shown": shown})


def _described(schedule: ScheduleParams, running: bool) -> str:
    drafting = "drafting ends at the cut" if schedule.stop_early else "drafting goes on beyond the cut"
    said = [schedule.policy, f"L_min {schedule.l_min}, L_max {schedule.l_max}", *_judged_by(schedule), drafting]
    return f"{', '.join(said)}: {'from the next round of the running answer' if running else 'for the next answer'}."


def _judged_by(schedule: ScheduleParams) -> list[str]:
    """The numbers that the policy heeds beside its bounds."""
    if schedule.policy == "threshold":
        return [f"threshold {schedule.threshold:.2f}"]
    if schedule.policy != "banded":
        return []
    load = f"load signal {schedule.load_signal}"
    if schedule.load_signal == "simulated":
        load = f"simulated load {schedule.simulated_load:.2f}"
    return [f"bands {schedule.band_low:.2f} to {schedule.band_high:.2f}", load]
