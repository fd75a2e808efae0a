"""The tab Race in a real browser: a race is run, replayed, compared, stopped, and left."""

from __future__ import annotations

import time

import pytest

from tests.browser.conftest import ask, fits, shows, until

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def calm(fake):
    """Every test ends at the usual pace, and nobody fails or parts from the others."""
    yield
    engine = fake.engine
    engine.pace_s, engine.parts, engine.fails = 0.05, {}, ()


def opened(visit, address, **size):
    """A page on the tab, ready to race."""
    page = visit(address, **size)
    page.click("#ds-tabs [role=tab]:has-text('Race')")
    page.wait_for_selector("#ds-race-start:visible:enabled")
    page.wait_for_function("document.querySelector('#ds-race-lanes').textContent.includes('dflash')")
    return page


def raced(page, prompt="tell me"):
    """Runs a race to its end."""
    page.fill("#ds-race-prompt textarea, #ds-race-prompt input", prompt)
    page.click("#ds-race-start")
    page.wait_for_selector(".ds-replay:visible", timeout=60_000)
    return page


def long_one_runs(page):
    """Starts a race with long answers and waits until the second lane's is measured, which takes seconds."""
    page.fill("#ds-race-max-tokens input", "512")
    page.keyboard.press("Tab")
    page.click("#ds-race-start")
    page.wait_for_function("document.querySelector('.ds-race-now').textContent.includes('threshold@0.3 runs alone')")


def scrub(page, share):
    """Puts the replay's clock at a share of its time."""
    page.eval_on_selector(
        ".ds-replay input",
        "(slider, share) => { slider.value = 1000 * share; slider.dispatchEvent(new Event('input')); }",
        share,
    )


def tokens_shown(page):
    return page.eval_on_selector_all(
        ".ds-lane-clock", "(all) => all.map((node) => Number(node.textContent.match(/(\\d+) tokens?/)?.[1] ?? 0))"
    )


def test_a_race_is_run_replayed_in_proportion_and_compared(visit, fake, fake_address):
    fake.engine.pace_s = 0.0
    page = raced(opened(visit, fake_address))
    scrub(page, 0.3)
    plain, *others = tokens_shown(page)
    assert 0 < plain < 64
    assert all(tokens > plain for tokens in others)
    scrub(page, 1)
    assert set(tokens_shown(page)) == {64}
    assert page.get_attribute(".ds-lane >> nth=0", "data-first") == ""
    texts = page.eval_on_selector_all(".ds-lane-text", "(all) => all.map((node) => node.textContent)")
    assert len(set(texts)) == 1
    assert "lighthouse" in texts[0]
    rows = page.eval_on_selector_all(".ds-race-table tbody tr", "(all) => all.map((row) => row.textContent)")
    assert len(rows) == 3
    assert "×" not in rows[0]
    assert all("×" in row and "not measured here" in row for row in rows[1:])
    same = page.inner_text(".ds-race-same")
    assert same.count("token for token (64 tokens)") == 2
    assert "One run of each lane" in page.inner_text(".ds-race-notes")


def test_the_replay_plays_pauses_and_changes_its_speed(visit, fake, fake_address):
    fake.engine.pace_s = 0.0
    page = raced(opened(visit, fake_address))
    page.select_option(".ds-speed select", "0.25")
    scrub(page, 0)
    page.click(".ds-play")
    shows(page, ".ds-play", "Pause")
    until(lambda: sum(tokens_shown(page)) > 0)
    page.click(".ds-play")
    shows(page, ".ds-play", "Play")
    stood = page.inner_text(".ds-clock")
    time.sleep(0.3)
    assert page.inner_text(".ds-clock") == stood != "0.00 s"
    page.focus(".ds-replay input")
    page.keyboard.press("End")
    until(lambda: set(tokens_shown(page)) == {64})
    assert set(tokens_shown(page)) == {64}


def test_who_wants_little_motion_sees_the_end_at_once(visit, fake, fake_address):
    fake.engine.pace_s = 0.0
    page = opened(visit, fake_address)
    page.emulate_media(reduced_motion="reduce")
    raced(page)
    assert page.inner_text(".ds-play") == "Play"
    assert set(tokens_shown(page)) == {64}


def test_texts_that_part_are_never_called_the_same(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.parts = 0.0, {"dflash": 20}
    page = raced(opened(visit, fake_address))
    shows(page, ".ds-race-same", "They part at token 21:")
    same = page.inner_text(".ds-race-same")
    assert "The logit gap there is 1.386" in same
    assert "In float32 this must not happen" in same
    page.fill("#ds-race-temperature input", "0.8")
    page.keyboard.press("Tab")
    raced(page)
    shows(page, ".ds-race-same", "the texts differ although their law is the same")
    assert page.locator(".ds-race-same li").count() == 0


def test_hostile_text_of_prompt_model_and_errors_stays_text(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.fails, fake.engine.parts = 0.0, ("dflash",), {"dspark": 1}
    page = raced(opened(visit, fake_address), "hostile <img src=x onerror=\"document.title='pwned'\"> ${1}")
    scrub(page, 1)
    shows(page, ".ds-lanes", "scripted failure <b>${boom}</b>")
    assert "<script>" in page.inner_text(".ds-lane-text >> nth=0")
    time.sleep(0.3)
    assert page.title() == "DSpark Playground"
    assert page.locator(".ds-race :is(img, script, b, a)").count() == 0


def test_a_race_stopped_half_way_keeps_what_is_done(visit, fake, fake_address):
    fake.engine.pace_s = 0.2
    page = opened(visit, fake_address)
    long_one_runs(page)
    page.click("#ds-race-stop")
    page.wait_for_selector(".ds-replay:visible")
    assert "Stopped before its end" in page.inner_text(".ds-race-notes")
    rows = page.eval_on_selector_all(".ds-race-table tbody th", "(all) => all.map((name) => name.textContent)")
    assert rows[0] == "plain"
    assert until(lambda: fake.engine.num_active == 0)
    page.wait_for_selector("#ds-race-start:enabled")


def test_an_answer_of_somebody_else_marks_the_race_as_disturbed(visit, fake, fake_address):
    fake.engine.pace_s = 0.2
    page, other = opened(visit, fake_address), visit(fake_address)
    long_one_runs(page)
    ask(other, "tell me")
    other.wait_for_selector(".ds-round")
    page.click("#ds-race-stop")
    page.wait_for_selector(".ds-disturbed")
    assert "Other answers ran beside" in page.inner_text(".ds-race-notes")
    other.keyboard.press("Escape")


def test_a_reload_during_a_race_frees_the_engine_and_the_next_one_runs(unwatched, fake, fake_address):
    fake.engine.pace_s = 0.2
    page = opened(unwatched, fake_address)
    long_one_runs(page)
    page.reload()
    assert until(lambda: fake.engine.num_active == 0, 20)
    fake.engine.pace_s = 0.0
    page.click("#ds-tabs [role=tab]:has-text('Race')")
    page.wait_for_selector("#ds-race-start:visible:enabled")
    raced(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_a_race_fits_and_is_kept_as_a_picture(visit, fake, fake_address, keep, theme, width):
    fake.engine.pace_s, fake.engine.parts = 0.0, {"dflash": 20}
    page = raced(opened(visit, fake_address, width=width, theme=theme))
    scrub(page, 0.4)
    fits(page, width, ".ds-race *", keep, f"race-{theme}-{width}")


def test_a_typed_lane_whose_drafter_is_not_here_is_taken_out_at_once_and_says_so(visit, fake_address):
    page = opened(visit, fake_address)
    field = page.locator("#ds-race-lanes input")
    field.fill("lm+fixed@4")
    field.press("Enter")
    shows(page, "#ds-race-panel .ds-notice", "The lane 'lm+fixed@4' cannot run here.")
    assert until(lambda: "lm+fixed@4" not in page.inner_text("#ds-race-lanes"))
    assert "plain" in page.inner_text("#ds-race-lanes")
    field.click()
    page.locator("[role=option]", has_text="dspark+fixed@2").click()
    page.wait_for_selector("#ds-race-panel .ds-notice", state="hidden")
    assert "dspark+fixed@2" in page.inner_text("#ds-race-lanes")
