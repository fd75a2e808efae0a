"""What visitors enter becomes checked parameters, or an error that says what to do. Direct calls come here too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from dspark_core.errors import ParameterError, shown
from dspark_core.fields import LARGEST_NUMBER
from dspark_core.params import LOAD_SIGNALS, SamplingParams, ScheduleParams

# The controls of a page that make a schedule and a law, in the order that the functions below take their values.
SCHEDULE_CONTROLS = (
    "policy", "l_min", "l_max", "threshold", "beyond_cut", "band_low", "band_high", "load_signal", "simulated_load",
)  # fmt: skip
SAMPLING_CONTROLS = (
    "temperature", "top_p", "max_tokens", "seed",
    "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
LONGEST_SEED = 40  # digits as typed; the largest seed has 19
MAX_CHARACTERS = 1_000_000  # far above any context: a guard for the tokenizer, which the context limit follows


def read_whole(name: str, value: object) -> int:
    """A whole number. Raises ParameterError."""
    if not _is_number(value):
        raise ParameterError(f"{name} is {_shown(value)}; enter a whole number.")
    if value != int(value):
        raise ParameterError(f"{name} is {value}; it must be a whole number.")
    return int(value)


def read_between(name: str, value: object, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``. Raises ParameterError."""
    number = read_whole(name, value)
    if not low <= number <= high:
        raise ParameterError(f"{name} is {shown(number)}; it must be a whole number from {low} to {high}.")
    return number


def read_number(name: str, value: object) -> float:
    """A finite number. Raises ParameterError."""
    if not _is_number(value):
        raise ParameterError(f"{name} is {_shown(value)}; enter a number.")
    return float(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether a float can hold it: not every whole number that JSON may bring is such."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER  # nor NaN


def _shown(value: object) -> str:
    return "empty" if value is None or value == "" else shown(value)


def read_seed(value: object) -> int | None:
    """A seed as its field has it; None where that is empty. Raises ParameterError."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        if not value.strip().isascii() or not value.strip().isdigit():
            raise ParameterError(f"The seed is {_shown(value)}; enter a whole number, or leave it empty for a new one.")
        if len(value) > LONGEST_SEED:
            raise ParameterError(f"The seed is {shown(value)}; it has {len(value):,} digits, and no seed has so many.")
        return int(value)
    return read_whole("The seed", value)


def check_seed(text: str) -> None:
    """Raises ParameterError for what is no seed."""
    SamplingParams(seed=read_seed(text))


def read_schedule(
    policy: object, l_min: object, l_max: object, threshold: object, beyond_cut: object, band_low: object,
    band_high: object, load_signal: object, simulated_load: object,
) -> ScheduleParams:  # fmt: skip
    """The schedule that the controls say. Raises ParameterError."""
    if not isinstance(policy, str):
        raise ParameterError(f"The policy is {_shown(policy)}; choose one from the list.")
    if not isinstance(beyond_cut, bool):
        raise ParameterError(f"'Draft beyond the cut' is {_shown(beyond_cut)}; tick it, or leave it empty.")
    if load_signal not in LOAD_SIGNALS:
        raise ParameterError(f"The load signal is {_shown(load_signal)}; choose one from the list.")
    return ScheduleParams(
        policy,
        read_whole("L_min", l_min),
        read_whole("L_max", l_max),
        read_number("The threshold", threshold),
        stop_early=not beyond_cut,
        band_low=read_number("The lower band", band_low),
        band_high=read_number("The upper band", band_high),
        load_signal=load_signal,
        simulated_load=read_number("The simulated load", simulated_load),
    )


def read_sampling(
    temperature: object, top_p: object, max_tokens: object, seed: object, min_p: object = 0,
    repetition_penalty: object = 1, presence_penalty: object = 0, frequency_penalty: object = 0,
) -> SamplingParams:  # fmt: skip
    """The sampling law that the controls say. Raises ParameterError."""
    return SamplingParams(
        temperature=read_number("The temperature", temperature),
        top_p=read_number("Top-p", top_p),
        seed=read_seed(seed),
        max_new_tokens=read_whole("Max tokens", max_tokens),
        min_p=read_number("Min-p", min_p),
        repetition_penalty=read_number("The repetition penalty", repetition_penalty),
        presence_penalty=read_number("The presence penalty", presence_penalty),
        frequency_penalty=read_number("The frequency penalty", frequency_penalty),
    )


def read_inspect(value: object) -> bool:
    """Whether the laws are collected. Raises ParameterError."""
    if not isinstance(value, bool):
        raise ParameterError(f"'Collect the laws for Rounds' is {_shown(value)}; tick it, or leave it empty.")
    return value


def read_repeats(value: object) -> int:
    """How often something is done. Raises ParameterError."""
    return read_whole("The number of repeats", value)


def read_text(name: str, value: object, longest: int = MAX_CHARACTERS) -> str:
    """A text of at most so many characters. Raises ParameterError."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ParameterError(f"{name} must be text.")
    if len(value) > longest:
        raise ParameterError(
            f"{name} has {len(value):,} characters; at most {longest:,} are read. Shorten it and send again."
        )
    return value


def read_texts(name: str, value: object) -> list[str]:
    """A list of texts; none where nothing is given. Raises ParameterError."""
    if value is None:
        return []
    if not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value) or isinstance(value, str):
        raise ParameterError(f"{name} must be a list of texts.")
    return list(value)


def read_drafter(value: object, known: Sequence[str]) -> str:
    """A drafter's name; the first of ``known`` where the text is empty. Raises ParameterError."""
    if not isinstance(value, str):
        raise ParameterError(f"The drafter is {shown(value)}; give a name, or an empty text for the first one.")
    return value or known[0]


def read_prompt(value: object) -> str:
    """The visitor's message. Raises ParameterError when it is empty."""
    text = read_text("The message", value)
    if not text.strip():
        raise ParameterError("The message is empty. Write something to answer, or choose an example.")
    return text
