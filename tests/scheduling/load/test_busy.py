"""The engine's busy share: what it counts, over which seconds, and that another thread may ask at any time."""

import threading

import pytest

from dspark_core.scheduling.load.busy import BusyShare
from tests.scheduling.load.fake_nvml import Clock


@pytest.fixture
def clock():
    return Clock()


def work(busy, clock, seconds):
    with busy:
        clock.now += seconds


def test_nothing_is_known_at_the_first_moment_and_an_idle_engine_is_idle(clock):
    busy = BusyShare(5, clock)
    assert busy.share() is None
    clock.now += 1
    assert busy.share() == 0


def test_the_share_is_of_the_last_seconds_and_of_fewer_while_the_meter_is_young(clock):
    busy = BusyShare(4, clock)
    clock.now += 1
    work(busy, clock, 1)
    assert busy.share() == 0.5
    clock.now += 2
    assert busy.share() == 0.25
    clock.now += 1.5  # now half of the work lies before the window
    assert busy.share() == pytest.approx(0.5 / 4)
    clock.now += 0.5
    assert busy.share() == 0
    work(busy, clock, 9)
    assert busy.share() == 1


def test_work_in_progress_counts_up_to_now(clock):
    busy = BusyShare(4, clock)
    clock.now += 4
    with busy:
        clock.now += 1
        assert busy.share() == 0.25
        clock.now += 30
        assert busy.share() == 1


def test_work_that_fails_is_over(clock):
    busy = BusyShare(4, clock)

    def fail():
        with busy:
            clock.now += 1
            raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        fail()
    clock.now += 3
    assert busy.share() == 0.25


def test_many_short_rounds_add_up(clock):
    busy = BusyShare(5, clock)
    for _ in range(1000):
        work(busy, clock, 0.01)
        clock.now += 0.03
        assert 0 < busy.share() <= 1
    assert busy.share() == pytest.approx(0.25, abs=0.01)


def test_asking_from_another_thread_never_fails():
    busy, done, seen = BusyShare(0.01), threading.Event(), []

    def ask():
        while not done.is_set():
            seen.append(busy.share())

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(5000):
        with busy:
            pass
    done.set()
    thread.join()
    assert len(seen) > 0
    assert all(share is None or 0 <= share <= 1 for share in seen)
