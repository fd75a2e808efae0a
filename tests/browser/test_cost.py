"""The tab Cost in a real browser: the article's case, an edit, a hostile currency, the rebound's slider."""

from __future__ import annotations

import pytest

from tests.browser.conftest import ask, fits, open_tab, set_number, shows

pytestmark = pytest.mark.browser


def opened(page):
    open_tab(page, "cost")
    page.wait_for_selector(".ds-cost-table tbody tr")
    return page


def test_the_articles_case_is_shown_and_may_be_changed(visit, fake_address):
    page = opened(visit(fake_address))
    shows(page, ".ds-cost-table", "published")
    shows(page, ".ds-cost-table", "0.004")
    page.get_by_label("After: with drafts").fill("20")
    shows(page, ".ds-cost-table", "0.005")
    shows(page, ".ds-cost-table", "typed")
    page.get_by_label("Currency").fill("<b>€</b>")
    shows(page, ".ds-cost-table", "<b>€</b>")
    assert page.locator(".ds-cost-table b").count() == 0
    page.click("text=The article's 100 cards")
    shows(page, ".ds-cost-table", "published")
    shows(page, "[data-energy-note]", "not measured here: no NVML")


def test_the_rebound_turns_at_an_elasticity_of_one(visit, fake_address):
    page = opened(visit(fake_address))
    set_number(page, "#ds-cost-elasticity", 0.5)
    shows(page, ".ds-rebound", "Above ε = 1 it would rise")
    set_number(page, "#ds-cost-elasticity", 2)
    shows(page, ".ds-rebound", "the total rises to 2.5 times")


def test_the_chats_measurement_is_taken_over_and_called_measured(visit, fake_address):
    page = visit(fake_address)
    ask(page, "tell me")
    page.wait_for_function("window.dsparkPage.store.finish && window.dsparkPage.store.status.baseline", timeout=60_000)
    opened(page)
    page.click("text=Take from Chat")
    shows(page, ".ds-cost-table", "measured")
    shows(page, "[data-cost-take]", "taken from Chat")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_tab_fits_and_is_kept_as_a_picture(visit, fake_address, keep, theme, width):
    page = opened(visit(fake_address, width=width, theme=theme))
    fits(page, width, ".ds-cost *", keep, f"cost-{theme}-{width}")
