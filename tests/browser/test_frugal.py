"""A page takes little time from the model: what nobody sees is drawn later, what is glanced at less often."""

from __future__ import annotations

import pytest

from tests.browser.conftest import ask, open_tab

pytestmark = pytest.mark.browser
ROUNDS = "window.dsparkPage.store.live.rounds.length"


@pytest.fixture(autouse=True)
def slow(fake):
    fake.engine.pace_s, fake.engine.patience = 0.1, 30
    yield
    fake.engine.pace_s, fake.engine.patience = 0.05, 1
    for generation in list(fake.engine.active):
        generation.cancel()


@pytest.fixture
def running(visit, fake_address):
    """A page whose answer runs."""
    page = visit(fake_address, height=1000)
    page.evaluate(
        """() => {
          const ask = window.fetch;
          window.asked = [];
          window.fetch = (...args) => (window.asked.push(String(args[0])), ask(...args));
          const { store } = window.dsparkPage, take = store.receive.bind(store);
          window.laws = 0;
          store.receive = (json) => {
            const message = json && JSON.parse(json);
            if (message.kind === 'answer' && !message.full) window.laws += message.laws.length;
            take(json);
          };
        }"""
    )
    ask(page, "tell me")
    page.wait_for_function(f"{ROUNDS} > 2")
    return page


def test_many_messages_come_in_one_reply(running):
    running.wait_for_function(f"{ROUNDS} > 40")
    asked, rounds = running.evaluate(f"[asked.filter((url) => url.includes('answer=')).length, {ROUNDS}]")
    assert asked < rounds / 4


def test_laws_are_told_once_rounds_is_open(running):
    running.wait_for_function(f"{ROUNDS} > 10")
    assert running.evaluate("laws") == 0
    open_tab(running, "rounds")
    running.wait_for_function("laws > 10")
    assert running.evaluate("window.dsparkPage.store.running")
    shown = "document.querySelector('.ds-candidates tbody').childElementCount"
    running.wait_for_function(f"{shown} > 1")


def test_a_ribbon_out_of_sight_lags_behind_and_catches_up_once_looked_at(running):
    lines = "document.querySelectorAll('.ds-round').length"
    running.evaluate("window.scrollTo(0, 0)")
    assert running.evaluate("document.querySelector('.ds-ribbon').getBoundingClientRect().top > innerHeight")
    running.wait_for_function(f"{lines} >= 24 && {ROUNDS} - {lines} > 60")
    before = running.evaluate(lines)
    running.evaluate(
        """() => {
          window.most = 0;
          const count = (changes) => changes.reduce((sum, { addedNodes }) => sum + addedNodes.length, 0);
          const watch = new MutationObserver((changes) => { window.most = Math.max(window.most, count(changes)); });
          watch.observe(document.querySelector('.ds-ribbon'), { childList: true });
          document.querySelector('.ds-ribbon').scrollIntoView();
        }"""
    )
    running.wait_for_function(f"{ROUNDS} - {lines} < 8")
    assert running.evaluate("window.dsparkPage.store.running")
    assert running.evaluate(lines) > before + 40, "there was more to draw than one drawing takes"
    assert running.evaluate("window.most") <= 40, "more at once would hold up the page"


def test_a_ribbon_out_of_sight_is_whole_once_its_answer_has_ended(running):
    running.evaluate("window.scrollTo(0, 0)")
    running.wait_for_function(f"{ROUNDS} > 60")
    running.keyboard.press("Escape")
    running.wait_for_function(
        f"window.dsparkPage.store.finish && document.querySelectorAll('.ds-round').length === {ROUNDS}"
    )


def test_charts_are_drawn_on_a_canvas_while_an_answer_runs_and_by_plotly_where_the_pointer_is_and_at_rest(
    running, fake
):
    chart = running.locator(".ds-frame", has=running.locator("[data-plot=rounds]"))
    chart.scroll_into_view_if_needed()
    running.mouse.move(5, 5)
    canvas = chart.locator("canvas")
    canvas.wait_for(state="visible")
    picture = canvas.evaluate("(canvas) => canvas.toDataURL()")
    running.wait_for_function(
        "([selector, before]) => [...document.querySelectorAll(selector)][1].toDataURL() !== before",
        arg=["canvas.ds-live-plot", picture],
    )
    plotted = "document.querySelector('[data-plot=rounds]').data?.[0].x.length ?? 0"
    before = running.evaluate(plotted)
    chart.hover()
    canvas.wait_for(state="hidden")
    assert running.evaluate(plotted) > before
    running.mouse.move(5, 5)
    canvas.wait_for(state="visible")
    fake.engine.pace_s = 0.0
    running.evaluate("document.querySelector('#ds-stop').click()")
    running.wait_for_function("window.dsparkPage.store.finish")
    canvas.wait_for(state="hidden")
    running.wait_for_function(f"{plotted} === {ROUNDS}")


def test_what_is_glanced_at_is_drawn_less_often_than_the_text(running):
    running.evaluate(
        """() => {
          const count = (selector, name) => {
            window[name] = 0;
            const all = { subtree: true, childList: true, characterData: true };
            new MutationObserver(() => { window[name] += 1; }).observe(document.querySelector(selector), all);
          };
          count('.ds-chat', 'texts');
          count('.ds-cards', 'figures');
        }"""
    )
    running.wait_for_function("window.texts > 15")
    assert running.evaluate("window.figures <= window.texts / 2")
