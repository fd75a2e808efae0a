"""The tab Learn in a real browser: its lessons, what their pictures do, where they lead, and the glossary."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import fits, open_tab, until

pytestmark = pytest.mark.browser
LESSONS = ("memory", "draft", "lossless", "decay", "semi", "confidence", "load", "rebound")

# Texts whose contrast with what lies behind them is below AA; the browser computes the colours, opacity and mixtures.
FAINT = """([parts]) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const paint = (colours) => {
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, 1, 1);
    for (const [colour, opacity] of colours) {
      pen.globalAlpha = opacity;
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
    }
    pen.globalAlpha = 1;
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const up = (node) => (node ? [...up(node.parentElement), node] : []);
  const contrast = (node) => {
    const all = up(node).map((each) => getComputedStyle(each));
    const grounds = all.map((style) => [style.backgroundColor, 1]);
    const opacity = all.reduce((product, style) => product * Number(style.opacity), 1);
    const [ground, ink] = [paint(grounds), paint([...grounds, [all.at(-1).color, opacity]])];
    return (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
  };
  const says = (node) => [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
  return [...document.querySelectorAll(parts)]
    .filter((node) => node.offsetParent && says(node) && !node.disabled && contrast(node) < 4.5)
    .map((node) => `${node.className} ${node.textContent.slice(0, 40)}: ${contrast(node).toFixed(2)}`);
}"""


def opened(page):
    open_tab(page, "learn")
    page.wait_for_selector("[data-widget=memory] .ds-slider:visible")
    return page


def lesson(page, key):
    """Opens a lesson from the list; returns its article."""
    page.locator(".ds-lessons button").nth(LESSONS.index(key)).click()
    page.wait_for_selector(f"[data-lesson={key}]:visible")
    return page.locator(f"[data-lesson={key}]")


def slide(part, value, at=0):
    part.locator("input[type=range]").nth(at).fill(str(value))


def outcome(part):
    return part.locator(".ds-outcome").inner_text()


def test_lessons_follow_each_other_and_each_has_a_question_with_its_answer(visit, fake_address):
    page = opened(visit(fake_address))
    assert page.locator(".ds-lessons button").count() == len(LESSONS)
    for at, key in enumerate(LESSONS):
        if at:
            page.click('[data-turn="1"]')
        part = page.locator(f"[data-lesson={key}]")
        assert page.locator(".ds-lesson:visible").count() == 1
        assert part.is_visible()
        assert part.locator("h3").inner_text().startswith(f"{at + 1}. ")
        assert part.locator(".ds-question").inner_text().startswith("Try: ")
        part.locator("summary").click()
        assert all(text.is_visible() for text in part.locator("details p").all())
        assert part.locator("figcaption b").inner_text() in ("recorded", "simulated", "computed")
    assert page.is_disabled('[data-turn="1"]')


def test_every_picture_answers_what_is_done_to_it(visit, fake_address):
    page = opened(visit(fake_address))
    for key, value, says in (
        ("memory", 3, "times as long as over one"),
        ("confidence", 0.9, "tokens a round"),
        ("load", 4, "drafts a round on average"),
        ("rebound", 1.0, "the total is 1.00 of before"),
    ):
        part = lesson(page, key)
        before = outcome(part)
        slide(part, value)
        assert outcome(part) != before
        assert says in outcome(part)

    part = lesson(page, "draft")
    for step in range(1, 5):
        assert part.locator(".ds-tok").count() == 0 or step > 1
        part.locator("figure button").click()
    assert re.search(r"τ\s=\s\d", outcome(part))
    assert part.locator(".ds-gone").count() > 0

    part = lesson(page, "lossless")
    part.get_by_role("button", name="Draw a thousand").click()
    assert outcome(part).startswith("1000 tokens drawn")
    counts = [int(n) for n in re.findall(r"[ABC] (\d+)", outcome(part))]
    assert counts[0] > counts[1] > counts[2], "as the target has it, although every draft is from another law"
    part.locator("input[type=checkbox]").check()
    assert "Nothing drawn yet" in outcome(part)
    part.get_by_role("button", name="Draw a thousand").click()
    counts = [int(n) for n in re.findall(r"[ABC] (\d+)", outcome(part))]
    assert counts[0] < counts[1] < counts[2], "as the drafter has it"

    part = lesson(page, "decay")
    assert part.locator("tbody tr").count() >= 4
    part = lesson(page, "semi")
    tables = []
    for at in (0, 2):
        part.locator(".ds-strip .ds-tok").nth(at).click()
        tables.append(part.locator(".ds-candidates").inner_text())
    assert tables[0] != tables[1]


def test_a_lesson_leads_to_its_tab_with_the_settings_that_it_names(visit, fake_address):
    page = opened(visit(fake_address))
    for key, at, tab in (
        ("memory", 0, "load"), ("draft", 0, "rounds"), ("lossless", 0, "lab"), ("decay", 0, "race"),
        ("semi", 0, "rounds"), ("confidence", 0, "chat"), ("confidence", 1, "calibration"), ("load", 0, "load"),
        ("rebound", 0, "cost"),
    ):  # fmt: skip
        lesson(page, key).locator("[data-go]").nth(at).click()
        page.wait_for_selector(f"#ds-tabs [role=tab][data-tab-id={tab}][aria-selected=true]", state="attached")
        if (key, tab) == ("confidence", "chat"):
            assert until(lambda: page.input_value("#ds-threshold input[type=number]") == "0.6")
            assert page.input_value("#ds-policy input").startswith("threshold")
            assert until(lambda: "threshold=0.6" in page.evaluate("location.search"))
        open_tab(page, "learn")


def test_the_glossary_has_the_words_in_order(visit, fake_address):
    page = opened(visit(fake_address))
    terms = page.locator(".ds-glossary dt").all_inner_texts()
    assert {"drafter", "τ", "bonus", "budget per request"} <= set(terms)
    assert page.locator(".ds-glossary dd").count() == len(terms)
    assert page.evaluate("(terms) => [...terms].sort((a, b) => a.localeCompare(b))", terms) == terms


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_tab_fits_and_is_kept_as_a_picture(visit, fake_address, keep, theme, width):
    page = opened(visit(fake_address, width=width, theme=theme))
    for key in LESSONS:
        part = lesson(page, key)
        if key == "draft":
            for _ in range(4):
                part.locator("figure button").click()
        assert page.evaluate(FAINT, [".ds-panel :not(.ds-sp, svg *)"]) == []
        name = f"learn-{theme}-{width}" if key == "draft" else f"learn-{key}-{theme}-{width}"
        fits(page, width, ".ds-learn *, .ds-glossary *", keep, name)
