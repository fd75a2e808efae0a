"""What the page is started with: command line first, then environment, then defaults."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dspark_core.admission import MAX_ACTIVE, MAX_WAIT_S, MAX_WAITING, Limits
from dspark_core.errors import ParameterError
from dspark_core.options import add_draft_model_option
from ui.ports import Progress, SessionPort


def _tokens(text: str) -> int | None:
    return None if text == "auto" else int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


PAGE_ANSWERS = MAX_ACTIVE + 4
PROFILE_S = 25.0
_LIMITS = (  # option, variable, default, type, help
    ("--max-active", "DSPARK_MAX_ACTIVE", str(PAGE_ANSWERS), int, "answers that run side by side"),
    ("--max-waiting", "DSPARK_MAX_WAITING", str(MAX_WAITING), int, "requests that wait beside them; more are refused"),
    ("--max-wait-s", "DSPARK_MAX_WAIT_S", f"{MAX_WAIT_S:g}", float, "seconds after which who waits is told an error"),
    ("--max-tokens", "DSPARK_MAX_TOKENS", "auto", _tokens, "tokens of all that run, prompts and answers together"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to serve and what to open.

    Attributes:
        address, port: where the page is served; 127.0.0.1 is this machine only.
        model: the target (``DSPARK_MODEL``).
        draft_model: its drafters (``DSPARK_DRAFT_MODEL``).
        device: ``DSPARK_DEVICE``.
        dtype: ``DSPARK_DTYPE``.
        limits: what the one engine takes on (``DSPARK_MAX_ACTIVE``, …): so many answers that the tab Load's users leave
            places for visitors.
        profile_s: seconds in which step times are measured where none are stored (``DSPARK_PROFILE_S``); 0 for never.
    """

    address: str = "127.0.0.1"
    port: int = 7860
    model: str = "smollm2-135m"
    draft_model: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    limits: Limits = field(default_factory=lambda: Limits(PAGE_ANSWERS))
    profile_s: float = PROFILE_S

    def open_session(self, progress: Progress) -> SessionPort:
        """Open the engine; heavy imports happen here, so that the page is up before. Raises DSparkError."""
        progress("importing the engine", 0.0)
        from dspark_core.loading import open_session

        session: SessionPort = open_session(
            self.model,
            draft_model=self.draft_model,
            device=self.device,
            dtype=self.dtype,
            limits=self.limits,
            progress=progress,
        )
        return session


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give a whole number from 1 to 65535")
    return int(text)


def read_settings(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from ``arguments`` (default: the command line) and ``environment`` (default: the process's)."""
    env = os.environ if environment is None else environment
    parser = argparse.ArgumentParser(prog="app.py", description="DSpark Playground: see speculative decoding at work.")
    parser.add_argument("--host", default=env.get("GRADIO_SERVER_NAME", "127.0.0.1"), help="address to serve on")
    port = env.get("PORT") or env.get("GRADIO_SERVER_PORT") or "7860"
    parser.add_argument("--port", type=_port, default=port, help="port to serve on (default 7860)")
    parser.add_argument("--model", default=env.get("DSPARK_MODEL", "smollm2-135m"), help="target model")
    add_draft_model_option(parser, env.get("DSPARK_DRAFT_MODEL", "auto"))
    parser.add_argument("--device", default=env.get("DSPARK_DEVICE", "auto"), help="auto, cpu, cuda, cuda:0, …")
    parser.add_argument("--dtype", default=env.get("DSPARK_DTYPE", "auto"), help="auto, float32, bfloat16, …")
    group = parser.add_argument_group("limits: all visitors share one engine")
    for option, variable, default, kind, about in _LIMITS:
        group.add_argument(option, type=kind, default=env.get(variable, default), help=f"{about} (%(default)s)")
    parser.add_argument(
        "--profile-s",
        type=_seconds,
        default=env.get("DSPARK_PROFILE_S", f"{PROFILE_S:g}"),
        metavar="S",
        help="measure what a step costs here where that is not stored, for about S seconds of an idle moment, so that "
        "all policies can serve; 0: never (%(default)s)",
    )
    args = parser.parse_args(arguments)
    try:
        limits = Limits(args.max_active, args.max_waiting, args.max_wait_s, args.max_tokens)
    except ParameterError as error:
        parser.error(str(error))
    return Settings(args.host, args.port, args.model, args.draft_model, args.device, args.dtype, limits, args.profile_s)
