"""Pause, one round, play and speed in a real browser: of a live answer in the engine, of a recorded one in the page."""

from __future__ import annotations

import time

import pytest

from tests.browser.conftest import ask, shows, until

pytestmark = pytest.mark.browser
ROUNDS = "dsparkPage.store.rounds.length"


@pytest.fixture(autouse=True)
def long_answers(fake):
    fake.engine.patience = 20
    yield
    fake.engine.pace_s, fake.engine.patience = 0.05, 1


def press(page, name):
    page.click(f"[data-pace={name}]:enabled")


def test_a_live_answer_is_held_in_the_engine_stepped_and_let_go_on_beside_others(visit, fake, fake_address):
    page = visit(fake_address)
    assert page.locator("[data-pace]:enabled").count() == 0
    ask(page, "tell me")
    page.wait_for_function(f"{ROUNDS} > 1")
    press(page, "pause")
    page.wait_for_function("dsparkPage.store.held.rate === 0")
    generation = fake.engine.active[-1]
    assert generation.held.rate == 0
    time.sleep(0.5)
    shows(page, ".ds-pace-note", "the engine holds this answer")
    at = page.evaluate(ROUNDS)
    other = visit(fake_address)
    ask(other, "tell me")
    other.wait_for_function(f"{ROUNDS} > 2")
    assert page.evaluate(ROUNDS) == at
    press(page, "step")
    page.wait_for_function(f"{ROUNDS} === {at + 1}")
    page.keyboard.press("Alt+n")
    page.wait_for_function(f"{ROUNDS} === {at + 2}")
    time.sleep(0.5)
    assert page.evaluate(ROUNDS) == at + 2
    press(page, "play")
    page.wait_for_function(f"{ROUNDS} > {at + 4}")
    page.keyboard.press("Alt+p")
    page.wait_for_function("dsparkPage.store.held.rate === 0")
    page.keyboard.press("Escape")
    page.wait_for_function("dsparkPage.store.finish")
    assert page.evaluate("dsparkPage.store.finish.reason") == "cancelled"
    other.click("#ds-stop button, #ds-stop")
    other.wait_for_function("dsparkPage.store.finish")
    assert until(lambda: not fake.engine.active)


def test_a_chosen_speed_holds_for_the_next_answer(visit, fake_address):
    page = visit(fake_address)
    page.select_option(".ds-stepper select", "0.5")
    ask(page, "tell me")
    page.wait_for_function("dsparkPage.store.held.rate === 0.5")
    page.select_option(".ds-stepper select", "")
    page.wait_for_function("dsparkPage.store.held.rate === null")
    page.keyboard.press("Escape")
    page.wait_for_function("dsparkPage.store.finish")


def test_a_recorded_answer_is_stepped_and_played_in_the_page(visit, fake, fake_address):
    page = visit(fake_address)
    page.click(".ds-record-name >> nth=1")
    page.wait_for_selector(".ds-recorded:visible")
    total, text = page.evaluate("[dsparkPage.store.rounds.length, dsparkPage.store.text]")
    press(page, "step")
    shows(page, ".ds-pace-note", f"round 1 of {total}")
    assert page.locator(".ds-ribbon .ds-round").count() == 1
    press(page, "step")
    shows(page, ".ds-pace-note", f"round 2 of {total}")
    assert page.evaluate("dsparkPage.store.figures.rounds") == 2
    assert text.startswith(page.inner_text(".ds-live .ds-said").strip())
    page.select_option(".ds-stepper select", "4")
    press(page, "play")
    page.wait_for_function(f"{ROUNDS} > 4")
    press(page, "pause")
    at = page.evaluate(ROUNDS)
    time.sleep(0.6)
    assert page.evaluate(ROUNDS) == at
    page.select_option(".ds-stepper select", "")
    press(page, "play")
    page.wait_for_function(f"{ROUNDS} === {total}")
    assert page.evaluate("dsparkPage.store.text") == text
    assert not fake.engine.active


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 390)])
def test_the_stepper_fits_and_is_kept_as_a_picture(visit, fake_address, keep, theme, width):
    page = visit(fake_address, width=width, theme=theme)
    page.click(".ds-record-name >> nth=0")
    page.wait_for_selector(".ds-recorded:visible")
    for at in range(1, 6):
        press(page, "step")
        shows(page, ".ds-pace-note", f"round {at} of")
    keep(page, f"stepper-{theme}-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
