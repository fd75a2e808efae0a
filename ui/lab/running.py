"""One experiment: texts of plain decoding and of a policy from the running engine, told while they come."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from dspark_core.errors import ParameterError
from dspark_core.lab.chi_square import Verdict
from dspark_core.lab.comparison import ENDED, Comparison, View, requests_for
from dspark_core.lab.crowd import answers, seconds_left
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from ui.answering import told, visitor_of
from ui.host import SessionHost
from ui.inputs import read_number, read_prompt, read_whole
from ui.ports import SessionPort
from ui.runs import Runs
from ui.trace import to_json

_TELL_S = 0.5
_ROWS = 14  # outcomes shown; the rest is one row
_AT_ONCE = 8
_SEED_BITS = 40


@dataclass(slots=True)
class _Run:
    comparison: Comparison
    texts: int
    words: dict[str, Any]
    started_s: float

    def message(self, state: str, text: str = "") -> str:
        done = self.comparison.done
        body = {
            "state": state,
            "text": text,
            "done": done,
            "texts": self.texts,
            "left_s": seconds_left(self.started_s, sum(done), 2 * self.texts),
            **self.words,
        }
        views = [_view(view, self.comparison) for view in self.comparison.views()]
        return to_json({"kind": "lab", "run": body, "views": views})


class Experiments:
    """The handlers of the tab's buttons.

    Args:
        host: the session's host.
    """

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self.runs = Runs()

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own experiment; what is there stays and is judged."""
        self.runs.stop(visitor_of(request))

    def compare(
        self, prompt: Any, drafter: Any, policy: Any, threshold: Any, temperature: Any, tokens: Any, texts: Any,
        request: gr.Request,
    ) -> Generator[str, None, None]:  # fmt: skip
        """Run one experiment and tell how it stands; whatever fails is told as well."""
        visitor, run = visitor_of(request), None
        try:
            session = self._host.opened("Try again when it is.")
            asked = _request(session, prompt, drafter, policy, threshold, temperature)
            run = _started(asked, read_whole("Tokens compared", tokens), read_whole("Texts of each", texts))
            wanted = requests_for(asked, run.texts, run.comparison.tokens, run.words["seed"])
            stop = self.runs.begin(visitor)
        except Exception as error:
            yield _failed(error)
            return
        try:
            told_s = 0.0
            for answer in answers(session.engine, wanted, stop, at_once=_AT_ONCE, enough=run.comparison.has_enough):
                if answer is not None:
                    run.comparison.add(answer[0] % 2, answer[1])
                if time.monotonic() >= told_s + _TELL_S:
                    yield run.message("running")
                    told_s = time.monotonic()
            yield run.message("stopped" if stop.is_set() else "done")
        except Exception as error:
            yield run.message("failed", told(error))
        finally:
            self.runs.end(visitor)


def _request(
    session: SessionPort, prompt: Any, drafter: Any, policy: Any, threshold: Any, temperature: Any
) -> GenerationRequest:
    if not isinstance(policy, str) or not isinstance(drafter, str):
        raise ParameterError("Choose a policy and a drafter from their lists.")
    schedule = ScheduleParams(policy, threshold=read_number("The threshold", threshold))
    sampling = SamplingParams(temperature=read_number("The temperature", temperature))
    return session.request([{"role": "user", "content": read_prompt(prompt)}], sampling, schedule, drafter)


def _started(asked: GenerationRequest, tokens: int, texts: int) -> _Run:
    schedule = asked.schedule
    words = {
        "seed": secrets.randbits(_SEED_BITS),
        "drafter": asked.drafter,
        "policy": schedule.policy,
        "bounds": [schedule.l_min, schedule.l_max],
        "threshold": schedule.threshold if schedule.policy == "threshold" else None,
        "temperature": asked.sampling.temperature,
    }
    return _Run(Comparison(tokens), texts, words, time.monotonic())


def _failed(error: Exception) -> str:
    return to_json({"kind": "lab", "run": {"state": "failed", "text": told(error)}, "views": None})


def _view(view: View, comparison: Comparison) -> dict[str, Any]:
    together = view.plain + view.other
    shown = [outcome for outcome, _ in together.most_common(_ROWS)]
    rows = [[[_word(token, comparison) for token in o], view.plain[o], view.other[o]] for o in shown]
    rest = [len(together) - len(shown), *(c.total() - sum(c[o] for o in shown) for c in (view.plain, view.other))]
    return {"places": view.places, "rows": rows, "rest": rest, "verdict": _verdict(view.verdict)}


def _word(token: int, comparison: Comparison) -> str | None:
    """The token's text; None where the text had ended."""
    return None if token == ENDED else comparison.words.get(token, f"#{token}")


def _verdict(verdict: Verdict) -> list[Any]:
    return [
        verdict.statistic, verdict.degrees_of_freedom, verdict.p_value, verdict.n, verdict.cells, verdict.pooled,
    ]  # fmt: skip
