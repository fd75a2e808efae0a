"""Answering a visitor: a generator that reads the engine's events and yields what changed on the page.

The engine runs in its own thread and queues events without bound; this reader takes all of them and lets the page
draw at most `MAX_YIELDS_PER_S` times a second. When the browser goes away, Gradio closes the generator: the
``finally`` cancels the request, and the engine frees it within one round.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from dspark_core.errors import DSparkError, ParameterError
from dspark_core.recording import Header, header_of
from ui.host import SessionHost
from ui.inputs import SCHEDULE_CONTROLS, read_inspect, read_prompt, read_sampling, read_schedule, read_text
from ui.layout import Parts
from ui.news import News
from ui.ports import GenerationPort
from ui.trace import OVERLAP_ROUNDS, Trace, to_json
from ui.visitors import Visitors

_LOG = logging.getLogger(__name__)
MAX_YIELDS_PER_S = 8.25
Turn = dict[str, str]
Changes = dict[Any, Any]


def notice(level: str, text: str) -> str:
    """A message for the notice panel: level "error", "info" or "none"."""
    return to_json({"kind": "notice", "level": level, "text": text, "id": secrets.token_hex(4)})


def told(error: Exception) -> str:
    """What the visitor reads about ``error``: our own errors as they are, others as a fault of ours, with a log."""
    if isinstance(error, DSparkError):
        return str(error)
    _LOG.error("A request failed before its answer began.", exc_info=error)
    return f"The server failed ({type(error).__name__}); its log has the details. Your message stays; try again."


def visitor_of(request: gr.Request) -> str:
    """The key of the browser tab that asks; a call without one gets a key of its own."""
    return request.session_hash or f"no-session-{secrets.token_hex(8)}"


class Answering:
    """The handlers of Send, Regenerate and Stop.

    Args:
        host: the session's host.
        visitors: the registry that Stop and the sliders use.
        parts: the page's components, keys of the yielded changes.
        news: where a page that asks for it finds what an answer adds; for one that does not, it is yielded.
    """

    def __init__(self, host: SessionHost, visitors: Visitors, parts: Parts, news: News | None = None) -> None:
        self._host = host
        self._visitors = visitors
        self._parts = parts
        self._news = news or News()

    def send(self, prompt: str, history: list[Turn], request: gr.Request, *controls: Any) -> Iterator[Changes]:
        """Answer a new message; ``controls`` are the values of `Parts.controls`."""
        visitor = visitor_of(request)
        ticket = self._visitors.ask(visitor)
        try:
            turns = [*history, {"role": "user", "content": read_prompt(prompt)}]
            generation, header = self._begin(turns, controls, visitor, ticket)
        except Exception as error:
            self._visitors.give_up(visitor, ticket)
            yield {self._parts.notice: notice("error", told(error))}
            return
        yield from self._stream(generation, header, turns, visitor, {self._parts.prompt: ""})

    def regenerate(self, history: list[Turn], request: gr.Request, *controls: Any) -> Iterator[Changes]:
        """Answer the last message again, with the controls as they are now."""
        turns = history[:-1] if history and history[-1]["role"] == "assistant" else list(history)
        visitor = visitor_of(request)
        ticket = self._visitors.ask(visitor)
        try:
            if not turns:
                raise ParameterError("There is no message to answer again. Send one first.")
            generation, header = self._begin(turns, controls, visitor, ticket)
        except Exception as error:
            self._visitors.give_up(visitor, ticket)
            yield {self._parts.notice: notice("error", told(error))}
            return
        yield from self._stream(generation, header, turns, visitor, {})

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own answer; what is there stays."""
        self._visitors.stop(visitor_of(request))

    def pace(self, request: gr.Request, event: gr.EventData) -> str:
        """Hold the visitor's own answer, let it step or go on; the notice says why where it cannot."""
        asked = event._data if isinstance(event._data, dict) else {}
        generation = self._visitors.of(visitor_of(request))
        try:
            if generation is None:
                raise ParameterError("No answer of yours runs. Ask something first.")
            if asked.get("do") == "step":
                generation.step()
            else:
                generation.resume(asked.get("rate"))
        except Exception as error:
            return notice("error", told(error))
        return notice("none", "")

    def _begin(
        self, turns: list[Turn], controls: tuple[Any, ...], visitor: str, ticket: object
    ) -> tuple[GenerationPort, Header]:
        session = self._host.opened("The message stays; send it when it is.")
        if self._visitors.running(visitor):
            raise ParameterError("Your last answer still runs. Press Stop first, or wait for its end.")
        system, drafter, *rest = controls
        if not isinstance(drafter, str):
            raise ParameterError("Choose a drafter from the list.")
        system_text = read_text("The system prompt", system).strip()
        messages = ([{"role": "system", "content": system_text}] if system_text else []) + turns
        schedule = read_schedule(*rest[: len(SCHEDULE_CONTROLS)])
        *law, inspect = rest[len(SCHEDULE_CONTROLS) :]
        request = session.request(messages, read_sampling(*law), schedule, drafter)
        generation = session.engine.submit(replace(request, inspect=read_inspect(inspect)))
        self._visitors.begin(visitor, generation, ticket)
        return generation, header_of(session.info, request, messages)

    def _stream(
        self, generation: GenerationPort, header: Header, turns: list[Turn], visitor: str, first: Changes
    ) -> Iterator[Changes]:
        parts = self._parts
        trace = Trace(secrets.token_hex(16))  # only this page knows it, and asks for the answer's news by it
        self._visitors.kept.put(visitor, header, trace.events)
        try:
            yield {
                **first,
                parts.chat: chat_json(turns, None),
                parts.history: turns,
                parts.send: gr.update(interactive=False),
                parts.regenerate: gr.update(interactive=False),
                parts.stop: gr.update(interactive=True),
                parts.notice: notice("none", ""),
                parts.answer: trace.message(),
            }
            overlap = OVERLAP_ROUNDS
            with self._news.line(trace.answer) as line:
                for _ in paced(generation, trace):
                    if not self._visitors.holds(visitor, generation):
                        break
                    if line.followed:
                        line.put(trace.message(overlap, laws=line.laws))
                        overlap = 0  # on this way nothing is lost
                    else:
                        yield {parts.answer: trace.message(laws=line.laws)}
                        overlap = OVERLAP_ROUNDS
            yield self._ending(turns, trace) if self._visitors.holds(visitor, generation) else self._freed(visitor)
        finally:
            self._visitors.end(visitor, generation)

    def _freed(self, visitor: str) -> Changes:
        """The page after an answer that a new chat has ended: its first message may have come after the new chat."""
        if self._visitors.running(visitor):
            return {self._parts.stop: gr.update(interactive=True)}
        return {
            **emptied(self._parts),
            self._parts.send: gr.update(interactive=True),
            self._parts.stop: gr.update(interactive=False),
        }

    def _ending(self, turns: list[Turn], trace: Trace) -> Changes:
        parts = self._parts
        finished = trace.finished
        text = finished.text if finished else ""
        whole = [*turns, {"role": "assistant", "content": text}] if text else turns
        changes: Changes = {
            parts.chat: chat_json(whole, trace.answer),
            parts.history: whole,
            parts.answer: trace.message(),
            parts.send: gr.update(interactive=True),
            parts.regenerate: gr.update(interactive=True),
            parts.stop: gr.update(interactive=False),
        }
        if finished and finished.finish_reason == "error":
            changes[parts.notice] = notice(
                "error", f"The answer ended with an error: {finished.detail} Press Regenerate to try again."
            )
        return changes


def emptied(parts: Parts) -> Changes:
    """A page without a conversation."""
    empty: list[Turn] = []
    return {
        parts.chat: to_json({"kind": "chat", "turns": [], "done": None}),
        parts.history: empty,
        parts.answer: to_json({"kind": "forget"}),
        parts.regenerate: gr.update(interactive=False),
    }


def chat_json(turns: list[Turn], done: str | None) -> str:
    """The whole conversation; ``done`` names the answer whose text is in it."""
    return to_json({"kind": "chat", "turns": [[turn["role"], turn["content"]] for turn in turns], "done": done})


def paced(generation: GenerationPort, trace: Trace, at_least_s: float = math.inf) -> Iterator[None]:
    """Feed every event to ``trace`` and yield when it is time to draw; ends with the answer, without a last yield.

    Where nothing is new for ``at_least_s`` it yields as well, for callers who can be closed only between two steps.
    """
    drawn, waiting, period_s = 0.0, False, 1.0 / MAX_YIELDS_PER_S
    while trace.finished is None:
        event = generation.next_event(0.0 if waiting else 0.25)
        while event is not None:
            trace.add(event)
            waiting = True
            event = generation.next_event(0.0) if trace.finished is None else None
        if generation.held != trace.held:
            trace.held = generation.held
            waiting = True
        waiting = waiting or time.monotonic() >= drawn + at_least_s
        if trace.finished is not None or not waiting:
            continue
        due_s = drawn + period_s - time.monotonic()
        if due_s > 0:
            time.sleep(due_s)  # to wake for every event would take the interpreter from the engine each time
        else:
            yield
            drawn, waiting = max(drawn + period_s, time.monotonic() - period_s / 2), False  # late once, not slower
