"""What a visitor sees and does, in a real browser, on a scripted engine that produces every fate."""

from __future__ import annotations

import threading
import time

import pytest

from dspark_core.errors import ModelUnavailableError
from tests.browser.conftest import ask, choose, set_number, shows, until
from tests.ui.fake_session import FakeSession
from ui.fates import FATES

pytestmark = pytest.mark.browser


def rounds(page):
    """Rounds on the page: (index, ℓ, L_max in force)."""
    return page.eval_on_selector_all(
        ".ds-round", "(lines) => lines.map(({ dataset: d }) => [d.round, d.len, d.lmax].map(Number))"
    )


def stop(page):
    """Stops the answer if it still runs; on a busy machine it may be over."""
    page.evaluate("document.querySelector('#ds-stop').click()")
    page.wait_for_selector("#ds-send:enabled")


def finished(page):
    return page.evaluate("Boolean(window.dsparkPage.store.finish)")


@pytest.fixture(autouse=True)
def calm(fake):
    """Every test starts with an idle engine at the usual pace."""
    fake.engine.pace_s, fake.engine.fail_at, fake.engine.patience = 0.05, None, 1
    yield
    fake.engine.line = ()
    fake.engine.turn.set()
    for generation in list(fake.engine.active):
        generation.cancel()
    until(lambda: fake.engine.num_active == 0)


def test_every_fate_has_its_colour_and_its_mark(visit, fake_address, keep):
    page = visit(fake_address)
    set_number(page, "#ds-threshold", 0.6)
    ask(page, "tell me")
    for fate in FATES:
        page.wait_for_selector(f'.ds-tok[data-fate="{fate.key}"]')
    keep(page, "fates")
    looks = {
        fate.key: page.eval_on_selector(
            f'.ds-tok[data-fate="{fate.key}"]',
            "(node) => [getComputedStyle(node).color, getComputedStyle(node, '::after').content]",
        )
        for fate in FATES
    }
    assert len({colour for colour, _ in looks.values()}) == len(FATES)
    assert {key: mark.strip('"') for key, (_, mark) in looks.items()} == {fate.key: fate.mark for fate in FATES}


def test_who_waits_sees_the_place_in_the_line_and_then_the_answer(visit, fake, fake_address, keep):
    fake.engine.line = (3, 2)
    fake.engine.turn.clear()
    page = visit(fake_address)
    ask(page, "tell me")
    shows(page, ".ds-live", "Waiting: 2 ahead of you")
    shows(page, ".ds-run", "Waiting: 2 ahead of you")
    keep(page, "waiting")
    fake.engine.turn.set()
    page.wait_for_selector('.ds-round[data-round="2"]')
    assert "Waiting" not in page.inner_text(".ds-live") + page.inner_text(".ds-run")


def test_a_moved_slider_binds_the_next_rounds_of_the_running_answer(visit, fake, fake_address, keep):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    set_number(page, "#ds-threshold", 0)
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="5"]')
    set_number(page, "#ds-l-max", 2)
    page.wait_for_selector('.ds-round[data-lmax="2"]')
    first = next(index for index, _, l_max in rounds(page) if l_max == 2)
    page.wait_for_selector(f'.ds-round[data-round="{first + 6}"]')
    seen = rounds(page)
    keep(page, "slider-moved")
    assert {length for index, length, _ in seen if index < first} == {7}
    assert {length for index, length, _ in seen if index >= first} == {2}
    shows(page, ".ds-schedule", "next round of the running answer")
    assert not finished(page)


def test_a_simulated_load_binds_the_next_rounds_and_is_called_simulated(visit, fake, fake_address, keep):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    shown = {name: f"#ds-{name}" for name in ("threshold", "bands", "simulated-load")}

    def seen():
        return {name for name, part in shown.items() if page.is_visible(part)}

    assert seen() == {"threshold"}
    choose(page, "#ds-policy", "banded")
    assert until(lambda: seen() == {"bands"})
    set_number(page, "#ds-band-low", 0.3)
    set_number(page, "#ds-band-high", 0.97)
    ask(page, "tell me")
    page.wait_for_function("window.dsparkPage.store.rounds.at(-1)?.signal?.name === 'occupancy'")
    shows(page, ".ds-signal", "(occupancy: answers in the round over those that may run at once)")
    choose(page, "#ds-load-signal", "simulated")
    assert until(lambda: seen() == {"bands", "simulated-load"})
    set_number(page, "#ds-simulated-load", 1)
    shows(page, ".ds-schedule", "simulated load 1.00")
    page.wait_for_function("window.dsparkPage.store.rounds.filter(({ signal }) => signal.value === 1).length > 3")
    keep(page, "simulated-load")
    rounds = page.evaluate("window.dsparkPage.store.rounds.map((r) => [r.signal.name, r.signal.value, r.verifyLen])")
    real, full = (
        {length for name, value, length in rounds if name == of[0] and of[1] in (None, value)}
        for of in (("occupancy", None), ("simulated", 1))
    )
    assert max(real) > max(full) == 1
    shows(page, ".ds-signal", "load 1.00 (simulated: set by the user, not measured)")
    assert until(lambda: "(simulated)" in page.text_content(".ds-round:last-child .ds-why"))
    choose(page, "#ds-policy", "threshold")
    assert until(lambda: seen() == {"threshold"})
    assert not finished(page)


def test_without_the_tick_drafting_ends_at_the_cut_from_the_next_round_on(visit, fake, fake_address, keep):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    set_number(page, "#ds-threshold", 0.6)
    assert page.is_checked("#ds-beyond-cut input")
    ask(page, "tell me")
    page.wait_for_selector('.ds-tok[data-fate="unverified"]')
    page.uncheck("#ds-beyond-cut input")
    shows(page, ".ds-schedule", "drafting ends at the cut")
    page.wait_for_function("window.dsparkPage.store.rounds.at(-1).stopEarly")
    page.wait_for_function("window.dsparkPage.store.rounds.filter((round) => round.stopEarly).length > 5")
    keep(page, "drafting-ends-at-the-cut")
    cut = "({ stopEarly, verifyLen, draft }) => [stopEarly, draft.length > verifyLen]"
    seen = page.evaluate(f"window.dsparkPage.store.rounds.map({cut})")
    assert {tuple(pair) for pair in seen} == {(False, True), (True, False)}
    assert [stops for stops, _ in seen] == sorted(stops for stops, _ in seen)
    assert not finished(page)


def test_stop_ends_the_answer_and_keeps_its_text(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="3"]')
    page.click("#ds-stop")
    page.wait_for_selector("#ds-send:enabled")
    assert fake.engine.num_active == 0
    shows(page, ".ds-run", "stopped by request")
    shows(page, ".ds-model .ds-said", "lighthouse")
    page.click("#ds-regenerate")
    page.wait_for_function("window.dsparkPage.store.running")
    assert page.locator(".ds-user").count() == 1
    page.keyboard.press("Escape")
    page.wait_for_selector("#ds-send:enabled")


def test_history_goes_to_the_model_and_new_chat_forgets_it(visit, fake, fake_address):
    page = visit(fake_address)
    page.click("#ds-more button")
    set_number(page, "#ds-max-tokens", 8)
    page.fill("#ds-system textarea", "Be brief.")
    ask(page, "echo one")
    page.wait_for_selector("#ds-regenerate:enabled")
    ask(page, "echo two")
    until(lambda: page.locator(".ds-user").count() == 2)
    page.wait_for_selector("#ds-send:enabled")
    messages = fake.requests[-1][0]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"] == "Be brief."
    assert messages[2]["content"].split() == ["one"] * 8
    page.click("#ds-clear")
    page.wait_for_selector(".ds-chat .ds-empty")
    assert page.locator(".ds-turn").count() == 0
    page.locator(".ds-example").first.click()
    page.wait_for_selector(".ds-user")
    page.wait_for_selector("#ds-send:enabled")
    assert len(fake.requests[-1][0]) == 2


def test_a_new_chat_during_an_answer_ends_it_and_stays_empty(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="3"]')
    page.click("#ds-clear")
    assert until(lambda: fake.engine.num_active == 0)
    page.wait_for_selector("#ds-send:enabled")
    time.sleep(0.5)
    assert page.locator(".ds-turn").count() == 0
    assert page.locator(".ds-round").count() == 0
    ask(page, "echo again")
    page.wait_for_selector('.ds-round[data-round="1"]')


def test_a_new_chat_at_any_moment_leaves_no_button_stuck(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    for wait_s in (0.0, 0.05, 0.3):
        page.fill("#ds-prompt textarea", "tell me")
        page.evaluate("document.querySelector('#ds-send').click()")
        time.sleep(wait_s)
        page.evaluate("document.querySelector('#ds-clear').click()")
        time.sleep(0.5)
        if page.is_enabled(
            "#ds-stop"
        ):  # the message was answered after all: then the page hears of it, and can stop it
            assert until(lambda: fake.engine.num_active == 1)
            page.click("#ds-stop")
        page.wait_for_selector("#ds-send:enabled", timeout=20_000)
        page.wait_for_selector("#ds-stop:disabled")
        assert until(lambda: fake.engine.num_active == 0)


def test_a_number_beyond_its_range_is_told_in_our_words(visit, fake_address):
    page = visit(fake_address)
    page.evaluate(
        """() => {
          const field = document.querySelector("#ds-temperature input[type=number]");
          field.value = 99;
          field.dispatchEvent(new Event("input", { bubbles: true }));
        }"""
    )
    ask(page, "tell me")
    shows(page, ".ds-notice", "temperature is 99")
    assert page.is_enabled("#ds-send")


def test_hostile_model_text_stays_text(visit, fake_address, keep):
    page = visit(fake_address)
    ask(page, "hostile")
    page.wait_for_function("window.dsparkPage.store.finish", timeout=20_000)
    page.click(".ds-table-card summary")
    keep(page, "hostile")
    assert page.title() == "DSpark Playground"
    assert page.locator(".ds-panel img, .ds-panel script, .ds-panel b b, .ds-chat a").count() == 0
    said = page.inner_text(".ds-model .ds-said")
    for piece in (
        "<img src=x onerror=",
        "${document.title",
        "`back`-ticks```",
        "<script>",
        "{{value}}",
        "**bold** $$x^2$$",
    ):
        assert piece in said
    assert "&lt;amp&amp;" in said


def test_hostile_input_and_errors_are_shown_as_text(visit, fake, fake_address):
    fake.engine.fail_at = 4
    page = visit(fake_address)
    ask(page, "<img src=x onerror=alert(1)> ${1+1}")
    page.wait_for_selector(".ds-notice:not([hidden])")
    shows(page, ".ds-notice", "scripted failure <b>${boom}</b>")
    assert page.inner_text(".ds-user .ds-said") == "<img src=x onerror=alert(1)> ${1+1}"
    fake.engine.fail_at = None
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="5"]')
    assert not page.is_visible(".ds-notice")


def test_two_visitors_stream_at_once_and_share_nothing(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    one, two = visit(fake_address), visit(fake_address)
    for page in (one, two):
        set_number(page, "#ds-threshold", 0)
    ask(one, "echo alpha")
    ask(two, "echo omega")
    for page in (one, two):
        page.wait_for_selector('.ds-round[data-round="3"]')
    assert fake.engine.num_active == 2
    set_number(one, "#ds-l-max", 1)
    one.wait_for_selector('.ds-round[data-len="1"]')
    two.wait_for_selector(f'.ds-round[data-round="{rounds(two)[-1][0] + 3}"]')
    assert {length for _, length, _ in rounds(two)} == {7}
    assert until(lambda: set(one.inner_text(".ds-model .ds-said").split()) == {"alpha"})
    assert until(lambda: set(two.inner_text(".ds-model .ds-said").split()) == {"omega"})
    one.click("#ds-stop")
    one.wait_for_selector("#ds-send:enabled")
    before = rounds(two)[-1][0]
    two.wait_for_selector(f'.ds-round[data-round="{before + 3}"]')


def test_a_closed_browser_frees_the_engine(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="3"]')
    page.context.close()
    assert until(lambda: fake.engine.num_active == 0, 5.0)


@pytest.mark.parametrize(
    ("text", "words"), [("   ", "message is empty"), ("x" * 100_000, "Start a new chat")], ids=["empty", "too long"]
)
def test_a_message_that_cannot_be_answered_is_explained(visit, fake_address, text, words):
    page = visit(fake_address)
    ask(page, text)
    page.wait_for_selector(".ds-notice:not([hidden])")
    shows(page, ".ds-notice", words)
    assert page.input_value("#ds-prompt textarea") == text
    ask(page, "echo fine")
    page.wait_for_selector('.ds-round[data-round="1"]')


def test_crossed_bounds_are_explained_and_the_running_answer_keeps_its_own(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.patience = 0.2, 20
    page = visit(fake_address)
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="2"]')
    set_number(page, "#ds-l-max", 3)
    page.wait_for_selector('.ds-round[data-lmax="3"]')
    set_number(page, "#ds-l-min", 6)
    page.wait_for_selector('.ds-schedule[data-level="error"]')
    shows(page, ".ds-schedule", "l_min must not be above l_max")
    last = rounds(page)[-1][0]
    page.wait_for_selector(f'.ds-round[data-round="{last + 4}"]')
    assert {l_max for index, _, l_max in rounds(page) if index > last} == {3}


def test_presets_are_clipped_to_the_drafter_and_say_so(visit, fake_address):
    page = visit(fake_address)
    page.locator(".ds-preset").nth(1).click()
    page.wait_for_function("document.querySelector('.ds-schedule').textContent.includes('γ = 7')")
    time.sleep(1.0)  # the sliders' own echo comes later and must not wipe the note
    shows(page, ".ds-schedule", "γ = 7")
    values = [page.input_value(f"#ds-{name} input[type=number]") for name in ("l-min", "l-max", "threshold")]
    assert values == ["5", "7", "0.6"]


def test_tokens_explain_themselves_on_focus_and_the_keyboard_reaches_all(visit, fake_address, keep):
    page = visit(fake_address)
    set_number(page, "#ds-threshold", 0.6)
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="8"]')
    stop(page)
    page.focus('.ds-tok[data-at="2.0"]')
    page.wait_for_selector("#ds-tip:not([hidden])")
    tip = page.inner_text("#ds-tip")
    for word in ("confidence c", "survival a", "draft probability", "target probability", "acceptance probability"):
        assert word in tip
    keep(page, "tooltip")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.at") == "2.1"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.at") == "3.1"
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.dataset.at") == "0.0"
    assert "round 1, position 1" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert page.locator('.ds-tok[tabindex="0"]').count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.ds-ribbon') === null")


def test_the_table_says_in_words_what_the_ribbon_colours(visit, fake_address):
    page = visit(fake_address)
    set_number(page, "#ds-threshold", 0.6)
    ask(page, "tell me")
    page.wait_for_function("window.dsparkPage.store.finish", timeout=20_000)
    page.click(".ds-table-card summary")
    page.wait_for_function(
        "document.querySelectorAll('.ds-table-card tbody tr').length === dsparkPage.store.rounds.length"
    )
    row = page.locator(".ds-table-card tbody tr").nth(2).inner_text()
    line = page.locator('.ds-round[data-round="2"] .ds-tok[data-fate]')
    for fate in {node.get_attribute("data-fate") for node in line.all()}:
        assert fate in row


def test_figures_and_charts_follow_the_answer(visit, fake, fake_address):
    page = visit(fake_address)
    page.wait_for_function(
        "document.querySelector('[data-fig=plain] .ds-sub').textContent.startsWith('measured')", timeout=20_000
    )
    ask(page, "tell me")
    page.wait_for_selector('.ds-round[data-round="8"]')
    page.wait_for_function("window.dsparkPage.store.finish", timeout=20_000)
    figures = page.evaluate("window.dsparkPage.store.figures")
    shows(page, "[data-fig=tau] .ds-big", f"{figures['tau']:.2f}")  # the page rests between two drawings
    shows(page, "[data-fig=ratio] .ds-big", "×")
    page.locator("[data-plot=rounds]").scroll_into_view_if_needed()
    page.wait_for_function(
        "document.querySelector('[data-plot=rounds]').data?.[0]?.x.length === dsparkPage.store.rounds.length"
    )
    plotted = page.evaluate("document.querySelector('[data-plot=rounds]').data.map((trace) => trace.x.length)")
    assert plotted == [figures["rounds"]] * 4
    for name, points in (("block", "data[1].x.length === 7"), ("load", "data[0].y.length > 0")):
        page.locator(f"[data-plot={name}]").scroll_into_view_if_needed()
        page.wait_for_function(
            f"document.querySelector('[data-plot={name}]').data && "
            f"document.querySelector('[data-plot={name}]').{points.replace(']', ']?')}"
        )
    runs = len(fake.engine.submitted)
    page.click("[data-press]")
    assert until(lambda: len(fake.engine.submitted) == runs + 2)


def test_ribbon_and_chat_stay_at_their_ends_until_the_reader_scrolls_up(visit, fake, fake_address):
    fake.engine.pace_s, fake.engine.patience = 0.15, 20
    page = visit(fake_address)
    ask(page, "tell me")
    page.eval_on_selector(".ds-ribbon", "(box) => box.scrollIntoView()")
    gap = "(box) => box.scrollHeight - box.clientHeight - box.scrollTop"
    for number in (20, 26):
        page.wait_for_selector(f'.ds-round[data-round="{number}"]', state="attached")
        time.sleep(0.3)
        assert page.eval_on_selector(".ds-ribbon", gap) < 60
        assert page.eval_on_selector(".ds-chat", gap) < 60
    page.eval_on_selector(".ds-ribbon", "(box) => { box.scrollTop = 40; }")
    page.wait_for_selector('.ds-round[data-round="32"]', state="attached")
    assert page.eval_on_selector(".ds-ribbon", gap) > 100


def test_a_legend_key_hides_and_shows_its_fate(visit, fake_address):
    page = visit(fake_address)
    ask(page, "tell me")
    page.wait_for_selector('.ds-tok[data-fate="rejected"]')

    def displayed():  # lines out of sight have no boxes, so Playwright takes them for hidden
        return page.eval_on_selector_all(
            '.ds-tok[data-fate="rejected"]', "(all) => all.filter((n) => getComputedStyle(n).display !== 'none').length"
        )

    page.click('.ds-key[data-key="rejected"]')
    assert until(lambda: displayed() == 0)
    page.click('.ds-key[data-key="rejected"]')
    assert until(lambda: displayed() > 0)


def test_an_open_page_comes_to_rest(visit, fake_address):
    page = visit(fake_address)
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable")
    page.evaluate(
        """() => {
          window.run = { requestAnimationFrame: 0, setTimeout: 0 };
          for (const name of Object.keys(run)) {
            const ask = window[name];
            window[name] = (call, ...rest) => ask((...args) => ((run[name] += 1), call(...args)), ...rest);
          }
        }"""
    )

    def counts():
        figures = {figure["name"]: figure["value"] for figure in cdp.send("Performance.getMetrics")["metrics"]}
        return page.evaluate("({...run})") | {name: figures[name] for name in ("LayoutCount", "RecalcStyleCount")}

    def most_in_three_seconds():
        before = counts()
        page.wait_for_timeout(3000)
        return max(count - before[name] for name, count in counts().items())

    # A page that draws all the time does each 180 times. Gradio's springs move for a while after the page has opened.
    assert until(lambda: most_in_three_seconds() < 30), "the page never comes to rest"
    assert page.evaluate("document.getAnimations().filter((one) => one.playState === 'running').length") == 0


def test_lost_messages_are_healed_by_the_whole_trace(visit, fake_address):
    page = visit(fake_address)
    page.evaluate(
        """() => {
          const store = window.dsparkPage.store, take = store.receive.bind(store);
          let count = 0;
          store.receive = (json) => {
            const part = json.includes('"kind": "answer"') && !json.includes('"full": true');
            if (part) count += 1;
            if (!part || count <= 3 || count >= 40) take(json);
          };
        }"""
    )
    ask(page, "tell me")
    page.wait_for_function("window.dsparkPage.store.finish", timeout=20_000)
    total = page.evaluate("window.dsparkPage.store.rounds.length")
    assert until(lambda: [index for index, _, _ in rounds(page)] == list(range(total)))  # drawn in pieces
    assert page.locator(".ds-lost").count() == 0
    text = page.evaluate("window.dsparkPage.store.text.trim()")
    assert until(lambda: page.inner_text(".ds-model .ds-said").strip() == text)


def test_news_that_are_lost_on_their_way_are_told_again(visit, fake_address):
    page = visit(fake_address)
    page.evaluate(
        """() => {
          const ask = window.fetch;
          let count = 0;
          window.lost = 0;
          window.fetch = async (...args) => {
            const reply = await ask(...args);
            if (!/news\\?.*answer=/.test(args[0]) || (count++) % 3) return reply;
            window.lost += (await reply.text()).includes('"answer"');
            throw new TypeError("lost");
          };
          window.holes = 0;
          window.dsparkPage.store.listen(({ live }) => { window.holes += live.holes; });
        }"""
    )
    ask(page, "tell me")
    page.wait_for_function("window.dsparkPage.store.finish", timeout=60_000)
    assert page.evaluate("[window.lost > 0, window.holes]") == [True, 0]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 360])
def test_the_page_fits_and_is_kept_as_a_picture(visit, fake_address, keep, theme, width):
    page = visit(fake_address, width=width, height=1000, theme=theme)
    set_number(page, "#ds-threshold", 0.55)
    ask(page, "tell me a story")
    page.wait_for_selector('.ds-round[data-round="14"]')
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")
    stop(page)
    page.set_viewport_size({"width": width, "height": int(page.evaluate("document.documentElement.scrollHeight")) + 20})
    page.wait_for_function(
        """() => ["block", "rounds", "load"].every((name) => {
          const data = document.querySelector(`[data-plot=${name}]`).data;
          return data && data[0].x.length > 0;
        }) && document.querySelector("[data-plot=rounds]").data[0].x.length === dsparkPage.store.rounds.length"""
    )
    time.sleep(0.5)
    keep(page, f"page-{theme}-{width}")
    too_wide = page.evaluate(
        "[...document.querySelectorAll('.ds-panel *, #ds-controls *')].filter((n) => n.offsetParent"
        " && n.getBoundingClientRect().right > innerWidth + 1 && !n.closest('.ds-scroll, .ds-plot, .ds-earlier'))"
        ".map((n) => n.outerHTML.slice(0, 80))"
    )
    assert too_wide == []


def test_the_theme_button_switches_and_charts_follow(visit, fake_address):
    page = visit(fake_address)
    page.locator("[data-plot=load]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-plot=load] .main-svg")
    before = page.evaluate("document.querySelector('[data-plot=load]').layout.font.color")
    page.evaluate("document.querySelector('.ds-theme').click()")  # without scrolling the chart out of sight
    page.wait_for_function(f"document.querySelector('[data-plot=load]').layout.font.color !== '{before}'")
    page.reload()
    page.wait_for_function("document.body.classList.contains('dark')")


def test_a_model_that_cannot_be_opened_is_explained_and_can_be_tried_again(visit, serve):
    tries = []

    def opener(_progress):
        tries.append(1)
        if len(tries) == 1:
            raise ModelUnavailableError("There is no model 'nope'. Known models: smollm2-135m.")
        return FakeSession(0.05)

    page = visit(serve(opener, "nope"), ready=False)
    page.wait_for_selector(".ds-notice:not([hidden])")
    shows(page, ".ds-notice", "There is no model 'nope'. Known models")
    assert page.is_disabled("#ds-send")
    page.click("#ds-retry")
    page.wait_for_selector("#ds-send:enabled")
    assert not page.is_visible(".ds-notice")


def test_the_page_is_up_while_the_model_loads(visit, serve):
    go = threading.Event()

    def opener(progress):
        progress("fetching weights", 0.4)
        go.wait(60)
        return FakeSession(0.05)

    page = visit(serve(opener), ready=False)
    page.wait_for_selector(".ds-state-text:text('fetching weights')")
    assert page.is_disabled("#ds-send")
    assert page.evaluate("document.querySelector('.ds-progress').value") == pytest.approx(0.4)
    go.set()
    page.wait_for_selector("#ds-send:enabled")
