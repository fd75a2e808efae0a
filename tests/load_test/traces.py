"""Hand-made traces of a load test."""

from dspark_core.load_test.trace import AnswerTrace, CellTrace, Commit


def commit(at_s, tokens=1, verified=0, accepted=0, seconds=(1.0, 0.0, 4.0)):
    """A round; ``seconds`` are its drafting, its scheduling and all of it."""
    return Commit(at_s, tokens, verified, accepted, *seconds)


def answer(index, submitted_s, commits, ended_s=None, kind="chat"):
    return AnswerTrace(index, kind, submitted_s, tuple(commits), ended_s)


def steady(tokens_per_s, *, seconds=10, verified=0, accepted=0, answers=2, schedule_s=0.0):
    """One user whose answers follow one another, each with a round a second of so many tokens."""
    of = [
        answer(
            index,
            float(index * seconds),
            [
                commit(index * seconds + second, tokens_per_s, verified, accepted, (1.0, schedule_s, 4.0))
                for second in range(1, seconds + 1)
            ],
            float((index + 1) * seconds),
        )
        for index in range(answers)
    ]
    return CellTrace(1, 0.0, float(answers * seconds), tuple(of), answers)
