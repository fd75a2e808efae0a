"""A page whose connection is lost, or that is loaded anew, in the middle of what it does."""

from __future__ import annotations

import json
import select
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.browser.conftest import ask, shows, until
from tests.ui.fake_session import FakeSession
from tests.ui.pages import served

pytestmark = pytest.mark.browser
AWAY = "the server does not answer; trying again"


@pytest.fixture(autouse=True)
def calm(fake):
    """Answers that last until they are stopped, and a usual pace afterwards."""
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    yield
    fake.engine.pace_s, fake.engine.patience = 0.05, 1


class Wire:
    """A way to a server that can be cut: what is open then breaks off, and nothing new comes through.

    Chromium's own offline mode lets open streams go on.
    """

    def __init__(self, port):
        self._to, self._open, self.whole = ("127.0.0.1", port), [], True
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            if not self.whole:
                near.close()
                continue
            pair = [near, socket.create_connection(self._to)]
            self._open += pair
            threading.Thread(target=self._carry, args=pair, daemon=True).start()

    @staticmethod
    def _carry(near, far):
        with near, far:
            while True:
                try:
                    for end in select.select([near, far], [], [])[0]:
                        part = end.recv(65536)
                        if not part:
                            return
                        (far if end is near else near).sendall(part)
                except (OSError, ValueError):
                    return

    def cut(self):
        self.whole = False
        for end in self._open:
            with suppress(OSError):  # it has ended by itself
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._door.close()
        self.cut()


@contextmanager
def wired(address):
    """A wire to the server at ``address``, and the address of its near end."""
    wire = Wire(int(address.rstrip("/").rsplit(":", 1)[1]))
    try:
        yield wire, f"http://127.0.0.1:{wire.port}/"
    finally:
        wire.close()


def answering(page):
    ask(page, "tell me")
    page.wait_for_function("dsparkPage.store.live.running && dsparkPage.store.live.rounds.length > 3")
    return page.inner_text(".ds-live .ds-said")[:12]


def works_again(page, fake, *, began):
    """The page is ready, says what became of the answer whose text ``began`` so, and answers again."""
    page.wait_for_selector("#ds-send:enabled", timeout=60_000)
    shows(page, ".ds-notice", "the rest of it is lost")
    shows(page, ".ds-model .ds-said", began)
    assert page.is_disabled("#ds-stop")
    assert until(lambda: page.input_value("#ds-prompt textarea")) == "tell me"
    assert until(lambda: fake.engine.num_active == 0)
    page.click("#ds-send")
    page.wait_for_function("dsparkPage.store.live.running && dsparkPage.store.live.rounds.length > 1")
    assert [message["content"] for message in fake.requests[-1][0]] == ["tell me"]
    assert not page.is_visible(".ds-notice")
    page.click("#ds-stop")
    page.wait_for_selector("#ds-send:enabled")


def test_an_idle_page_says_that_the_server_is_away_and_goes_on_by_itself(unwatched, fake, fake_address):
    page = unwatched(fake_address)
    fake.engine.patience = 1
    ask(page, "echo one")
    page.wait_for_function("dsparkPage.store.live.finish")
    page.wait_for_selector("#ds-send:enabled")
    said = page.evaluate("dsparkPage.store.live.text").strip()
    shows(page, ".ds-model .ds-said", said)
    page.context.set_offline(True)
    shows(page, ".ds-state-text", AWAY)
    shows(page, ".ds-model .ds-said", said)
    page.context.set_offline(False)
    shows(page, ".ds-state-text", "ready")
    shows(page, ".ds-model .ds-said", said)
    ask(page, "echo two")
    page.wait_for_function("dsparkPage.store.live.finish && dsparkPage.store.liveChat.turns.length === 4")


def test_an_answer_goes_on_over_its_open_stream_while_nothing_new_comes_through(unwatched, fake_address):
    page = unwatched(fake_address)
    answering(page)
    page.context.set_offline(True)
    shows(page, ".ds-state-text", AWAY)
    page.context.set_offline(False)
    shows(page, ".ds-state-text", "ready, 1 running")
    seen = page.evaluate("dsparkPage.store.live.rounds.length")
    page.wait_for_function("(seen) => dsparkPage.store.live.rounds.length > seen + 3", arg=seen)
    page.click("#ds-stop")
    page.wait_for_selector("#ds-send:enabled")
    shows(page, ".ds-run", "stopped by request")


def test_an_answer_whose_connection_is_cut_is_kept_as_far_as_it_came(unwatched, fake, fake_address, keep):
    with wired(fake_address) as (wire, address):
        page = unwatched(address)
        began = answering(page)
        wire.cut()
        shows(page, ".ds-state-text", AWAY)
        shows(page, ".ds-live .ds-said", began)
        keep(page, "lost-away")
        wire.whole = True
        page.wait_for_selector(".ds-notice:visible", timeout=60_000)
        works_again(page, fake, began=began)
        keep(page, "lost-back")


def test_a_reload_during_an_answer_frees_the_engine_and_the_next_one_runs(unwatched, fake, fake_address):
    page = unwatched(fake_address)
    began = answering(page)
    page.reload()
    works_again(page, fake, began=began)


def test_an_answer_that_the_server_no_longer_has_does_not_keep_the_page(unwatched, fake_address):
    page = unwatched(fake_address)
    figures = {"tokens": 0, "rounds": 0}
    message = {
        "kind": "answer", "answer": "gone", "seq": 1, "full": False, "waiting": "", "held": [None, ""],
        "prefilled": None, "rounds": [], "laws": [], "total": 0, "figures": figures, "recent": figures,
        "recent_rounds": 0, "text": None, "finish": None,
    }  # fmt: skip
    page.evaluate(
        "(chat) => dsparkPage.store.receive(chat)", json.dumps({"kind": "chat", "turns": [["user", "hello"]]})
    )
    page.evaluate("(message) => dsparkPage.store.receive(message)", json.dumps(message))
    page.wait_for_selector(".ds-notice:visible", timeout=60_000)
    shows(page, ".ds-notice", "the rest of it is lost")
    page.wait_for_selector("#ds-send:enabled")


def test_a_server_that_has_gone_is_told(unwatched):
    with ExitStack() as server:
        page = unwatched(server.enter_context(served(lambda _progress: FakeSession(0.05))))
        shows(page, ".ds-state-text", "ready")
        server.close()
        shows(page, ".ds-state-text", AWAY)
        assert page.evaluate("document.querySelector('.ds-state').dataset.phase") == "away"
