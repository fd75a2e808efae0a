"""What programs may call, by name: typed functions for ``gradio_client`` and ``POST /gradio_api/call/<name>``.

`Endpoints.publish` lists them; nothing else has a public name. To add one:

1. write a method here (or in your tab's module) whose parameters and result are plain typed values with defaults, and
   whose docstring tells them: `gr.api` makes the description and the schema of both;
2. check every value with the functions of `ui.inputs`, raise `gr.Error(str(error))` for a refusal, so that the caller
   reads our words; anything else stays in the log;
3. let the engine admit: `SessionPort.engine.submit` refuses when too many wait. Give everything back in ``finally``:
   Gradio closes a generator when its caller cancels or goes away, so long work must yield;
4. add a line to `publish` and the name to `NAMES`, and a test that calls it through ``gradio_client``.

What is closed and what is not: ``gradio_client`` refuses private listeners by name and by number; the server answers
404 to their names (`OnlyNamed`) and, with ``queue(api_open=False)``, to direct calls around the queue. What a browser
sends, a program can send too (``/queue/join`` and ``/run/predict`` with a listener's number): that reaches only what
the page itself can do, for a session of its own, and the handlers check all that they are given.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, get_args

import gradio as gr
from gradio.events import api
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dspark_core.errors import DSparkError
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from ui.answering import paced
from ui.host import SessionHost
from ui.inputs import read_drafter, read_prompt, read_sampling
from ui.ports import GenerationPort
from ui.trace import Trace, figures_json

NAMES = ("generate", "race", "sweep", "load")
_LOG = logging.getLogger(__name__)
MAX_CALLS = 16  # of programs at once; the engine's own admission counts them with the visitors
STEP_S = 1.0  # between two steps at most: only between them does Gradio close a generator
_USUAL = ScheduleParams()
Figures = dict[str, Any]


class Endpoints:
    """The named functions over ``host``."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host

    def publish(self) -> None:
        """Register every endpoint; must be called inside ``gr.Blocks``."""
        api(
            in_steps(self.generate, ("", {})),
            api_name="generate",
            concurrency_limit=MAX_CALLS,
            concurrency_id="programs",
        )

    def generate(
        self,
        prompt: str,
        drafter: str = "",
        policy: str = _USUAL.policy,
        l_min: int = _USUAL.l_min,
        l_max: int = _USUAL.l_max,
        threshold: float = _USUAL.threshold,
        temperature: float = 0.0,
        max_tokens: int = 256,
        seed: int | None = None,
    ) -> Iterator[tuple[str, Figures]]:
        """Answer one message; the answer comes in steps, each with the whole text so far and its figures.

        Args:
            prompt: the message, at most a million characters and what the model's context takes.
            drafter: one of the page's drafters ("none" is plain decoding); empty: the first one.
            policy: the schedule policy.
            l_min: verify at least so many drafts a round, 0 to 64 and not above l_max.
            l_max: verify at most so many; above what the drafter drafts it acts as that.
            threshold: the policy "threshold" cuts below this confidence, 0 to 1.
            temperature: 0 (greedy) to 10.
            max_tokens: the answer ends after so many tokens.
            seed: 0 to 2^63 - 1; empty: a new one, which the figures tell.

        Returns:
            The text, and the figures, all measured inside the engine: finish_reason ("" while it runs), detail,
            drafter, seed, tokens, rounds, tokens_per_s, tau, drafted, verified, accepted, wasted, acceptance_rate, and
            the rounds' seconds (round_s, draft_s, schedule_s, verify_s). The first step comes at once, with no figures
            yet. Cancelling or leaving ends the answer.
        """
        try:
            schedule = ScheduleParams(policy, l_min, l_max, threshold)
            asked = self._request(prompt, drafter, schedule, read_sampling(temperature, 1, max_tokens, seed))
            generation = self._host.opened("Call again when it is.").engine.submit(asked)
        except Exception as error:
            raise refusal(error) from None
        yield from _answer(generation)

    def _request(
        self, prompt: str, drafter: str, schedule: ScheduleParams, sampling: SamplingParams
    ) -> GenerationRequest:
        session = self._host.opened("Call again when it is.")
        messages = [{"role": "user", "content": read_prompt(prompt)}]
        return session.request(messages, sampling, schedule, read_drafter(drafter, list(session.info.drafters)))


def in_steps(method: Callable[..., Iterator[Any]], first: Any) -> Callable[..., Iterator[Any]]:
    """``method`` as `gr.api` wants a generator: the type of one step as its result's, no annotation as text.

    The step ``first`` comes before ``method`` begins anything: Gradio knows a generator only from its first step on,
    and never closes one whose caller cancels before.
    """

    @wraps(method)
    def call(*values: Any, **named: Any) -> Iterator[Any]:
        yield first
        yield from method(*values, **named)

    told = inspect.signature(method, eval_str=True)
    call.__signature__ = told.replace(return_annotation=get_args(told.return_annotation)[0])  # type: ignore[attr-defined]
    return call


class OnlyNamed:
    """ASGI middleware: of the routes that call by name, only `NAMES` exist, and the page's own ``/run/predict``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 404 to other names; pass everything else on."""
        if scope["type"] == "http" and not _may_call(scope["path"]):
            said = f"There is no such endpoint. These may be called: {', '.join(NAMES)}."
            await JSONResponse({"detail": said}, 404)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _may_call(path: str) -> bool:
    parts = [part for part in path.split("/") if part]
    if "gradio_api" not in parts:
        return True
    route, *rest = parts[parts.index("gradio_api") + 1 :] or [""]
    if route == "call" and rest[:1] == ["v2"]:
        rest = rest[1:]
    if route in ("run", "api"):
        return rest[:1] == ["predict"]
    return route != "call" or (bool(rest) and rest[0] in NAMES)


def refusal(error: Exception) -> gr.Error:
    """What the caller reads about ``error``: ours as they are, others as a fault of ours, with a log."""
    if isinstance(error, DSparkError):
        return gr.Error(str(error), print_exception=False)
    _LOG.error("A call failed.", exc_info=error)
    return gr.Error(f"The server failed ({type(error).__name__}); its log has the details.", print_exception=False)


def _answer(generation: GenerationPort) -> Iterator[tuple[str, Figures]]:
    trace = Trace("call")
    try:
        for _ in paced(generation, trace, at_least_s=STEP_S):
            yield trace.text, _figures(trace)
        if trace.finished is not None and trace.finished.finish_reason == "error":
            raise gr.Error(f"The answer ended with an error: {trace.finished.detail}", print_exception=False)
        yield trace.text, _figures(trace)
    finally:
        generation.cancel()


def _figures(trace: Trace) -> Figures:
    begun, finished = trace.prefilled or {}, trace.finished
    return {
        "finish_reason": "" if finished is None else finished.finish_reason,
        "detail": "" if finished is None else finished.detail,
        "drafter": begun.get("drafter", ""),
        "seed": int(begun["seed"]) if begun else None,
        **figures_json(trace.figures),
    }
