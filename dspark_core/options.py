"""Options that several commands share, and the checked values made from them."""

from __future__ import annotations

import argparse
from typing import Any

from dspark_core.errors import ParameterError
from dspark_core.params import LOAD_SIGNALS, SamplingParams, ScheduleParams
from dspark_core.scheduling import POLICIES, default_l_min

_SAMPLING = SamplingParams()
_SCHEDULE = ScheduleParams()


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """``--model``, ``--draft-model``, ``--device``, ``--dtype``."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", default="smollm2-135m", help="known name, folder or hub id (default: %(default)s)")
    add_draft_model_option(group)
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, …; auto: a GPU if there is one")
    group.add_argument("--dtype", default="auto", help="float32, bfloat16, …; auto: what suits the device")


def add_draft_model_option(parser: argparse._ActionsContainer, default: str = "auto") -> None:
    """``--draft-model``: a text with commas, however often it was given."""
    parser.add_argument(
        "--draft-model",
        default=default,
        action=_Joined,
        metavar="NAME",
        help="drafters: auto (those shipped for the model), none, names of shipped ones or folders; a folder may also "
        "hold a small language model with the same tokenizer; may be repeated, the first is the default (%(default)s)",
    )


class _Joined(argparse.Action):
    """The values of an option that is repeated, with commas between."""

    _given: str | None = None

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse's protocol
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Add one more."""
        self._given = values if self._given is None else f"{self._given},{values}"
        setattr(namespace, self.dest, self._given)


def add_schedule_options(parser: argparse.ArgumentParser, *, with_policy: bool = True) -> None:
    """``--policy``, where a command has one for all it does, the policies' bounds and numbers, ``--no-stop-early``."""
    group = parser.add_argument_group("schedule: how many drafted tokens are verified")
    if with_policy:
        group.add_argument("--policy", default=_SCHEDULE.policy, help=f"{', '.join(POLICIES)} (default: %(default)s)")
    group.add_argument(
        "--l-min",
        type=int,
        default=None,
        metavar="N",
        help=f"at least N (default: {_SCHEDULE.l_min}; 0 for policies that weigh drafts by the profile)",
    )
    group.add_argument("--l-max", type=int, default=_SCHEDULE.l_max, metavar="N", help="at most N (%(default)s)")
    group.add_argument(
        "--threshold",
        type=float,
        default=_SCHEDULE.threshold,
        metavar="C",
        help="cut before the first confidence below C, 0 to 1 (default: %(default)s)",
    )
    for bound, what in (("low", "stops below C"), ("high", "admits above C whatever the load")):
        group.add_argument(
            f"--band-{bound}",
            type=float,
            default=getattr(_SCHEDULE, f"band_{bound}"),
            metavar="C",
            help=f"the policy banded {what}, 0 to 1 (default: %(default)s)",
        )
    group.add_argument(
        "--load-signal",
        default=_SCHEDULE.load_signal,
        metavar="NAME",
        help=f"the load that the policy banded heeds: {', '.join(LOAD_SIGNALS)} (default: %(default)s)",
    )
    group.add_argument(
        "--simulated-load",
        type=float,
        default=None,
        metavar="X",
        help="the load that --load-signal simulated acts under, 0 (idle) to 1 (full); "
        f"told as simulated wherever it is shown (default: {_SCHEDULE.simulated_load})",
    )
    group.add_argument(
        "--no-stop-early",
        action="store_false",
        dest="stop_early",
        help="draft beyond the cut too, only to look at it: slower, and the text has the same law",
    )
    group.add_argument(
        "--back-off",
        action=argparse.BooleanOptionalAction,
        default=_SCHEDULE.back_off,
        help="decode plainly for a while when drafts cost more than they give; needs the profile (default: only with "
        "policies that weigh by it)",
    )


def add_sampling_options(parser: argparse.ArgumentParser, *, max_new_tokens: int) -> None:
    """``--temperature`` and what else makes the law of `SamplingParams`, ``--seed``, ``--max-new-tokens``."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", type=float, default=_SAMPLING.temperature, help="0 is greedy (default)")
    group.add_argument("--top-k", type=int, default=_SAMPLING.top_k, help="keep the k most likely (default: 0, all)")
    group.add_argument("--top-p", type=float, default=_SAMPLING.top_p, help="keep this much probability (default: all)")
    for name, default, what in (
        ("min-p", _SAMPLING.min_p, "keep tokens at least X times as likely as the most likely one, 0 to 1 (0, all)"),
        ("repetition-penalty", _SAMPLING.repetition_penalty, "on tokens of prompt and answer, 0.1 to 10 (1, none)"),
        ("presence-penalty", _SAMPLING.presence_penalty, "on tokens of the answer, once, -2 to 2 (0, none)"),
        ("frequency-penalty", _SAMPLING.frequency_penalty, "on tokens of the answer, each time, -2 to 2 (0, none)"),
    ):
        group.add_argument(f"--{name}", type=float, default=default, metavar="X", help=what)
    group.add_argument(
        "--logit-bias",
        action="append",
        default=[],
        type=_biased_token,
        metavar="ID=X",
        help="add X, -100 to 100, to the logit of the token ID; -inf bans it; may be repeated",
    )
    group.add_argument("--seed", type=int, default=None, help="the same seed gives the same text (default: random)")
    group.add_argument(
        "--max-new-tokens",
        type=int,
        default=max_new_tokens,
        metavar="N",
        help="end after N tokens (%(default)s)",
    )


def _biased_token(text: str) -> tuple[int, float]:
    token_id, equals, bias = text.partition("=")
    try:
        if equals:
            return int(token_id), float(bias)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no token id and bias; write them as in 198=-5")


def schedule_from(options: argparse.Namespace) -> ScheduleParams:
    """The schedule asked for. Raises ParameterError, also for a policy that does not exist."""
    simulated = options.simulated_load
    if simulated is not None and options.load_signal != "simulated":
        raise ParameterError(
            f"--simulated-load is {simulated:g}, and the load signal {options.load_signal!r} does not heed it. "
            "Add --load-signal simulated, or leave --simulated-load out."
        )
    return ScheduleParams(
        options.policy,
        default_l_min(options.policy) if options.l_min is None else options.l_min,
        options.l_max,
        options.threshold,
        options.stop_early,
        options.band_low,
        options.band_high,
        options.load_signal,
        _SCHEDULE.simulated_load if simulated is None else simulated,
        options.back_off,
    )


def sampling_from(options: argparse.Namespace, stop: tuple[str, ...] = ()) -> SamplingParams:
    """The sampling asked for. Raises ParameterError."""
    return SamplingParams(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        max_new_tokens=options.max_new_tokens,
        stop=stop,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        logit_bias=tuple(options.logit_bias),
    )
