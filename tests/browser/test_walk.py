"""A newcomer's three minutes on the real model: four questions, each answered by something on the screen."""

from __future__ import annotations

import re

import pytest

from dspark_core.admission import Limits
from tests.browser.conftest import ask, choose, open_tab, set_number, shows
from ui.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.slow]


# Of the tab Load: what was measured with so many users, once so many answers have ended. One answer's text says little.
CELL = """([users, answers]) => dsparkPage.store.load.of(dsparkPage.store.load.lane)
  .find((cell) => cell.users === users && cell.budget_interval && cell.answers >= answers)"""


def test_four_questions_are_answered_on_the_screen(visit, serve, keep):
    # Of the usual 36 places 16 users fill less than half, and banded hardly shortens anything; of 20 they fill most.
    settings = Settings(device="cpu", limits=Limits(20))
    page = visit(serve(settings.open_session, "smollm2-135m") + "?load_tokens=32", height=1100, ready=False)
    page.wait_for_selector("#ds-send:enabled", timeout=300_000)

    # Why was this token rejected?
    set_number(page, "#ds-threshold", 0.5)
    ask(page, "Why is the sky blue?")
    page.wait_for_function("dsparkPage.store.live.finish", timeout=120_000)  # until then a recorded answer is shown
    page.wait_for_selector("#ds-send:enabled")
    page.locator(".ds-ribbon").scroll_into_view_if_needed()
    page.locator('.ds-ribbon .ds-tok[data-fate="rejected"]').last.focus()
    shows(page, "#ds-tip", "rejected")
    keep(page, "walk-chat")
    at = page.evaluate(
        "dsparkPage.store.rounds.findIndex((round) => round.draft.some((draft) => draft.fate === 'rejected'))"
    )
    page.click(f'.ds-round[data-round="{at}"] .ds-open')
    page.wait_for_selector(".ds-detail:visible")
    page.click('.ds-strip .ds-tok[data-fate="rejected"]')
    shows(page, ".ds-verdict", "was rejected")
    assert re.search(r"most likely token is another one|min\(1, ", page.inner_text(".ds-verdict"))

    # Why did this round verify so many and not more?
    cut = page.evaluate("dsparkPage.store.rounds.findIndex((round) => round.verifyLen < round.draft.length)")
    page.evaluate(f"dsparkPage.store.choose({cut})")
    shows(page, ".ds-because", "< 0.50")
    page.keyboard.press("Escape")  # the panel of the token that was clicked
    page.mouse.move(0, 0)
    keep(page, "walk-rounds")

    # What does the threshold do to the speed?
    open_tab(page, "explore")
    page.wait_for_selector(".ds-ex-go:visible")
    for name, value in {"prompts": "Why is the sky blue?", "tokens": "24", "threshold": "0,0.5,0.9"}.items():
        page.fill(f".ds-ex-form [name={name}]", value)
    page.click(".ds-ex-go")
    page.wait_for_selector("[data-export=csv]:enabled", timeout=180_000)
    assert page.is_visible(".ds-ex-threshold")
    assert page.locator(".ds-ex-table tbody tr").count() >= 3
    page.locator(".ds-ex-threshold").scroll_into_view_if_needed()
    keep(page, "walk-explore")

    # What happens to the length when 16 users arrive?
    open_tab(page, "load")
    page.wait_for_selector("#ds-load-start:visible")
    choose(page, "#ds-load-policy", "banded")
    set_number(page, "#ds-load-users", 1)
    page.click("#ds-load-start")
    alone = page.wait_for_function(CELL, arg=[1, 16], timeout=120_000).json_value()
    set_number(page, "#ds-load-users", 16)
    crowded = page.wait_for_function(CELL, arg=[16, 32], timeout=120_000).json_value()
    page.set_viewport_size({"width": 1440, "height": 1250})
    page.evaluate("document.querySelector('.ds-load-figs').scrollIntoView()")
    page.wait_for_function("document.querySelectorAll('[data-chart=figure8] circle').length >= 2")
    keep(page, "walk-load")
    page.click("#ds-load-stop")
    assert crowded["budget"] < 0.95 * alone["budget"]
