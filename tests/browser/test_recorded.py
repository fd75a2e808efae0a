"""Recorded answers in a real browser: before the model is there, chosen, loaded, saved; hostile files."""

from __future__ import annotations

import gzip
import json
import threading
import time

import pytest

from dspark_core.errors import ModelUnavailableError
from tests.browser.conftest import ask, set_number, shows, until
from tests.ui.fake_session import FakeSession

pytestmark = pytest.mark.browser
FINISHED = "dsparkPage.store.live.finish"


def open_rounds(page):
    page.click("#ds-tabs [role=tab]:has-text('Rounds')")
    page.wait_for_selector(".ds-records:visible")


def saved(page, folder):
    """Saves the answer that is shown and returns the file."""
    open_rounds(page)
    with page.expect_download() as download:
        page.click(".ds-record-save:enabled")
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def load(page, path):
    page.set_input_files(".ds-records input[type=file]", path)


def test_while_the_model_loads_a_recorded_answer_fills_the_page_and_a_question_takes_over(visit, serve):
    may_open = threading.Event()

    def opener(_progress):
        may_open.wait(60)
        return FakeSession(0.02)

    page = visit(serve(opener), ready=False)
    shows(page, ".ds-recorded", "not here and now")
    shows(page, ".ds-chat", "You")
    assert page.locator(".ds-ribbon .ds-round").count() > 5
    assert "recorded on" in page.inner_text("[data-fig=now]")
    assert "measured" not in page.inner_text("[data-fig=now]")
    assert page.inner_text("[data-fig=ratio] .ds-big") == "–"
    open_rounds(page)
    shows(page, ".ds-from", "recorded on")
    shows(page, ".ds-candidates thead", "target")
    assert page.is_disabled(".ds-record-save")
    may_open.set()
    page.wait_for_selector("#ds-send:enabled", state="attached")
    page.click("#ds-tabs [role=tab]:has-text('Chat')")
    set_number(page, "#ds-l-max", 4)
    ask(page, "echo live")
    page.wait_for_function(FINISHED, timeout=30_000)
    assert not page.is_visible(".ds-recorded")
    shows(page, ".ds-chat", "live live live")
    assert "measured" in page.inner_text("[data-fig=now]")


def test_where_the_model_failed_recorded_answers_are_there_to_look_at(visit, serve):
    def opener(_progress):
        raise ModelUnavailableError("No such model. Name another.")

    page = visit(serve(opener), ready=False)
    shows(page, "#ds-notice-panel", "could not be opened")
    shows(page, ".ds-recorded", "not here and now")
    page.click(".ds-live-again")
    page.wait_for_selector(".ds-recorded", state="hidden")
    page.click(".ds-record-name >> nth=1")
    page.wait_for_selector(".ds-recorded:visible")
    assert page.evaluate("dsparkPage.store.recording.name") == page.evaluate("dsparkPage.store.records.list[1][0]")


def test_an_answer_is_saved_loaded_by_another_visitor_and_left_for_the_live_one(visit, fake_address, tmp_path):
    page = visit(fake_address)
    set_number(page, "#ds-threshold", 0.6)
    ask(page, "hostile")
    page.wait_for_function(FINISHED, timeout=60_000)
    own = page.evaluate("[dsparkPage.store.live.text, dsparkPage.store.live.rounds.length]")
    path = saved(page, tmp_path)
    header = json.loads(path.read_text().splitlines()[0])
    assert header["type"], header["kind"] == ("header", "recorded")
    assert header["messages"] == [{"role": "user", "content": "hostile"}]

    other = visit(fake_address)
    ask(other, "echo mine")
    other.wait_for_function(FINISHED, timeout=60_000)
    open_rounds(other)
    load(other, path)
    shows(other, ".ds-recorded", f"recorded on {header['device']}, {header['date'][:10]}")
    assert other.evaluate("[dsparkPage.store.text, dsparkPage.store.rounds.length]") == own
    other.click("#ds-tabs [role=tab]:has-text('Chat')")
    shows(other, ".ds-chat", "<script>document.title")
    other.click(".ds-live-again")
    shows(other, ".ds-chat", "mine mine")
    assert until(lambda: "mine" in other.text_content(".ds-ribbon"))
    zipped = tmp_path / "answer.jsonl.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    load(other, zipped)
    shows(other, ".ds-chat", "<script>document.title")
    other.click("#ds-clear")
    shows(other, ".ds-chat", "Ask something")
    assert other.title() == "DSpark Playground"
    assert other.locator(".ds-chat :is(img, script, b, a), .ds-recorded :is(img, script, b, a)").count() == 0


HOSTILE = "<img src=x onerror=\"document.title='pwned'\">${document.title='pwned'}"


def test_a_file_that_is_no_trace_is_refused_by_its_line_and_changes_nothing(visit, fake_address, tmp_path):
    page = visit(fake_address)
    ask(page, "echo mine")
    page.wait_for_function(FINISHED, timeout=60_000)
    path = saved(page, tmp_path)
    good = path.read_text().splitlines()
    header, second = json.loads(good[0]), json.loads(good[2])
    cases = {
        "Line 1": [HOSTILE],
        "Line 3": [*good[:2], json.dumps(second | {HOSTILE: HOSTILE}), *good[3:]],
        "does not add up": [*good[:2], json.dumps(second | {"threshold": 7}), *good[3:]],
        "no header": good[1:],
        "cut off": good[:-1],
        "header.device must be": [json.dumps(header | {"device": [HOSTILE]}), *good[1:]],
        "no beginning": good[:1],
    }
    for told, lines in cases.items():
        bad = tmp_path / f"{HOSTILE[:20].replace('/', '')}.jsonl"
        bad.write_text("\n".join(lines) + "\n")
        load(page, bad)
        shows(page, ".ds-recorded-error", told)
        page.click(".ds-recorded-error button")
    hostile = tmp_path / "hostile.jsonl"
    named = header | dict.fromkeys(("device", "model", "dtype", "versions", "drafter"), HOSTILE)
    hostile.write_text("\n".join([json.dumps(named), *good[1:]]))
    load(page, hostile)
    shows(page, ".ds-recorded", "<img src=x")
    time.sleep(0.3)
    assert page.title() == "DSpark Playground"
    assert page.locator(":is(.ds-recorded, .ds-recorded-error, .ds-rounds) :is(img, script)").count() == 0
    large = tmp_path / "large.jsonl"
    large.write_bytes(b" " * 20_000_001)
    load(page, large)
    shows(page, ".ds-recorded-error", "larger than 20 MB")
    page.click(".ds-live-again")
    assert page.evaluate("dsparkPage.store.rounds.length") == page.evaluate("dsparkPage.store.live.rounds.length")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_recorded_answers_fit_and_are_kept_as_pictures(visit, fake_address, keep, theme, width):
    page = visit(fake_address, width=width, theme=theme)
    shows(page, ".ds-chat", "recorded answer")
    keep(page, f"recorded-none-{theme}-{width}")
    page.click(".ds-record-name >> nth=0")
    page.wait_for_selector(".ds-recorded:visible")
    time.sleep(1)
    keep(page, f"recorded-chat-{theme}-{width}")
    open_rounds(page)
    page.wait_for_selector(".ds-detail:visible")
    time.sleep(0.5)
    keep(page, f"recorded-rounds-{theme}-{width}")
    assert until(lambda: page.evaluate("document.documentElement.scrollWidth") <= width)
