"""What a run tells: how far it is, and how long the rest takes at its speed so far."""

import io

import pytest

from dspark_core.training import progress
from dspark_core.training.progress import Reporter


@pytest.fixture
def clock(monkeypatch):
    times = iter(range(0, 1000, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(times)))


@pytest.mark.usefixtures("clock")
def test_the_time_left_counts_from_where_the_step_began():
    stream = io.StringIO()
    reporter = Reporter(stream)
    for done in (600, 700, 800):  # a resumed step: 600 were there already
        reporter.cache(done, 1000)
    for done in (0, 50):
        reporter.written(done, 100)
    assert stream.getvalue().splitlines() == [
        "features: 600/1000 tokens",
        "features: 700/1000 tokens, 0:00:30 left",
        "features: 800/1000 tokens, 0:00:20 left",
        "self-written: 0/100 conversations",
        "self-written: 50/100 conversations, 0:00:10 left",
    ]


def test_a_row_of_the_log_tells_the_share_done_and_the_time_left():
    stream = io.StringIO()
    row = {"stage": 2, "step": 7, "progress": 0.25, "left_s": 90.4, "rate": 0.5, "planned": 10, "loss": 1.5}
    Reporter(stream).row(row)
    assert stream.getvalue() == " 25 % of stage 2, 0:01:30 left: stage 2, step 7, loss 1.5\n"


def test_a_terminal_obeys_no_path():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    Reporter(stream).say("wrote a\x1b[31mb")
    assert stream.getvalue() == "wrote a[31mb\n"
