"""The line in front of the engine: first come first served, within limits, whatever joins and leaves."""

import random
from dataclasses import dataclass

import pytest

from dspark_core.admission import Limits, Line
from dspark_core.errors import ParameterError, ResourceError


@dataclass(eq=False)
class Request:
    tokens: int = 10


def line_of(*sizes, max_active=2, max_waiting=3, max_tokens=100):
    line = Line(Limits(max_active, max_waiting, max_tokens=max_tokens), max_context=50)
    requests = [Request(size) for size in sizes]
    for request in requests:
        line.join(request)
    return line, requests


def test_as_many_run_as_may_and_the_others_wait_in_order_of_arrival():
    line, requests = line_of(10, 10, 10, 10)
    assert (line.running, line.waiting) == (requests[:2], requests[2:])
    assert len(line) == 4
    assert line.reason == "2 answers are running, the most at once"
    line.leave(requests[1])
    assert (line.running, line.waiting) == ([requests[0], requests[2]], [requests[3]])


def test_beyond_the_line_a_request_is_refused_with_the_reason_and_what_to_do():
    line, requests = line_of(*[10] * 5)
    with pytest.raises(ResourceError, match=r"2 answers are running.* 3 requests wait .* Try again in a moment"):
        line.join(Request())
    line.leave(requests[4])
    line.join(Request())
    full, _ = line_of(10, 10, max_waiting=0)
    with pytest.raises(ResourceError, match="2 answers are running"):
        full.join(Request())


def test_a_request_that_can_never_fit_is_refused_at_once_and_one_that_fits_later_waits():
    line, requests = line_of(60)
    with pytest.raises(ResourceError, match=r"room for 101 tokens .* holds 100 in all"):
        line.join(Request(101))
    line.join(later := Request(41))
    assert line.waiting == [later]
    assert line.reason == "60 of 100 tokens are taken, and the next request needs 41"
    line.leave(requests[0])
    assert line.running == [later]


def test_a_small_request_never_overtakes_the_big_one_at_the_head():
    line, requests = line_of(60, 50, 1)
    assert line.running == requests[:1]
    line.join(last := Request(1))
    assert line.waiting == [*requests[1:], last]
    line.leave(requests[0])
    assert line.running == [requests[1], requests[2]]


def test_when_the_head_gives_up_those_after_it_begin():
    line, requests = line_of(60, 50, 1)
    line.leave(requests[1])
    assert line.running == [requests[0], requests[2]]
    assert line.reason == ""


def test_without_a_limit_on_tokens_whatever_the_model_can_take_fits():
    line = Line(Limits(), max_context=200_000)
    line.join(whole := Request(200_000))
    assert line.running == [whole]
    with pytest.raises(ResourceError, match="holds 65536 in all"):
        Line(Limits(), max_context=50).join(Request(65_537))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_joins_and_leaves_limits_hold_and_nobody_overtakes(seed):
    dice = random.Random(seed)
    line, _ = line_of(max_active=4, max_waiting=6)
    arrived, begun = [], []
    for _ in range(300):
        if len(line) and dice.random() < 0.45:
            leaver = dice.choice([*line.running, *line.waiting])
            line.leave(leaver)
            arrived = [request for request in arrived if request is not leaver or request in begun]
        else:
            before = len(line)
            try:
                line.join(request := Request(dice.randrange(1, 100)))
                arrived.append(request)
            except ResourceError:
                assert len(line) == before
                assert len(line.waiting) == 6
        begun += [request for request in line.running if request not in begun]
        assert len(line.running) <= 4
        assert sum(request.tokens for request in line.running) <= 100
        if line.waiting:
            assert len(line.running) == 4 or line.waiting[0].tokens > 100 - sum(r.tokens for r in line.running)
        assert begun == arrived[: len(begun)]
    assert len(begun) > 20


@pytest.mark.parametrize(
    "bad", [{"max_active": 0}, {"max_active": 1.5}, {"max_waiting": -1}, {"max_tokens": 0}, {"max_wait_s": 0},
            {"max_wait_s": float("nan")}, {"max_wait_s": "long"}, {"max_active": True}],
)  # fmt: skip
def test_limits_out_of_range_are_refused_by_name(bad):
    with pytest.raises(ParameterError, match=f"^{next(iter(bad))} is "):
        Limits(**bad)
