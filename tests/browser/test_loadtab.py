"""The tab Load in a real browser: users are moved, walked and stopped, a visitor chats beside, another looks on."""

from __future__ import annotations

import time

import pytest

from tests.browser.conftest import ask, fits, open_tab, set_number, shows, until
from tests.ui.fake_session import FakeSession

pytestmark = pytest.mark.browser
CURVE = tuple((tokens, 0.02 + 0.0008 * tokens) for tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256))


@pytest.fixture
def crowd():
    """A scripted session with room for 32 users and visitors."""
    session = FakeSession(0.05, max_active=36, step_times=CURVE, step_curve="profiled: scripted")
    session.engine.plain_pace_s = 0.02
    return session


@pytest.fixture
def address(crowd, serve):
    return serve(lambda _progress: crowd)


def opened(page):
    open_tab(page, "load")
    page.wait_for_selector(".ds-load-table tbody tr")
    page.wait_for_function("window.dsparkPage.store.load.machine")
    return page


def started(page):
    page.click("#ds-load-start")
    page.wait_for_function("window.dsparkPage.store.load.last?.cells.length")
    return page


def table(page):
    return page.eval_on_selector_all(
        ".ds-load-table tbody tr", "(rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent))"
    )


def test_users_are_started_moved_and_stopped_while_figures_and_charts_follow(visit, crowd, address):
    page = started(opened(visit(address)))
    shows(page, ".ds-load-state", "4 users ask")
    assert until(lambda: page.inner_text('[data-now="throughput"] .ds-big') not in ("–", "0.0"))
    set_number(page, "#ds-load-users", 9)
    shows(page, ".ds-load-state", "9 users ask")
    assert until(lambda: crowd.engine.num_active >= 8)
    until(lambda: {row[0]: row[3] for row in table(page)}.get("9", "–") != "–", 20)
    found = {row[0]: row for row in table(page)}
    assert found["4"][3] != "–"
    assert found["9"][3] != "–"
    assert found["1"][1].startswith("+51–100 %")
    assert found["> 50"][2].startswith("not measured here")
    heads = page.inner_text(".ds-load-table thead")
    assert "published" in heads
    assert "measured" in heads
    assert page.locator('[data-chart="sps"] .ds-mark-now').count() == 1
    assert page.locator('[data-chart="throughput"] polyline').count() >= 1
    page.click("#ds-load-stop")
    shows(page, ".ds-load-state", "Stopped")
    assert until(lambda: crowd.engine.num_active == 0)
    # The server's last word of the run, which is older than its end, must not make it another visitor's.
    assert page.evaluate("window.dsparkPage.store.load.endedAt") > 0
    page.evaluate(
        """() => {
          const { store } = window.dsparkPage;
          store.load.endedAt = performance.now();
          store.receive(JSON.stringify({ ...store.status, load_run: { users: 9 } }));
        }"""
    )
    time.sleep(0.4)
    assert "another visitor" not in page.inner_text(".ds-load-state")


def test_a_walk_fills_the_table_beside_the_articles(visit, crowd, address, monkeypatch):
    monkeypatch.setattr("ui.load.asked.WALKED", (1, 2))
    page = opened(visit(address))
    set_number(page, "#ds-load-seconds", 2)
    page.click("#ds-load-walk")
    page.wait_for_function("window.dsparkPage.store.load.last?.state === 'done'", timeout=60_000)
    shows(page, ".ds-load-state", "The walk is done")
    found = {row[0]: row for row in table(page)}
    for users in ("1", "2"):
        assert "%" in found[users][2]
        assert "–" not in (found[users][3], found[users][4])
    assert crowd.engine.num_active == 0
    assert page.locator('[data-chart="figure8"] circle').count() == 4


def test_a_visitor_chats_beside_and_another_sees_that_a_run_goes_on(visit, crowd, address):
    page = started(opened(visit(address)))
    other = visit(address)
    ask(other, "tell me")
    other.wait_for_function("window.dsparkPage.store.finish", timeout=60_000)
    assert other.evaluate("dsparkPage.store.finish.reason") != "error"
    opened(other)
    shows(other, ".ds-load-state", "A load run with 4 users goes on, started by another visitor")
    other.click("#ds-load-start")
    shows(other, ".ds-load-note", "Another visitor's goes on")
    open_tab(page, "chat")
    ask(page, "me too")
    page.wait_for_function("window.dsparkPage.store.finish", timeout=60_000)
    page.context.close()
    assert until(lambda: crowd.engine.num_active == 0, 20), "who leaves the page takes the users along"


def test_sliders_of_a_row_stand_on_one_line_and_empty_charts_say_so(visit, address):
    page = opened(visit(address))
    lines = page.eval_on_selector_all(
        "#ds-load-controls .ds-settings-row",
        "(rows) => rows.map((row) => [...row.querySelectorAll('input[type=range]')].map("
        "(slider) => Math.round(slider.getBoundingClientRect().top)))",
    )
    assert [len(line) for line in lines] == [2, 3, 2]
    assert [len(set(line)) for line in lines] == [1, 1, 1]
    for chart in ("throughput", "speed", "crowd", "budget"):
        assert "nothing measured yet" in page.text_content(f'[data-chart="{chart}"]')


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_tab_fits_and_is_kept_as_a_picture(visit, address, keep, theme, width):
    page = started(opened(visit(address, width=width, theme=theme)))
    time.sleep(1.5)
    fits(page, width, ".ds-loadtab *", keep, f"load-{theme}-{width}")
    page.click("#ds-load-stop")
    shows(page, ".ds-load-state", "Stopped")


def test_tabs_that_stand_in_the_menu_of_a_narrow_page_are_opened_by_their_keys(visit, address):
    page = visit(address, width=390)
    for key in ("cost", "load", "race", "cost", "chat"):
        open_tab(page, key)
