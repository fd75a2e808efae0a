"""Where the tab's rounds come from: the set that ships, a run on this engine, or the visitor's own answers."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import gradio as gr

from dspark_core.bench.prompts import from_file
from dspark_core.calibration.command import PROMPTS
from dspark_core.calibration.recorded import read_recorded, rounds_of_rows
from dspark_core.calibration.rounds import Rounds
from dspark_core.calibration.survival import logits_of
from dspark_core.calibration.told import rounds_of
from dspark_core.errors import ParameterError, so_many
from dspark_core.events import DecodeRound, Event, Prefilled
from dspark_core.lab.crowd import answers, seconds_left
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from ui.answering import told, visitor_of
from ui.calibration.figures import figures_json
from ui.host import SessionHost
from ui.inputs import read_whole
from ui.ports import SessionPort
from ui.runs import Runs
from ui.trace import to_json

SETTINGS = {"greedy": 0.0, "T = 0.7": 0.7, "T = 1": 1.0}
MOST_PROMPTS = 72
MOST_POSITIONS, MOST_ROUNDS = 64, 20_000  # of what a browser sends
_TOKENS = 48
_AT_ONCE = 4
_TELL_S = 0.3
_NO_CONFIDENCE = (
    "This drafter gives no confidences, so there is nothing to calibrate. Choose another drafter under Chat."
)


class Collecting:
    """The handlers of the tab.

    Args:
        host: the session's host.
    """

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self.runs = Runs()

    def recorded(self, setting: Any) -> str:
        """The figures of the rounds that ship."""
        return _recorded_told(setting, unasked=False)

    def unasked(self, setting: Any) -> str:
        """The same, sent when the tab is opened: the page shows it only while nothing else was asked for."""
        return _recorded_told(setting, unasked=True)

    def own(self, text: Any) -> str:
        """The figures of the rounds that the visitor's page has seen; ``text`` is whatever a browser sent."""
        try:
            parts, drafter = _own_parts(text)
            figures = figures_json(0.0, parts, parts[0].num_positions)
            return _shown("own", drafter, "", figures)
        except Exception as error:
            return _state("failed", told(error))

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own run; what is there is fitted and shown."""
        self.runs.stop(visitor_of(request))

    def collect(self, setting: Any, prompts: Any, drafter: Any, request: gr.Request) -> Generator[str, None, None]:
        """Answer prompts with every draft verified, tell how far it is, fit and show; other visitors chat beside."""
        visitor = visitor_of(request)
        try:
            temperature = _temperature(setting)
            session = self._host.opened("Try again when it is.")
            wanted = _requests(session, temperature, read_whole("Prompts to collect", prompts), drafter)
            stop = self.runs.begin(visitor)
        except Exception as error:
            yield _state("failed", told(error))
            return
        parts: dict[int, Rounds] = {}
        started_s, told_s, total = time.monotonic(), 0.0, len(wanted)
        try:
            for answer in answers(session.engine, wanted, stop, at_once=_AT_ONCE):
                if answer is not None:
                    parts[answer[0]] = _part(answer[1])
                if time.monotonic() >= told_s + _TELL_S:
                    left_s = seconds_left(started_s, len(parts), total)
                    yield _state("running", "", done=len(parts), total=total, left_s=left_s)
                    told_s = time.monotonic()
            if not parts:
                yield _state("nothing", "")
                return
            kept = [parts[number] for number in sorted(parts)]
            yield _state("fitting", "", done=len(parts), total=total)
            figures = figures_json(temperature, kept, kept[0].num_positions)
            yield _shown("collected", str(drafter), str(setting), figures, stopped=stop.is_set())
        except Exception as error:
            yield _state("failed", told(error))
        finally:
            self.runs.end(visitor)


def _recorded_told(setting: Any, *, unasked: bool) -> str:
    try:
        return _recorded_json(_temperature(setting), unasked=unasked)
    except Exception as error:
        return _state("failed", told(error))


@lru_cache(maxsize=2 * len(SETTINGS))
def _recorded_json(temperature: float, *, unasked: bool) -> str:
    recorded = read_recorded()
    if recorded is None:
        raise ParameterError("No recorded set ships with this version. Press Collect here once the model is ready.")
    made = recorded.made_by
    setting = next(name for name, value in SETTINGS.items() if value == temperature)
    prompts = made.fit_prompts + made.held_out_prompts
    weights = recorded.weights_sha256[:8]  # a drafter that was trained again has others
    label = f"{made.model}, {made.drafter} (weights {weights}), {made.dtype}, {prompts} prompts"
    figures = figures_json(temperature, recorded.parts[temperature], recorded.num_positions)
    return _shown("recorded", label, setting, figures, unasked=unasked)


def _temperature(setting: Any) -> float:
    if setting not in SETTINGS:
        raise ParameterError("Choose how the answers are drawn: greedy, T = 0.7 or T = 1.")
    return SETTINGS[setting]


def _requests(session: SessionPort, temperature: float, prompts: int, drafter: Any) -> list[GenerationRequest]:
    if not 2 <= prompts <= MOST_PROMPTS:
        raise ParameterError(f"{so_many(prompts, 'prompt is', 'prompts are')} asked for; take 2 to {MOST_PROMPTS}.")
    if not isinstance(drafter, str) or drafter == "none":
        raise ParameterError(_NO_CONFIDENCE)
    longest = session.info.num_draft_tokens
    schedule = ScheduleParams("fixed", longest, longest)  # what is cut could not be learnt from
    law = SamplingParams(temperature=temperature, max_new_tokens=_TOKENS)
    texts = [prompt.text for prompt in from_file(PROMPTS)][:prompts]
    return [
        session.request([{"role": "user", "content": text}], replace(law, seed=seed), schedule, drafter)
        for seed, text in enumerate(texts)
    ]


def _part(events: Sequence[Event]) -> Rounds:
    """The rounds of one answer. Raises ParameterError where the drafter gave no confidences."""
    rounds = [event for event in events if isinstance(event, DecodeRound)]
    if any(token.confidence is None for event in rounds for token in event.draft):
        raise ParameterError(_NO_CONFIDENCE)
    (positions,) = (event.num_draft_tokens for event in events if isinstance(event, Prefilled))
    if positions == 0:
        raise ParameterError(_NO_CONFIDENCE)
    return rounds_of(events, positions)


def _own_parts(text: Any) -> tuple[list[Rounds], str]:
    """The rounds of each answer, and the drafter's name. Raises ParameterError for anything odd."""
    odd = ParameterError("The page sent no rounds that can be read. Reload the page, ask something, then try again.")
    try:
        body = json.loads(text) if isinstance(text, str) else None
        if not body or not body["answers"]:
            raise ParameterError(
                "This page has seen no finished answer with confidences yet. Ask something under Chat first."
            )
        width, told_parts = body["positions"], body["answers"]
        if not 1 <= int(width) <= MOST_POSITIONS or sum(map(len, told_parts)) > MOST_ROUNDS:
            raise odd
        return [_own_rounds(rows, int(width)) for rows in told_parts if rows], str(body["drafter"])[:40]
    except ParameterError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise odd from error


def _own_rounds(rows: Sequence[Sequence[float]], width: int) -> Rounds:
    return rounds_of_rows([[row[0], row[1], *logits_of(row[2:])] for row in rows], width)


def _state(state: str, text: str, **more: Any) -> str:
    return to_json({"kind": "calibration", "run": {"state": state, "text": text, **more}})


def _shown(
    source: str, label: str, setting: str, figures: dict[str, Any], *, stopped: bool = False, unasked: bool = False
) -> str:
    run = {"state": "stopped" if stopped else "done", "text": ""}
    about = {"source": source, "label": label, "setting": setting}
    message = {"kind": "calibration", "run": run, "about": about, "figures": figures}
    return to_json(message | ({"unasked": True} if unasked else {}))
