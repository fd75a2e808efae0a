"""The tabs Calibration and Losslessness in a real browser."""

from __future__ import annotations

import time

import pytest

from tests.browser.conftest import ask, fits, set_number, until

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def calm(fake):
    """Every test starts and ends at the usual pace."""
    yield
    fake.engine.pace_s, fake.engine.patience = 0.05, 1


def comes(page, selector, text):
    """Waits until the text stands there: an experiment takes its time."""
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
        arg=[selector, text],
        timeout=60_000,
    )


def opened(page, name):
    """Opens a tab; on a narrow page it stands in a menu, and the hidden copies that Gradio measures come first."""
    page.evaluate(
        "name => [...document.querySelectorAll('#ds-tabs .tab-wrapper button:not([tabindex=\"-1\"])')]"
        ".find((button) => button.textContent.trim() === name).click()",
        name,
    )
    return page


def collected(visit, address, fake, **size):
    """The tab with the rounds of four prompts of the scripted engine."""
    fake.engine.pace_s = 0.001
    page = opened(visit(address, **size), "Calibration")
    set_number(page, "#ds-cal-prompts", 4)
    page.click("#ds-cal-collect")
    page.wait_for_selector(".ds-cal-body:visible", timeout=60_000)
    comes(page, ".ds-cal-from", "measured here")
    return page


def compared(visit, address, fake, prompt="tell me", **size):
    fake.engine.pace_s = 0.001
    page = opened(visit(address, **size), "Losslessness")
    page.fill("#ds-lab-prompt textarea", prompt)
    set_number(page, "#ds-lab-texts", 100)
    page.click("#ds-lab-start")
    page.wait_for_selector(".ds-lab-body:visible", timeout=60_000)
    comes(page, ".ds-lab-verdict", "200 texts")
    return page


def test_collecting_shows_both_diagrams_and_a_table_with_n(visit, fake, fake_address):
    page = collected(visit, fake_address, fake)
    comes(page, ".ds-cal-summary", "Fitted on")
    assert page.locator(".ds-cal-pictures circle").count() > 4
    assert page.locator(".ds-cal-table tbody tr").count() == 7
    schedule = fake.requests[-1][2]
    assert (schedule.policy, schedule.l_min, schedule.l_max) == ("fixed", 7, 7)


def test_the_slider_shows_its_effect_within_a_tenth_of_a_second_and_asks_nobody(visit, fake, fake_address):
    page = collected(visit, fake_address, fake)
    page.select_option(".ds-cal-position", "1")
    before = page.inner_text(".ds-cal-after")
    asked = []
    page.on("request", lambda request: "queue/join" in request.url and asked.append(request.url))
    took = page.evaluate(
        """() => {
          const slider = document.querySelector('.ds-cal-slide input');
          const begun = performance.now();
          for (let at = 0; at <= Number(slider.max); at += 1) {
            slider.value = at;
            slider.dispatchEvent(new Event('input', { bubbles: true }));
          }
          return (performance.now() - begun) / (Number(slider.max) + 1);
        }"""
    )
    assert took < 100
    assert asked == []
    assert "T = 4.00" in page.inner_text(".ds-cal-slide")
    assert page.inner_text(".ds-cal-after") != before
    page.click(".ds-cal-back")
    assert "fitted" in page.inner_text(".ds-cal-slide")
    assert page.inner_text(".ds-cal-after") == before


def test_a_collection_stopped_half_way_keeps_what_is_done_while_another_visitor_chats(visit, fake, fake_address):
    other, page = visit(fake_address), visit(fake_address)
    fake.engine.pace_s = 0.2
    opened(page, "Calibration")
    set_number(page, "#ds-cal-prompts", 72)
    page.click("#ds-cal-collect")
    page.wait_for_function("/^[1-9][0-9]* of 72, .*left/.test(document.querySelector('.ds-cal-run').textContent)")
    ask(other, "hello")
    other.wait_for_selector('.ds-round[data-round="1"]')
    opened(other, "Calibration").click("#ds-cal-collect")
    comes(other, ".ds-cal-run", "Another visitor's experiment")
    page.click("#ds-cal-stop")
    comes(page, ".ds-cal-run", "Stopped; what was done is kept")
    comes(page, ".ds-cal-from", "measured here")
    other.keyboard.press("Escape")
    assert until(lambda: fake.engine.num_active == 0, 30)


def test_the_visitors_own_answers_are_measured(visit, fake_address):
    page = opened(visit(fake_address), "Calibration")
    comes(page, ".ds-cal-from", "recorded: ")
    page.click("#ds-cal-own")
    comes(page, ".ds-cal-run", "no finished answer")
    opened(page, "Chat")
    for turns, prompt in ((2, "one"), (4, "two")):
        ask(page, prompt)
        page.wait_for_function(
            "(turns) => dsparkPage.store.finish && dsparkPage.store.chat?.turns.length === turns", arg=turns
        )
        page.wait_for_selector("#ds-send:enabled")
    opened(page, "Calibration").click("#ds-cal-own")
    comes(page, ".ds-cal-from", "your answers")
    comes(page, ".ds-cal-summary", "Fitted on")


def test_a_comparison_ends_with_a_verdict_for_every_view(visit, fake, fake_address):
    page = compared(visit, fake_address, fake)
    assert page.eval_on_selector_all(".ds-lab-view option", "(all) => all.map((one) => one.textContent)") == [
        "token 1",
        "token 2",
        "the first 2 tokens together",
    ]
    assert page.input_value(".ds-lab-view") == "2"
    comes(page, ".ds-lab-from", "threshold 0.30")
    assert page.locator(".ds-lab-table tbody tr").count() >= 1


def test_hostile_tokens_stay_text_in_the_comparison(visit, fake, fake_address):
    page = compared(visit, fake_address, fake, "hostile")
    for view in range(3):
        page.select_option(".ds-lab-view", str(view))
    time.sleep(0.3)
    assert page.title() == "DSpark Playground"
    assert page.locator(".ds-lab :is(img, script, b, a)").count() == 0
    comes(page, ".ds-lab-table", "onerror")


def test_a_comparison_stopped_half_way_is_judged_as_it_stands(visit, fake, fake_address):
    fake.engine.pace_s = 0.03
    page = opened(visit(fake_address), "Losslessness")
    set_number(page, "#ds-lab-texts", 5000)
    page.click("#ds-lab-start")
    page.wait_for_function("/of 10000/.test(document.querySelector('.ds-lab-run').textContent)")
    time.sleep(1)
    page.click("#ds-lab-stop")
    comes(page, ".ds-lab-run", "Stopped; what was done is kept")
    assert page.is_visible(".ds-lab-table")
    assert until(lambda: fake.engine.num_active == 0, 30)


def test_the_toy_shows_exact_laws_and_samples_that_come_near_them(visit, fake_address):
    page = opened(visit(fake_address), "Losslessness")
    comes(page, '[data-policy="retrospective"]', "exact 0.85")
    comes(page, '[data-policy="prefix"]', "exact 0.70")
    comes(page, '[data-policy="retrospective"]', "bends")
    page.click(".ds-toy-draw")
    page.wait_for_function("/^4.000 texts/.test(document.querySelector('.ds-toy-count').textContent)", timeout=60_000)
    drawn = page.eval_on_selector_all(
        ".ds-toy-row:first-of-type .ds-toy-number",
        "(all) => all.map((one) => Number(one.textContent.match(/[0-9.]+$/)[0]))",
    )
    assert drawn == [pytest.approx(0.85, abs=0.03), pytest.approx(0.70, abs=0.03)]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_both_tabs_fit_and_are_kept_as_pictures(visit, fake, fake_address, keep, theme, width):
    for tab, page in (
        ("calibration", collected(visit, fake_address, fake, width=width, theme=theme)),
        ("lab", compared(visit, fake_address, fake, width=width, theme=theme)),
    ):
        time.sleep(0.5)
        fits(page, width, ".ds-cal *, .ds-lab *, .ds-toy *", keep, f"{tab}-{theme}-{width}")


@pytest.mark.parametrize(("name", "start", "stop"), [
    ("Calibration", "#ds-cal-collect", "#ds-cal-stop"), ("Losslessness", "#ds-lab-start", "#ds-lab-stop"),
])  # fmt: skip
def test_stop_can_be_pressed_while_something_runs_and_only_then(visit, fake_address, fake, name, start, stop):
    fake.engine.pace_s, fake.engine.patience = 0.2, 50
    page = opened(visit(fake_address), name)
    page.wait_for_selector(f"{stop}:disabled")
    page.click(start)
    page.wait_for_selector(f"{stop}:enabled")
    page.wait_for_selector(f"{start}:disabled")
    page.click(stop)
    page.wait_for_selector(f"{stop}:disabled")
    page.wait_for_selector(f"{start}:enabled")
    assert until(lambda: fake.engine.num_active == 0)
