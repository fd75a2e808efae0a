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
from ui.news import KEPT, Line
from ui.quiet import tracker_routes


def ran(coroutine):
    """What it returns; in a thread of its own, since a browser of another test may have left a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def test_a_line_tells_each_message_in_order_until_the_page_has_it():
    line = Line()
    for message in ("one", "two"):
        line.put(message)
    assert ran(line.take()) == (["one", "two"], 2)
    assert ran(line.take()) == (["one", "two"], 2), "the first answer may be lost on its way"
    line.put("three")
    assert ran(line.take(2)) == (["three"], 3)
    assert ran(line.take(3, 0.0)) == ([], 3)


def test_who_asks_early_is_told_as_soon_as_there_is_something():
    line = Line()
    threading.Timer(0.2, line.put, ["late"]).start()
    assert ran(line.take(wait_s=30.0)) == (["late"], 1)


def test_a_line_that_nobody_asks_for_is_not_followed_and_stays_small():
    line = Line()
    for number in range(KEPT + 5):
        line.put(str(number))
    assert not line.followed
    told, last = ran(line.take())
    assert (len(told), told[-1], last) == (KEPT, str(KEPT + 4), KEPT + 5)
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
                told.extend((await line.take())[0] if line else [])
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
                status = json.loads(answer.read())
            if status["phase"] == "ready":
                break
            time.sleep(0.1)
        assert status["kind"] == "status"
        assert status["phase"] == "ready"


def test_a_number_that_is_none_counts_as_nothing_had():
    desk = Desk(0.02)
    with served(lambda _: FakeSession(0.0)) as address:
        for after in ("-1", "x", "9" * 5000, "%F0%9F%98%80", ""):
            with urllib.request.urlopen(f"{address}dspark/news?status&answer=unknown&after={after}") as answer:
                assert answer.status == 200
    with desk.answering._news.line("mine") as line:
        line.put("news")
        route = desk.answering._news.route("/")
        for after in ("-1", "x", "9" * 5000, "٣", ""):
            scope = {
                "type": "http",
                "method": "GET",
                "query_string": f"answer=mine&after={after}".encode(),
                "headers": [],
            }
            assert ran(route.endpoint(Request(scope))).body == b"news"


def test_gradios_tracker_counts_no_frames():
    (route,) = tracker_routes()
    assert route.path.startswith("/assets/statustracker-")
