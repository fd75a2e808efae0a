"""The command ``infer``: one prompt, one answer; text as it comes, or one JSON event a line."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_core.catalog import find_model
from dspark_core.draft_folders import drafter_names
from dspark_core.errors import ParameterError, shown, so_many
from dspark_core.event_json import to_line
from dspark_core.events import DecodeRound, Event, Finished, Prefilled, Waiting
from dspark_core.fetch import ProgressBar
from dspark_core.files import check_place
from dspark_core.options import (
    add_model_options,
    add_sampling_options,
    add_schedule_options,
    sampling_from,
    schedule_from,
)
from dspark_core.recording import header_of
from dspark_core.telemetry import Summary, Telemetry, record
from dspark_core.terminal import printable, tell, write_text

if TYPE_CHECKING:
    from dspark_core.engine import Generation

_EXIT_CODES = {"stop": 0, "length": 0, "cancelled": 130, "error": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core infer``."""
    parser.add_argument(
        "--prompt",
        required=True,
        help="what to answer; - reads it from standard input; write --prompt=TEXT where it begins with a dash",
    )
    parser.add_argument("--system", default=None, help="system prompt (default: the model's own)")
    parser.add_argument("--json", action="store_true", help="one JSON event a line instead of text")
    parser.add_argument(
        "--inspect",
        action="store_true",
        help="with --json or --record: each round also tells the laws that decided, by their most likely tokens",
    )
    parser.add_argument(
        "--record",
        type=Path,
        default=None,
        metavar="FILE",
        help="also write the answer's trace, for the tab Rounds of any page: JSON lines; FILE.gz is compressed",
    )
    parser.add_argument(
        "--drafter",
        default=None,
        help="one that --draft-model loads, by its kind (dspark, dspark-rnn, dspark-conv, dspark-gated, dflash, lm) "
        "or by its folder's name where two are of a kind; ngram (prompt look-up); none (plain decoding); default: the "
        "first one loaded",
    )
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before TEXT; may be repeated")
    add_model_options(parser)
    add_schedule_options(parser)
    add_sampling_options(parser, max_new_tokens=512)


def run(options: argparse.Namespace) -> int:
    """Answer the prompt; returns the exit code. Raises the DSparkError family before the first event."""
    sampling, schedule = sampling_from(options, tuple(options.stop)), schedule_from(options)
    if options.drafter is not None:
        _check_drafter(options)
    if options.inspect and not (options.json or options.record):
        raise ParameterError(
            "--inspect adds to the events, and the text does not show them. Add --json or --record, or leave it out."
        )
    if options.record:
        check_place(options.record)
    messages = _messages(options)
    from dspark_core.loading import open_session  # torch is slow to import: first the checks that need none

    bar = ProgressBar()
    try:
        session = open_session(
            options.model, draft_model=options.draft_model, device=options.device, dtype=options.dtype, progress=bar
        )
    finally:
        bar.close()
    try:
        drafter = options.drafter or session.default_drafter
        if not options.drafter and drafter == "none":
            tell(f"dspark: no drafter for {session.info.model} here, so this is plain decoding.\n")
        request = replace(session.request(messages, sampling, schedule, drafter), inspect=options.inspect)
        header = header_of(session.info, request, messages)
        with session.engine.submit(request) as generation:
            heard: list[Event] = []
            code = _show(_kept(generation, heard), generation, as_json=options.json)
            if options.record:
                record(heard, options.record, header)
            return code
    finally:
        session.close()


def _check_drafter(options: argparse.Namespace) -> None:
    names = drafter_names(find_model(options.model), options.draft_model)
    if options.drafter not in names:
        raise ParameterError(f"There is no drafter named {shown(options.drafter)}. Choose one of: {', '.join(names)}.")


def _messages(options: argparse.Namespace) -> list[dict[str, str]]:
    prompt = sys.stdin.buffer.read().decode("utf-8-sig", "replace") if options.prompt == "-" else options.prompt
    if not prompt.strip():
        raise ParameterError("The prompt is empty. Write something to answer.")
    system = [] if options.system is None else [{"role": "system", "content": options.system}]
    return [*system, {"role": "user", "content": prompt}]


def _kept(events: Iterable[Event], heard: list[Event]) -> Iterator[Event]:
    """The events as they come, each of which is also put into ``heard``."""
    for event in events:
        heard.append(event)
        yield event


def _show(events: Iterable[Event], generation: Generation, *, as_json: bool) -> int:
    telemetry = Telemetry()
    seed = 0
    with _interrupt_cancels(generation):
        for event in events:
            telemetry.add(event)
            write_text(sys.stdout, to_line(event) + "\n" if as_json else _text_of(event))
            if isinstance(event, Prefilled):
                seed = event.seed
            elif isinstance(event, Waiting) and not as_json:
                tell(f"{event.text}\n")
            elif isinstance(event, Finished):
                if not as_json:
                    tell(_closing_line(event, telemetry.summary(), seed) + "\n")
                return _EXIT_CODES[event.finish_reason]
    raise AssertionError("the engine's stream ended without a Finished event")


@contextmanager
def _interrupt_cancels(generation: Generation) -> Iterator[None]:
    """The first Ctrl-C cancels the generation, whose last events still come; the second does not wait for them."""
    previous = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()  # nobody else may set handlers
    if previous in (None, signal.SIG_IGN) or not in_main_thread:
        yield
        return

    def cancel(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, previous)
        generation.cancel()

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _text_of(event: Event) -> str:
    if isinstance(event, DecodeRound):
        return "".join(token.text for token in event.committed)
    if isinstance(event, Finished):
        needs_newline = sys.stdout.isatty() and not event.text.endswith("\n")
        return event.text_delta + ("\n" if needs_newline else "")
    return ""


def _closing_line(finished: Finished, summary: Summary, seed: int) -> str:
    rate = summary.acceptance_rate
    parts = [
        f"{finished.finish_reason}: {printable(finished.detail)}",
        f"{so_many(summary.tokens, 'token')} in {so_many(summary.rounds, 'round')}, τ {summary.tau:.2f}",
        "nothing drafted"
        if rate is None
        else f"{summary.accepted} of {summary.verified} verified drafts accepted ({rate:.0%})",
        f"{summary.tokens_per_s:.1f} tokens/s",
        f"seed {seed}",
    ]
    return "[" + " · ".join(parts) + "]"
