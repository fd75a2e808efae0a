"""What the target's passes were like in a window: how many answers and tokens, how long, how much energy. Pure.

A round of n answers is told by each of them, so each telling counts 1/n: the means are over rounds. Where answers of
others ran beside, they count in n and are taken to have as many drafts as ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from dspark_core.load_test.trace import CellTrace, Commit


@dataclass(frozen=True, slots=True)
class Passes:
    """Means over the rounds of a window.

    Attributes:
        batch: answers in a round, those of others included.
        tokens: B, tokens in the target's pass: ``batch`` times the budget 1 + ℓ.
        seconds: of the pass alone, without drafting and scheduling.
    """

    batch: float
    tokens: float
    seconds: float


def passes(cell: CellTrace, max_active: int) -> Passes | None:
    """The passes of a window; ``max_active`` answers may run at once. None where no round told its occupancy."""
    told = [(commit, commit.occupancy * max_active) for commit in _commits(cell) if commit.occupancy]
    rounds = sum(1 / batch for _, batch in told)
    if not rounds:
        return None
    batch = len(told) / rounds
    budget = sum(1 + commit.verified for commit, _ in told) / len(told)
    seconds = sum((commit.round_s - commit.draft_s - commit.schedule_s) / n for commit, n in told) / rounds
    return Passes(batch, batch * budget, seconds)


def joules_per_token(cell: CellTrace) -> float | None:
    """Energy by the device's counter from the first round to the last, over the tokens committed between them.

    All that the device drew counts, its idling and the answers of others included; only the window's own tokens do.
    None where there is no counter, or it did not move.
    """
    told = sorted((c for c in _commits(cell) if c.energy_j is not None), key=lambda commit: commit.at_s)
    if len(told) < 2:
        return None
    joules = (told[-1].energy_j or 0.0) - (told[0].energy_j or 0.0)
    tokens = sum(commit.tokens for commit in told if commit.at_s > told[0].at_s)
    return joules / tokens if joules > 0 and tokens else None


def _commits(cell: CellTrace) -> list[Commit]:
    return [c for answer in cell.answers for c in answer.commits if cell.start_s < c.at_s <= cell.end_s]
