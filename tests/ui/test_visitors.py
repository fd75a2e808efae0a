"""Each visitor steers the own answer and nobody else's."""

import pytest

from dspark_core.errors import ParameterError
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


def test_a_message_whose_conversation_is_forgotten_before_its_answer_begins_is_not_answered():
    visitors, answer, next_answer = Visitors(), Recorder(), Recorder()
    ticket = visitors.ask("me")
    assert not visitors.forget("me")
    with pytest.raises(ParameterError, match="send it again"):
        visitors.begin("me", answer, ticket)
    assert answer.cancelled
    assert not visitors.running("me")
    visitors.begin("me", next_answer, visitors.ask("me"))
    assert visitors.holds("me", next_answer)


def test_a_message_that_is_given_up_leaves_nothing():
    visitors = Visitors()
    visitors.give_up("me", visitors.ask("me"))
    assert visitors._asking == {}
