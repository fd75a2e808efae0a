"""A newcomer's three minutes on the real model: four questions, each answered by something on the screen."""

from __future__ import annotations

import re
from statistics import fmean

import pytest

from dspark_core.admission import Limits
from tests.browser.conftest import ask, choose, open_tab, set_number, shows, until
from ui.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def number(page, selector):
    """The number that stands there; None while there is a dash."""
    text = page.inner_text(selector).strip()
    return float(text) if re.fullmatch(r"[0-9.]+", text) else None


def over_time(page, selector, seconds=12):
    """The mean of the number that stands there, after the last five seconds have gone out of it."""
    page.wait_for_timeout(5000)
    seen = []
    for _ in range(seconds):
        page.wait_for_timeout(1000)
        seen.append(number(page, selector))
    return fmean(value for value in seen if value is not None)


def test_four_questions_are_answered_on_the_screen(visit, serve, keep):
    places = Limits(20)  # so that as many as will come nearly fill the engine: some are left for visitors
    page = visit(serve(Settings(device="cpu", limits=places).open_session, "smollm2-135m"), height=1100, ready=False)
    page.wait_for_selector("#ds-send:enabled", timeout=300_000)

    # Why was this token rejected?
    set_number(page, "#ds-threshold", 0.5)
    ask(page, "Why is the sky blue?")
    page.wait_for_function("window.dsparkPage.store.finish", timeout=120_000)
    page.click('.ds-tok[data-fate="rejected"]')
    page.wait_for_timeout(500)
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
    budget = "[data-now=budget] .ds-big"
    assert until(lambda: number(page, budget), 120)
    alone = over_time(page, budget)
    set_number(page, "#ds-load-users", 16)
    assert until(lambda: (number(page, "[data-now=batch] .ds-big") or 0) > 12, 120)
    crowded = over_time(page, budget)
    page.evaluate("document.querySelector('[data-now=budget]').scrollIntoView()")
    keep(page, "walk-load")
    page.click("#ds-load-stop")
    assert crowded < alone
