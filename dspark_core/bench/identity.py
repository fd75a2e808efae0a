"""Whether two answers are the same, token for token; and where they part, how near the two tokens were to a tie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dspark_core.bench.lap import Lap
from dspark_core.bench.paired import first_difference
from dspark_core.bench.run import PLAIN_SCHEDULE
from dspark_core.errors import DSparkError
from dspark_core.events import Candidate, DecodeRound, Event, Finished
from dspark_core.params import GenerationRequest, SamplingParams
from dspark_core.ports import LoadedEngine

_LONGEST_LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class Sameness:
    """How an answer compares with another one to the same question under greedy decoding.

    Attributes:
        verdict: "same" (whole answers, equal token for token), "differs", or "so far" (equal as far as both got, but
            one was stopped before its end).
        tokens: how many tokens from the start are equal.
        ours, theirs: the first tokens that differ; None where that answer had ended before.
    """

    verdict: Literal["same", "differs", "so far"]
    tokens: int
    ours: int | None = None
    theirs: int | None = None


def sameness(ours: Lap, theirs: Lap) -> Sameness:
    """How the lap compares with the other one."""
    mine, other = ours.run.token_ids, theirs.run.token_ids
    first = first_difference(mine, other)
    if first is None:
        return Sameness("same" if ours.whole and theirs.whole else "so far", len(mine))
    cut = [lap for lap in (ours, theirs) if not lap.whole and len(lap.run.token_ids) == first]
    if cut:
        return Sameness("so far", first)
    return Sameness("differs", first, _at(mine, first), _at(other, first))


def _at(token_ids: Sequence[int], place: int) -> int | None:
    return token_ids[place] if place < len(token_ids) else None


@dataclass(frozen=True, slots=True)
class TokenGap:
    """Two tokens under the target's law after the same text, in one extra pass.

    Attributes:
        ours, theirs: the tokens' texts ('' where there is none).
        gap: logit of theirs minus logit of ours; None where it is not known.
        at_least: whether one of them was not among the tokens told, so that the gap is at least as large as that.
    """

    ours: str
    theirs: str
    gap: float | None = None
    at_least: bool = False


def look_at(course: LoadedEngine, text_ids: Sequence[int], ours: int | None, theirs: int | None) -> TokenGap:
    """Ask the target once more for its law after ``text_ids``. Raises DSparkError when it does not answer.

    A logit gap is the logarithm of the ratio of the two probabilities at temperature 1, which an inspected greedy round
    tells. It is the gap of this pass: with another number of rows, kernels of bfloat16 round otherwise.
    """
    request = GenerationRequest(
        tuple(text_ids),
        SamplingParams(max_new_tokens=1),
        PLAIN_SCHEDULE,
        "none",
        inspect=True,
    )
    for event in _events(course, request):
        if isinstance(event, Finished) and event.finish_reason == "error":
            raise DSparkError(event.detail)
        if isinstance(event, DecodeRound) and event.inspection is not None:
            return gap_in(event.inspection.bonus, ours, theirs)
    raise DSparkError("The target's law at the difference could not be had.")


def _events(course: LoadedEngine, request: GenerationRequest) -> list[Event]:
    stream = course.submit(request)
    events: list[Event] = []
    try:
        while not (events and isinstance(events[-1], Finished)):
            event = stream.next_event(_LONGEST_LOOK_S)
            if event is None:
                break
            events.append(event)
    finally:
        stream.cancel()
    return events


def gap_in(candidates: Sequence[Candidate], ours: int | None, theirs: int | None) -> TokenGap:
    """The gap between two tokens, as the most likely tokens of a law tell it."""
    told = {candidate.id: candidate for candidate in candidates if candidate.target}
    seen = TokenGap(_text(told, ours), _text(told, theirs))
    shares = [told[token].target if token in told else None for token in (ours, theirs)]
    if ours is None or theirs is None or shares == [None, None]:
        return seen
    least = min(candidate.target or 0.0 for candidate in told.values())  # what is not told is at most as likely
    mine, other = (least if share is None else share for share in shares)
    return replace(seen, gap=math.log(other) - math.log(mine), at_least=None in shares)


def _text(told: dict[int, Candidate], token: int | None) -> str:
    return told[token].text if token is not None and token in told else ""
