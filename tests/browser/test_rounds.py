"""The tab Rounds in a real browser: one round of the answer in detail, reached by mouse and by keyboard."""

from __future__ import annotations

import time

import pytest

from tests.browser.conftest import ask, fits, set_number, shows, until

pytestmark = pytest.mark.browser
SEEN = "(document.querySelector('.ds-rno').textContent.match(/\\d+/g) ?? []).map(Number)"  # round, of how many


@pytest.fixture(autouse=True)
def calm(fake):
    """Every test starts and ends at the usual pace."""
    yield
    fake.engine.pace_s, fake.engine.patience = 0.05, 1


def answered(visit, address, prompt="tell me", **size):
    """A page with a finished answer, whose rounds have every fate."""
    page = visit(address, **size)
    set_number(page, "#ds-threshold", 0.6)
    ask(page, prompt)
    page.wait_for_function("window.dsparkPage.store.finish", timeout=60_000)
    return page


def opened(page, number=3):
    """Opens a round by its number in the chat's ribbon."""
    page.locator(f'.ds-round[data-round="{number}"] .ds-open').click()
    page.wait_for_selector(".ds-detail:visible")
    return page


def test_a_round_is_opened_from_the_ribbon_and_shows_what_decided(visit, fake_address):
    page = opened(answered(visit, fake_address), 3)
    shows(page, ".ds-rno", "round 4 of ")
    kept = page.evaluate("dsparkPage.store.rounds[3]")
    assert page.eval_on_selector_all(".ds-strip .ds-tok", "(all) => all.map((node) => node.dataset.fate)") == [
        *(token["fate"] for token in kept["draft"]),
        kept["next"]["fate"],
    ]
    rejected = kept["accepted"]
    token = kept["draft"][rejected]
    assert token["fate"] == "rejected"
    column = page.eval_on_selector_all(
        ".ds-numbers tr", "(rows, at) => rows.map((row) => row.children[at].textContent)", rejected + 1
    )
    for name in ("confidence", "survival"):
        assert f"{token[name]:.3f}" in column
    for name in ("draftProb", "targetProb", "acceptProb", "uniform"):
        assert f"{token[name]:.4f}" in column
    assert "rejected" in column[-1]
    shows(page, ".ds-position h3", f"Position {rejected + 1} of ")
    heads = page.inner_text(".ds-candidates thead")
    for word in ("base", "corrected", "change", "target", "residual"):
        assert word in heads
    shows(page, ".ds-candidates tbody tr:has(.ds-badge[data-fate=correction])", "0.7000")
    for figure in (".ds-curve-figure", ".ds-theta-figure"):
        assert page.is_visible(figure)


def test_every_term_of_a_round_explains_itself(visit, fake_address):
    page = opened(answered(visit, fake_address))
    terms = page.locator(".ds-detail .ds-term:visible")
    assert terms.count() >= 15
    for term in terms.all():
        term.focus()
        tip = page.inner_text("#ds-tip:visible")
        assert len(tip) > 30
        assert tip == term.get_attribute("data-tip")


def test_the_keyboard_walks_through_rounds_and_positions(visit, fake_address):
    page = answered(visit, fake_address)
    page.focus('.ds-tok[data-at="2.1"]')
    page.keyboard.press("Enter")
    page.wait_for_selector(".ds-detail:visible")
    shows(page, ".ds-rno", "round 3 of ")
    shows(page, ".ds-position h3", "Position 2 of ")
    page.focus('.ds-strip .ds-tok[tabindex="0"]')
    page.keyboard.press("ArrowRight")
    shows(page, ".ds-position h3", "Position 3 of ")
    assert until(lambda: page.evaluate("document.activeElement.dataset.at") == "2.2")
    page.keyboard.press("ArrowDown")
    shows(page, ".ds-rno", "round 4 of ")
    page.focus(".ds-step input")
    page.keyboard.press("End")
    total = page.evaluate("dsparkPage.store.rounds.length")
    shows(page, ".ds-rno", f"round {total} of {total}")
    page.click(".ds-step [data-step='-1']")
    shows(page, ".ds-rno", f"round {total - 1} of {total}")


def test_hostile_text_of_the_model_stays_text_in_the_detail(visit, fake_address):
    page = opened(answered(visit, fake_address, "hostile"), 0)
    for number in range(12):
        shows(page, ".ds-rno", f"round {number + 1} of ")
        page.click(".ds-step [data-step='1']")
    time.sleep(0.3)
    assert page.title() == "DSpark Playground"
    assert page.locator(".ds-rounds :is(img, script, b, a)").count() == 0


def test_while_an_answer_runs_the_newest_round_is_shown_until_one_is_chosen(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="2"]')
    page.click("#ds-tabs [role=tab]:has-text('Rounds')")
    page.wait_for_function(f"{SEEN}[0] === {SEEN}[1] && {SEEN}[1] > 5")
    page.click(".ds-step [data-step='-1']")
    chosen = page.evaluate("dsparkPage.store.chosen.round")
    page.wait_for_function(f"{SEEN}[0] === {chosen + 1} && {SEEN}[1] > {chosen + 4}")
    page.click(".ds-newest")
    page.wait_for_function(f"{SEEN}[0] === {SEEN}[1] && {SEEN}[1] > {chosen + 6}")
    page.keyboard.press("Escape")
    page.wait_for_function("window.dsparkPage.store.finish")


def test_without_the_tick_no_laws_are_collected_and_the_page_says_so(visit, fake, fake_address):
    page = visit(fake_address)
    page.click("#ds-more button")
    page.uncheck("#ds-inspect input")
    ask(page, "tell me")
    page.wait_for_function("window.dsparkPage.store.finish", timeout=60_000)
    assert fake.engine.submitted[-1].request.inspect is False
    opened(page)
    shows(page, ".ds-laws-note", "were not collected")
    assert page.is_visible(".ds-numbers")
    assert not page.is_visible(".ds-candidates")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_a_round_in_detail_fits_and_is_kept_as_a_picture(visit, fake_address, keep, theme, width):
    page = opened(answered(visit, fake_address, width=width, theme=theme))
    time.sleep(0.5)
    fits(page, width, ".ds-rounds *", keep, f"rounds-{theme}-{width}")
