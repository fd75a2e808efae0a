"""Each visitor steers the own answer and nobody else's."""

from dspark_core.params import ScheduleParams
from ui.visitors import Visitors


class Recorder:
    def __init__(self):
        self.cancelled = False
        self.schedules = []

    def cancel(self):
        self.cancelled = True

    def update_schedule(self, schedule):
        self.schedules.append(schedule)


def test_a_visitor_reaches_only_the_own_answer():
    visitors, mine, yours = Visitors(), Recorder(), Recorder()
    visitors.begin("me", mine)
    visitors.begin("you", yours)
    assert visitors.update_schedule("me", ScheduleParams(l_max=2))
    assert visitors.stop("me")
    assert mine.cancelled
    assert not yours.cancelled
    assert yours.schedules == []
    assert not visitors.stop("stranger")
    assert not visitors.update_schedule("stranger", ScheduleParams())


def test_an_ended_answer_is_struck_out_and_cannot_strike_out_its_successor():
    visitors, first, second = Visitors(), Recorder(), Recorder()
    visitors.begin("me", first)
    visitors.begin("me", second)
    assert first.cancelled
    visitors.end("me", first)
    assert visitors.holds("me", second)
    visitors.end("me", second)
    assert len(visitors) == 0


def test_a_forgotten_answer_is_cancelled_and_no_longer_held():
    visitors, answer = Visitors(), Recorder()
    visitors.begin("me", answer)
    visitors.forget("me")
    assert answer.cancelled
    assert not visitors.holds("me", answer)
    assert not visitors.running("me")
