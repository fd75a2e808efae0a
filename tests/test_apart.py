"""Work apart: its value, its error, and that its thread has ended."""

import threading

import pytest

from dspark_core import apart as apart_module
from dspark_core import loading
from dspark_core.apart import apart


def test_the_value_or_the_error_comes_back_and_the_thread_has_ended():
    thread = apart(threading.current_thread)
    assert thread is not threading.current_thread()
    assert not thread.is_alive()
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 / 0)


def test_after_an_error_its_thread_has_ended_too_and_after_an_interruption_nobody_waits_for_it(monkeypatch):
    threads, release = [], threading.Event()

    def work():
        threads.append(threading.current_thread())
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        apart(work)
    assert not threads[0].is_alive()

    class Interrupted(apart_module.Future):
        def result(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(apart_module, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        apart(lambda: release.wait(20))
    release.set()


def test_a_session_is_loaded_apart_so_that_only_the_engine_has_threads_of_torch(monkeypatch):
    threads = []
    monkeypatch.setattr(loading, "ensure_model", lambda *_: "folder")
    monkeypatch.setattr(loading, "_loaded", lambda *_: threads.append(threading.current_thread()))
    loading.open_session(device="cpu")
    assert threads[0] is not threading.main_thread()
    assert not threads[0].is_alive()


def test_work_that_nobody_waits_for_any_more_is_known_to_go_on(monkeypatch):
    go_on = threading.Event()

    class Interrupted(apart_module.Future):
        def result(self, timeout=None):  # noqa: ARG002 - its protocol
            raise KeyboardInterrupt

    monkeypatch.setattr(apart_module, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        apart(go_on.wait)
    assert apart_module.is_working()
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "dspark-apart":
            thread.join(10)
    assert not apart_module.is_working()
