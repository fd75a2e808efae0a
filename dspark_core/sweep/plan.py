"""In which order a sweep's answers are asked for: plain decoding always near, everybody in turn.

A block is one prompt in one repeat; in it, all settings answer. They go in groups of one temperature, each with a run
of plain decoding, so that a setting and the run that it is compared with are at most `GROUP` answers apart. Who begins
changes from block to block, so that a machine that heats up or slows down treats all alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dspark_core.bench.paired import rotated
from dspark_core.bench.prompts import Prompt
from dspark_core.errors import ParameterError
from dspark_core.sweep.grid import Point

GROUP = 4  # settings for one run of plain decoding


@dataclass(frozen=True, slots=True)
class Settings:
    """What every setting of the grid is measured with.

    Attributes:
        prompts: the questions, at least one; the first turn of each is asked.
        max_new_tokens: tokens of an answer at most.
        repeats: how often every prompt is answered.
        seed: of the first prompt in the first repeat.

    Raises:
        ParameterError: there is no prompt, or no repeat.
    """

    prompts: tuple[Prompt, ...]
    max_new_tokens: int = 64
    repeats: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.prompts:
            raise ParameterError("There is no prompt. Write one a line, or choose a built-in set.")
        if not 1 <= self.repeats <= 100:
            raise ParameterError(f"repeats is {self.repeats}; it must be a whole number from 1 to 100.")


@dataclass(frozen=True, slots=True)
class Step:
    """One answer.

    Attributes:
        point: index of the setting, or None for plain decoding.
        temperature: of both.
        prompt: index of the prompt.
        repeat: 0, 1, …
        group: settings and the plain run of the same group are compared.
    """

    point: int | None
    temperature: float
    prompt: int
    repeat: int
    group: int


def steps(points: Sequence[Point], settings: Settings) -> list[Step]:
    """All answers of a sweep, in order."""
    blocks = [(repeat, prompt) for repeat in range(settings.repeats) for prompt in range(len(settings.prompts))]
    made: list[Step] = []
    group = 0
    for number, (repeat, prompt) in enumerate(blocks):
        for temperature, members in _groups(points, number):
            lanes = rotated([None, *members], number)
            made += [Step(point, temperature, prompt, repeat, group) for point in lanes]
            group += 1
    return made


def _groups(points: Sequence[Point], block: int) -> Iterator[tuple[float, list[int]]]:
    for temperature in dict.fromkeys(point.temperature for point in points):
        of_it = [index for index, point in enumerate(points) if point.temperature == temperature]
        turned = rotated(of_it, block * GROUP)
        for start in range(0, len(turned), GROUP):
            yield temperature, turned[start : start + GROUP]
