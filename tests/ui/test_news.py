"""What pages ask for beside Gradio: each message is told once, soon, and only to a page that asks."""

import asyncio
import json
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request

from tests.ui.fake_session import FakeSession
from tests.ui.pages import served
from tests.ui.test_answering import Desk
from ui.news import KEPT, REPLY_S, Line, News
from ui.quiet import tracker_routes


def ran(coroutine):
    """What it returns; in a thread of its own, since a browser of another test may have left a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def test_a_line_tells_each_message_in_order_until_the_page_has_it():
    line = Line()
    for message in ("one", "two"):
        line.put(message)
    both = [(1, "one"), (2, "two")]
    assert ran(line.take()) == both
    assert ran(line.take()) == both, "the first answer may be lost on its way"
    line.put("three")
    assert ran(line.take(2)) == [(3, "three")]
    line.forget(2)
    assert ran(line.take()) == [(3, "three")]
    assert ran(line.take(3, 0.0)) == []


def test_who_asks_early_is_told_as_soon_as_there_is_something():
    line = Line()
    threading.Timer(0.2, line.put, ["late"]).start()
    assert ran(line.take(wait_s=30.0)) == [(1, "late")]


def test_nobody_waits_for_a_line_that_has_ended():
    line = Line()
    threading.Timer(0.2, line.end).start()
    assert ran(line.take(wait_s=30.0)) == []
    assert ran(line.take(wait_s=30.0)) == []


def replied(news, query, steps=()):
    """The lines of the reply to a page that asks so, and how it ended; each of ``steps`` is called after a part."""
    parts, left = [], list(steps)

    async def ask():
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            parts.append(message)
            if message.get("body") and left and left.pop(0)() == "gone":
                gone.set()

        scope = {"type": "http", "method": "GET", "query_string": query.encode(), "headers": []}
        route = news.route("/")
        await (await route.endpoint(Request(scope)))(scope, receive, send)

    ran(ask())
    whole = parts[-1].get("more_body") is False
    return b"".join(part.get("body", b"") for part in parts).decode().splitlines(), whole


def test_a_reply_stays_open_and_tells_each_message_as_it_comes(monkeypatch):
    monkeypatch.setattr("ui.news.REPLY_S", 0.6)
    news = News()
    news.status = lambda: "{}"
    with news.line("mine") as line:
        line.put("one")
        lines, whole = replied(news, "answer=mine", [lambda: line.put("two"), lambda: line.put("three")])
        assert (lines, whole) == (["1 one", "2 two", "3 three"], True)
        assert replied(news, "answer=mine&after=3&status") == (["0 {}"], True)
        assert line.followed
        line.put("four")
        assert replied(news, "answer=mine&after=3") == (["4 four"], True)
    assert replied(news, "answer=mine&after=3&status") == (["0 {}"], True), "an answer that has ended is not waited for"


def test_the_end_of_an_answer_ends_its_reply_and_so_does_a_page_that_goes():
    news = News()
    with news.line("mine") as line:
        line.put("one")
        begun = time.monotonic()
        assert replied(news, "answer=mine", [line.end]) == (["1 one"], True)
        line.ended = False
        line.put("two")
        assert replied(news, "answer=mine&after=1", [lambda: "gone"]) == (["2 two"], False)
        assert time.monotonic() - begun < REPLY_S


def test_an_open_reply_tells_the_status_again(monkeypatch):
    monkeypatch.setattr("ui.news.STATUS_S", 0.1)
    monkeypatch.setattr("ui.news.REPLY_S", 1.0)
    news = News()
    news.status = lambda: "{}"
    with news.line("mine"):
        lines, _ = replied(news, "answer=mine&status")
    assert 3 <= len(lines) <= 11
    assert set(lines) == {"0 {}"}


def test_laws_are_told_to_a_page_that_shows_them():
    news = News()
    with news.line("mine") as line:
        line.put("one")
        replied(news, "answer=mine&laws", [line.end])
        assert line.laws
        replied(news, "answer=mine", [line.end])
        assert not line.laws


def test_a_line_that_nobody_asks_for_is_not_followed_and_stays_small():
    line = Line()
    for number in range(KEPT + 5):
        line.put(str(number))
    assert not line.followed
    told = ran(line.take())
    assert (len(told), told[-1]) == (KEPT, (KEPT + 5, str(KEPT + 4)))
    assert line.followed


def test_what_a_followed_answer_adds_is_told_beside_gradio_and_its_end_is_yielded():
    desk = Desk(0.02)
    yields = desk.send()
    name = json.loads(next(yields)[desk.parts.answer])["answer"]
    told = []

    def follow():
        async def ask():
            while not told:
                line = desk.answering._news._lines.get(name)
                told.extend(message for _, message in await line.take()) if line else None
                await asyncio.sleep(0.05)

        ran(ask())

    reader = threading.Thread(target=follow)
    reader.start()
    rest = list(yields)
    reader.join()
    first = json.loads(told[0])
    assert first["answer"] == name
    assert first["rounds"]
    assert not first["full"]
    assert json.loads(rest[-1][desk.parts.answer])["full"]
    assert name not in desk.answering._news._lines


def test_the_status_is_asked_for_by_a_plain_request():
    with served(lambda _: FakeSession(0.0)) as address:
        for _ in range(100):
            with urllib.request.urlopen(f"{address}dspark/news?status&answer=unknown") as answer:
                number, status = answer.read().split(b" ", 1)
                status = json.loads(status)
            if status["phase"] == "ready":
                break
            time.sleep(0.1)
        assert number == b"0"
        assert status["kind"] == "status"
        assert status["phase"] == "ready"
        assert answer.headers["X-Accel-Buffering"] == "no", "a proxy must pass on each part as it comes"
        assert "no-transform" in answer.headers["Cache-Control"]


def test_a_number_that_is_none_counts_as_nothing_had():
    desk = Desk(0.02)
    with served(lambda _: FakeSession(0.0)) as address:
        for after in ("-1", "x", "9" * 5000, "%F0%9F%98%80", ""):
            with urllib.request.urlopen(f"{address}dspark/news?status&answer=unknown&after={after}") as answer:
                assert answer.status == 200
    with desk.answering._news.line("mine") as line:
        line.put("news")
        for after in ("-1", "x", "9" * 5000, "٣", ""):
            line.ended = False
            assert replied(desk.answering._news, f"answer=mine&after={after}", [line.end]) == (["1 news"], True)


def test_gradios_tracker_counts_no_frames():
    (route,) = tracker_routes()
    assert route.path.startswith("/assets/statustracker-")
