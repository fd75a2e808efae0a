"""What a request asks for: plain frozen values, checked once, where they enter. No torch here."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from dspark_core.errors import ParameterError, shown

MAX_NEW_TOKENS_LIMIT = 8192
MIN_TEMPERATURE = 0.01  # below it logits / temperature leaves float32; 0 is exact greedy decoding
MAX_STOP_STRINGS = 16
MAX_LOGIT_BIAS = 100.0
_LARGEST = sys.float_info.max

LoadSignal = Literal["occupancy", "engine", "device", "simulated"]
LOAD_SIGNALS: tuple[LoadSignal, ...] = get_args(LoadSignal)
_OLD_SIGNALS = {"busy": "device"}  # as earlier versions called them


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ParameterError(message)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    """Whole numbers beyond any float fail too, as NaN does."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return -_LARGEST <= value <= _LARGEST


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn from the target's logits and when the text ends.

    The law of a token, in this order:

    1. add ``logit_bias`` to the logits,
    2. ``repetition_penalty`` on every token that occurs in prompt or answer so far,
    3. ``frequency_penalty`` and ``presence_penalty`` on every token that occurs in the answer so far,
    4. divide by ``temperature``,
    5. keep the ``top_k`` most likely tokens,
    6. of these the smallest set of most likely ones whose probability reaches ``top_p``,
    7. of these the ones at least ``min_p`` times as likely as the most likely one; renormalise.

    transformers has this order (without step 3); so does vLLM, but that it takes min_p before top_k and top_p.
    llama.cpp divides by the temperature last. ``temperature=0`` is greedy decoding: the first most likely token after
    step 3, so that 5 to 7 change nothing.

    Attributes:
        temperature: 0 (greedy), or 0.01 to 10.
        top_k: number of candidates kept; 0 keeps all.
        top_p: probability mass kept, in (0, 1].
        seed: seed of this request's own generator; None draws one, which the ``Prefilled`` event reports.
        max_new_tokens: the text ends after so many committed tokens (``length``).
        stop: strings that end the text; the text is cut just before the first of them.
        min_p: least probability kept, as a share of the largest one, in [0, 1]; 0 keeps all.
        repetition_penalty: positive logits are divided by it and negative ones multiplied, 0.1 to 10; 1 changes
            nothing, more makes repetition rarer (CTRL, arXiv:1909.05858).
        presence_penalty: taken off the logit once, -2 to 2 (as in OpenAI's API).
        frequency_penalty: taken off the logit for each time the answer has the token, -2 to 2 (as in OpenAI's API).
        logit_bias: (token id, bias) pairs, each id once; -100 to 100, or minus infinity, which bans the token.

    Raises:
        ParameterError: a value is outside its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    max_new_tokens: int = 512
    stop: tuple[str, ...] = ()
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = field(default=(), metadata={"may_be_absent": True})

    def __post_init__(self) -> None:
        _require(
            _is_finite(self.temperature) and (self.temperature == 0 or MIN_TEMPERATURE <= self.temperature <= 10),
            f"temperature is {shown(self.temperature)}; it must be 0 (greedy) or a number from {MIN_TEMPERATURE} to "
            "10.",
        )
        _require(
            _is_int(self.top_k) and self.top_k >= 0,
            f"top_k is {shown(self.top_k)}; it must be a whole number, 0 (keep all) or more.",
        )
        _require(
            _is_finite(self.top_p) and 0 < self.top_p <= 1,
            f"top_p is {shown(self.top_p)}; it must be above 0 and at most 1 (1 keeps all).",
        )
        _require(
            self.seed is None or (_is_int(self.seed) and 0 <= self.seed < 2**63),
            f"seed is {shown(self.seed)}; it must be a whole number from 0 to 2^63 - 1, or None for a random one.",
        )
        _require(
            _is_int(self.max_new_tokens) and 1 <= self.max_new_tokens <= MAX_NEW_TOKENS_LIMIT,
            f"max_new_tokens is {shown(self.max_new_tokens)}; it must be a whole number from 1 to "
            f"{MAX_NEW_TOKENS_LIMIT}.",
        )
        _require(
            isinstance(self.stop, tuple)
            and len(self.stop) <= MAX_STOP_STRINGS
            and all(isinstance(text, str) and text for text in self.stop),
            f"stop is {shown(self.stop)}; it must be a tuple of at most {MAX_STOP_STRINGS} non-empty strings.",
        )
        for name, low, high in (
            ("min_p", 0, 1),
            ("repetition_penalty", 0.1, 10),
            ("presence_penalty", -2, 2),
            ("frequency_penalty", -2, 2),
        ):
            value = getattr(self, name)
            _require(
                _is_finite(value) and low <= value <= high,
                f"{name} is {shown(value)}; it must be a number from {low} to {high}.",
            )
        _check_bias(self.logit_bias)

    @property
    def greedy(self) -> bool:
        """Whether the law is a one-hot on the most likely token."""
        return self.temperature == 0

    @property
    def penalises(self) -> bool:
        """Whether the law depends on which tokens came before, beyond the logits themselves."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


def _check_bias(pairs: tuple[tuple[int, float], ...]) -> None:
    _require(
        isinstance(pairs, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs),
        f"logit_bias is {shown(pairs)}; it must be a tuple of (token id, bias) pairs: tuple(bias.items()) of a dict.",
    )
    named = set()
    for token_id, bias in pairs:  # there may be one for each token: texts are only made where they are needed
        if not (_is_int(token_id) and token_id >= 0):
            raise ParameterError(
                f"logit_bias names the token id {shown(token_id)}; it must be a whole number, 0 or more."
            )
        if token_id in named:
            raise ParameterError(f"logit_bias names the token {shown(token_id)} twice. Give each token one bias.")
        named.add(token_id)
        if not (bias == -math.inf or (_is_finite(bias) and abs(bias) <= MAX_LOGIT_BIAS)):
            raise ParameterError(
                f"logit_bias gives the token {shown(token_id)} {shown(bias)}; it must be a number from "
                f"{-MAX_LOGIT_BIAS:g} to {MAX_LOGIT_BIAS:g}, or minus infinity, which bans the token."
            )


@dataclass(frozen=True, slots=True)
class ScheduleParams:
    """How many of the drafted tokens are verified in a round; may be replaced while the answer runs.

    Attributes:
        policy: name of a `SchedulerPolicy` (see `dspark_core.scheduling`).
        l_min: at least so many drafts are verified (as far as so many were drafted), ≥ 0.
        l_max: at most so many, ≥ ``l_min``; values above the drafter's γ act as γ.
        threshold: the ``threshold`` policy cuts before the first own confidence c_k below it, in [0, 1].
        stop_early: whether drafting ends where the policy can verify nothing more. False drafts all γ, to look at what
            would have come beyond the cut; the text's law is the target's either way.
        band_low, band_high: the ``banded`` policy stops below the one and admits above the other,
            0 ≤ ``band_low`` ≤ ``band_high`` ≤ 1.
        load_signal: which load ``banded`` heeds: "occupancy", the answers in the round over those that may run at once;
            "engine", the share of the last seconds in which the engine computed; "device", the utilisation of the GPU,
            or of the CPU where the model runs there ("busy" in older versions, and still understood); "simulated",
            the number ``simulated_load``.
        simulated_load: the load to act under with the signal "simulated", from 0 (idle) to 1 (full); told as simulated
            wherever it is shown.
        back_off: whether the request decodes plainly for a while when its drafts cost more than they give (see
            `dspark_core.scheduling.back_off`), for which the profile is needed. None: where the policy weighs by the
            profile anyway. So the others are what they say, ``fixed`` above all, which comparisons are made with.

    Raises:
        ParameterError: a value is outside its range, ``l_min > l_max``, or ``band_low > band_high``.
    """

    policy: str = "threshold"
    l_min: int = 1
    l_max: int = 8
    threshold: float = 0.3
    stop_early: bool = True
    band_low: float = 0.6
    band_high: float = 0.9
    load_signal: LoadSignal = "occupancy"
    simulated_load: float = 0.5
    back_off: bool | None = None

    def __post_init__(self) -> None:
        _require(
            isinstance(self.policy, str) and bool(self.policy), f"policy is {shown(self.policy)}; it must be a name."
        )
        for name in ("l_min", "l_max"):
            value = getattr(self, name)
            _require(
                _is_int(value) and 0 <= value <= 64,
                f"{name} is {shown(value)}; it must be a whole number from 0 to 64.",
            )
        _require(
            self.l_min <= self.l_max,
            f"l_min is {self.l_min} and l_max is {self.l_max}; l_min must not be above l_max. "
            "Lower l_min or raise l_max.",
        )
        for name in ("threshold", "band_low", "band_high", "simulated_load"):
            share = getattr(self, name)
            _require(
                _is_finite(share) and 0 <= share <= 1,
                f"{name} is {shown(share)}; it must be a number from 0 to 1.",
            )
        _require(
            self.band_low <= self.band_high,
            f"band_low is {self.band_low} and band_high is {self.band_high}; band_low must not be above band_high. "
            "Lower band_low or raise band_high.",
        )
        if isinstance(self.load_signal, str) and self.load_signal in _OLD_SIGNALS:
            object.__setattr__(self, "load_signal", _OLD_SIGNALS[self.load_signal])
        _require(
            self.load_signal in LOAD_SIGNALS,
            f"load_signal is {shown(self.load_signal)}; choose one of: {', '.join(LOAD_SIGNALS)}.",
        )
        _require(
            isinstance(self.stop_early, bool), f"stop_early is {shown(self.stop_early)}; it must be True or False."
        )
        _require(
            self.back_off is None or isinstance(self.back_off, bool),
            f"back_off is {shown(self.back_off)}; it must be True, False, or None (as the policy has it).",
        )


@dataclass(frozen=True, slots=True)
class Preset:
    """A named pair of bounds and threshold, as the article that the project follows gives them."""

    name: str
    schedule: ScheduleParams

    def clipped_to(self, num_draft_tokens: int) -> tuple[ScheduleParams, str]:
        """The preset within what a drafter of γ = ``num_draft_tokens`` can give, and a note ('' if nothing changed)."""
        schedule = self.schedule
        l_max = min(schedule.l_max, num_draft_tokens)
        clipped = replace(schedule, l_min=min(schedule.l_min, l_max), l_max=l_max)
        if clipped == schedule:
            return clipped, ""
        return clipped, (
            f"The preset asks for L_max {schedule.l_max}; this drafter drafts γ = {num_draft_tokens} tokens a round, "
            f"so L_min {clipped.l_min}, L_max {clipped.l_max} are used."
        )


PRESETS: tuple[Preset, ...] = (
    Preset("low latency", ScheduleParams("threshold", 3, 8, 0.7)),
    Preset("high throughput", ScheduleParams("threshold", 5, 15, 0.6)),
)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer to generate.

    Attributes:
        prompt_ids: token ids of the whole prompt (chat template applied), at least one. Any sequence; kept as a tuple.
        sampling: the law of the answer.
        schedule: the verification schedule to start with.
        drafter: name of a drafter the engine has (``none`` is plain decoding).
        inspect: whether each round tells the laws that decided (`Inspection`). That takes time, outside of the round's
            timings, and changes nothing else.

    Raises:
        ParameterError: the prompt is empty, or not of whole numbers; ``inspect`` is not a bool.
    """

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    schedule: ScheduleParams = field(default_factory=ScheduleParams)
    drafter: str = "dspark"
    inspect: bool = False

    def __post_init__(self) -> None:
        _require(isinstance(self.inspect, bool), f"inspect is {self.inspect!r}; it must be True or False.")
        _require(
            isinstance(self.prompt_ids, Sequence) and len(self.prompt_ids) > 0,
            "The prompt is empty. Write something to answer.",
        )
        object.__setattr__(self, "prompt_ids", tuple(self.prompt_ids))  # a list could change while the answer runs
        odd = [token_id for token_id in self.prompt_ids if not _is_int(token_id)]
        _require(
            not odd,
            f"The prompt holds {shown(odd[:1])} where a whole number, a token id, is needed. Encode the text with this "
            "model's own tokenizer.",
        )
