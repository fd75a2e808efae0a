"""What a load test records: when each answer of each user moved on, and by how much. No torch here.

All times are seconds of one clock that only ever rises, read at the moment the engine tells an event.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Commit:
    """One round of one answer.

    Attributes:
        at_s: when its tokens came.
        tokens: committed tokens, the target's own included.
        verified, accepted: drafts that the target checked, and those of them that joined the answer.
        draft_s, schedule_s, round_s: seconds of the round, which all running answers shared.
        occupancy: answers in that round, whoever's, over those that may run at once; None where it is not told.
        energy_j: joules by the device's counter at that time; None where there is no such counter.
    """

    at_s: float
    tokens: int
    verified: int
    accepted: int
    draft_s: float
    schedule_s: float
    round_s: float
    occupancy: float | None = None
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerTrace:
    """One answer.

    Attributes:
        index: its place in the order of questions, from 0; below 0 for the answers that users began with.
        kind: the set that its prompt belongs to.
        submitted_s: when it was asked for.
        commits: its rounds, in order.
        ended_s: when it ended by itself; None where the test ended before it.
    """

    index: int
    kind: str
    submitted_s: float
    commits: tuple[Commit, ...]
    ended_s: float | None

    @property
    def tokens(self) -> int:
        """Committed tokens."""
        return sum(commit.tokens for commit in self.commits)

    @property
    def first_token_s(self) -> float | None:
        """Time to first token: from asking to the first committed token, any waiting included; None without one."""
        return self.commits[0].at_s - self.submitted_s if self.commits else None

    @property
    def tokens_per_s(self) -> float | None:
        """Speed for its user: tokens after the first commit over the time from the first commit to the last.

        The tokens of the first commit stand where that time begins. None where there was no second commit.
        """
        if len(self.commits) < 2:
            return None
        seconds = self.commits[-1].at_s - self.commits[0].at_s
        return (self.tokens - self.commits[0].tokens) / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class CellTrace:
    """One method with N users, once.

    Attributes:
        users: N.
        start_s: when the last of the users had a first token: from here on all N are served.
        end_s: when the last of the answers that count ended, or the time was up; until here all N are served.
        answers: all that were asked, in the order in which they ended.
        counting: so many questions of the list count; None where all do that ended in the window.
    """

    users: int
    start_s: float
    end_s: float
    answers: tuple[AnswerTrace, ...]
    counting: int | None = None

    @property
    def wall_s(self) -> float:
        """Seconds of the window in which all users are served."""
        return self.end_s - self.start_s
