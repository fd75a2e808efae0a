"""The page in two languages, and what its address brings back."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.conftest import ask, choose, open_tab, set_number, shows, until

pytestmark = pytest.mark.browser
LEFT = r"""(root) => {
  // Texts in sight with an English word of four letters, but for names, the model's and the server's texts.
  const skip = "[translate=no], code, .ds-said, .ds-tok, .ds-example, .ds-why, .ds-because, .ds-run, .ds-banner, " +
    "[role=option], .ds-schedule, .ds-notice, .ds-machine, [data-load-note], [data-load-signal], .ds-feed, style, " +
    "script, svg, .ds-plot, td, .ds-verdict";
  const names = /\b(DSpark|Spark|Plotly|occupancy|engine|device|simulated|threshold|Enter|Shift|system)\b/g;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const left = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (parent.closest(skip) || !parent.checkVisibility()) continue;
    if (/[A-Za-z]{4}/.test(node.data.replace(names, ""))) left.push(node.data.trim());
  }
  return left;
}"""


CHINESE = r"""() => {
  // Chinese texts in the open tab, but for names, the built-in prompts and the model's texts.
  const left = [];
  for (const panel of document.querySelectorAll("#ds-tabs [role=tabpanel]")) {
    const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!parent.checkVisibility() || parent.closest("[translate=no], code, .ds-said, .ds-tok, .ds-example")) continue;
      if (/[\u4e00-\u9fff]/.test(node.data)) left.push(node.data.trim());
    }
  }
  return left;
}"""
TABS = ("learn", "calibration", "lab", "race", "load", "cost", "explore", "rounds", "chat")


def question(page):
    address = page.evaluate("location.href")  # Playwright's own copy only follows while it is asked for something
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def answered(page):
    ask(page, "tell me")
    page.wait_for_selector(".ds-round")
    page.wait_for_selector("#ds-regenerate:enabled", timeout=60_000)


def test_a_chinese_browser_gets_chinese_everywhere_and_the_switch_changes_it_without_losing_the_answer(
    visit, fake_address, keep
):
    page = visit(fake_address, locale="zh-CN")
    assert page.get_attribute("html", "lang") == "zh-CN"
    set_number(page, "#ds-l-max", 3)
    answered(page)
    assert until(lambda: page.evaluate(LEFT, page.query_selector("#ds-main")) == []), page.evaluate(
        LEFT, page.query_selector("#ds-main")
    )
    for part in ("#ds-header", "#ds-headline", "#ds-controls", "#ds-charts-panel", "#ds-tabs [role=tablist]"):
        assert page.evaluate(LEFT, page.query_selector(part)) == [], part
    shows(page, "#ds-ribbon-panel .ds-legend", "接受")
    said = page.inner_text(".ds-said >> nth=1")
    keep(page, "chinese")
    page.click("[data-language=en]")
    shows(page, "#ds-headline", "plain decoding")
    shows(page, "#ds-tabs", "Rounds")
    shows(page, "#ds-chat .ds-who >> nth=0", "You")
    assert page.get_attribute("html", "lang") == "en"
    assert page.input_value("#ds-policy input") == "threshold"
    assert not re.search("[\u4e00-\u9fff]", page.inner_text("#ds-controls") + page.inner_text("#ds-main"))
    assert page.inner_text(".ds-said >> nth=1") == said
    page.reload()
    page.wait_for_selector("#ds-send:enabled")
    assert page.get_attribute("html", "lang") == "en"


def test_an_address_may_ask_for_a_language(visit, fake_address):
    page = visit(f"{fake_address}?lang=zh")
    shows(page, "#ds-send", "发送")
    shows(page, "#ds-header", "主题")
    assert page.get_attribute("[data-language=zh]", "aria-pressed") == "true"
    other = visit(f"{fake_address}?lang=<b>")
    shows(other, "#ds-send", "Send")


def test_choices_and_presets_speak_the_visitors_language_too(visit, fake_address):
    page = visit(f"{fake_address}?lang=zh&load_sets=code,chinese")
    open_tab(page, "load")
    for word in ("数学", "代码", "低延迟", "高吞吐"):
        shows(page, "#ds-load-controls", word)
    assert not re.search("maths|code|latency", page.inner_text("#ds-load-controls"))
    checked = "(boxes) => boxes.filter((box) => box.checked).map((box) => box.closest('label').textContent.trim())"
    assert page.eval_on_selector_all("#ds-load-controls fieldset input[type=checkbox]", checked) == ["代码", "中文"]
    open_tab(page, "calibration")
    shows(page, "#ds-cal-controls", "贪心")


def test_a_link_brings_tab_and_settings_back_and_the_address_follows_them(visit, fake_address):
    page = visit(f"{fake_address}?policy=banded&l_max=3&temperature=0.7&seed=3&prompt=tell%20%24%7B1%2B1%7D%20%3Cb%3E")
    assert until(lambda: page.input_value("#ds-policy input") == "banded")
    assert page.input_value("#ds-l-max input[type=number]") == "3"
    assert page.input_value("#ds-temperature input[type=number]") == "0.7"
    assert page.input_value("#ds-prompt textarea") == "tell ${1+1} <b>"
    set_number(page, "#ds-l-max", 2)
    choose(page, "#ds-policy", "fixed")
    page.click("[data-tab-id=rounds]")
    wanted = {"policy": "fixed", "l_max": "2", "temperature": "0.7", "seed": "3", "tab": "rounds"}
    assert until(lambda: wanted.items() <= question(page).items()), page.url
    again = visit(page.url, ready=False)
    assert until(lambda: again.get_attribute("[data-tab-id=rounds]", "aria-selected") == "true")
    again.click("[data-tab-id=chat]")
    again.wait_for_selector("#ds-send:enabled")
    assert until(lambda: again.input_value("#ds-l-max input[type=number]") == "2")
    set_number(again, "#ds-temperature", 0)
    assert until(lambda: "temperature" not in question(again)), again.url


def test_every_tab_has_its_controls_in_the_address(visit, fake_address):
    query = "race_lanes=plain,dspark%2Bfixed&race_seed=7&load_users=3&load_sets=code&load_plain=0&lab_temperature=1.5"
    query += "&calibration_prompts=6&cost_elasticity=0.5&explore_threshold=0:0.9:0.3"
    page = visit(f"{fake_address}?tab=explore&{query}", ready=False)
    page.wait_for_selector(".ds-ex-form:visible")
    assert page.input_value(".ds-ex-form [name=threshold]") == "0:0.9:0.3"
    for tab, selector, value in (
        ("load", "#ds-load-users", "3"),
        ("lab", "#ds-lab-temperature", "1.5"),
        ("calibration", "#ds-cal-prompts", "6"),
        ("cost", "#ds-cost-elasticity", "0.5"),
    ):
        open_tab(page, tab)  # Gradio makes what is in a tab when it is opened
        field = f"{selector} input[type=number]"
        assert until(lambda: page.input_value(field) == value), selector  # noqa: B023
    open_tab(page, "race")
    assert page.input_value("#ds-race-seed textarea, #ds-race-seed input") == "7"
    shows(page, "#ds-race-lanes", "dspark+fixed")
    page.fill("#ds-race-seed textarea, #ds-race-seed input", "")
    assert until(lambda: "race_seed" not in question(page))
    assert question(page)["race_lanes"] == "plain,dspark+fixed"
    assert question(page)["load_users"] == "3"
    open_tab(page, "explore")
    page.fill(".ds-ex-form [name=threshold]", "0.5")
    assert until(lambda: question(page).get("explore_threshold") == "0.5")


def test_what_is_drawn_in_every_tab_changes_its_language(visit, fake_address):
    page = visit(fake_address, locale="zh-CN")
    answered(page)
    for tab in TABS:
        open_tab(page, tab)
        page.wait_for_timeout(300)
    page.wait_for_selector(".ds-cal-body", state="attached")
    page.click("[data-language=en]")
    for tab in TABS:
        open_tab(page, tab)
        assert until(lambda: page.evaluate(CHINESE) == []), (tab, page.evaluate(CHINESE))


def test_what_an_address_cannot_have_is_told_and_inert_and_the_rest_applies(visit, fake_address):
    bad = "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'pwned'%22%3E"
    page = visit(f"{fake_address}?temperature={bad}&l_min=3&drafter=${{document.title='pwned'}}&threshold=7")
    shows(page, "#ds-notice-panel", "temperature is ")
    shows(page, "#ds-notice-panel", "from 0 to 2")
    shows(page, "#ds-notice-panel", "threshold is ")
    shows(page, "#ds-notice-panel", "drafter is ")
    assert page.input_value("#ds-l-min input[type=number]") == "3"
    assert page.input_value("#ds-temperature input[type=number]") == "0"
    assert page.title() == "DSpark Playground"
    assert page.query_selector("#ds-notice-panel img") is None


def test_copy_link_copies_the_settings_and_the_message(visit, fake_address):
    page = visit(fake_address)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    set_number(page, "#ds-temperature", 0.5)
    page.fill("#ds-prompt textarea", "a & b")
    page.click("#ds-link-panel button")
    shows(page, "#ds-link-panel", "Copied")
    copied = parse_qs(urlsplit(page.evaluate("navigator.clipboard.readText()")).query)
    assert copied == {"temperature": ["0.5"], "prompt": ["a & b"]}


def test_on_a_narrow_page_the_menu_of_tabs_changes_its_language_and_an_address_opens_what_is_in_it(visit, fake_address):
    page = visit(f"{fake_address}?tab=learn", width=390, locale="zh-CN", ready=False)
    assert until(lambda: page.get_attribute("[data-tab-id=learn]", "aria-selected") == "true")
    page.click("[data-language=en]")
    assert until(lambda: not re.search("[\u4e00-\u9fff]", page.text_content("#ds-tabs .tab-wrapper")))


def test_a_word_that_hangs_on_a_count_agrees_with_it(visit, fake_address):
    page = visit(fake_address)
    said = page.evaluate(
        """async () => {
          const { t } = await import(new URL("dspark/static/words.js", location));
          const users = "{users} {users:user asks|users ask}: {lane}. Move the slider, or chat beside them.";
          return [1, "1", 0, 2, "1,001"].map((users_) => t(users, { users: users_, lane: "{users:x|y} {users}" }));
        }"""
    )
    named = [words.split(":")[0] for words in said]
    assert named == ["1 user asks", "1 user asks", "0 users ask", "2 users ask", "1,001 users ask"]
    assert all("{users:x|y} {users}" in words for words in said)  # a value is never read as a pattern
