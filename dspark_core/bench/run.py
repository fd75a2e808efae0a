"""One measured answer, and how plain decoding is asked for. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_core.params import ScheduleParams
from dspark_core.telemetry import Summary

PLAIN_SCHEDULE = ScheduleParams("fixed", 0, 0)


@dataclass(frozen=True, slots=True)
class Run:
    """One prompt answered by one lane.

    Attributes:
        token_ids: the answer, a stop token included.
        summary: its figures.
        wall_s: seconds from the request to the last token, prefill included, as a caller sees it.
    """

    token_ids: tuple[int, ...]
    summary: Summary
    wall_s: float
