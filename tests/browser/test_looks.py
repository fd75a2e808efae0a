"""What a narrow page must not do to pictures and lines: cut or cover their text."""

from __future__ import annotations

import pytest

from tests.browser.conftest import open_tab

pytestmark = pytest.mark.browser

# Texts of drawings that are cut by their drawing's edge, or that cover each other.
SPOILT = """(root) => [...document.querySelectorAll(`${root} svg`)].flatMap((svg) => {
  if (!svg.checkVisibility()) return [];
  const edge = svg.getBoundingClientRect();
  const free = getComputedStyle(svg).overflow === "visible";
  const texts = [...svg.querySelectorAll("text:not(.ds-level-name)")].filter((text) => text.textContent);
  const at = new Map(texts.map((text) => [text, text.getBoundingClientRect()]));
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
  return texts.filter((text, index) => {
    const box = at.get(text);
    const cut = !free && (box.left < edge.left - 1 || box.right > edge.right + 1 || box.bottom > edge.bottom + 2);
    const covers = texts.slice(0, index).some((other) => over(box, at.get(other)));
    return cut || covers || box.left < 0 || box.right > innerWidth;
  }).map((text) => text.textContent);
})"""


@pytest.mark.parametrize("width", [390, 360])
def test_no_text_of_a_drawing_is_cut_or_covered_on_a_narrow_page(visit, fake_address, width):
    page = visit(fake_address, width=width)
    for key, root in (("learn", "#ds-learn-panel"), ("cost", "#ds-cost-panel"), ("load", "#ds-loadtab-panel")):
        open_tab(page, key)
        page.wait_for_selector(f"{root} svg text")
        assert page.evaluate(SPOILT, root) == [], key


def test_no_line_of_the_header_begins_with_a_dot(visit, fake_address):
    page = visit(fake_address, width=390)
    page.wait_for_selector(".ds-machine span")
    dots = page.eval_on_selector_all(
        ".ds-machine span",
        "(all) => all.map((one) => ['::before', '::after'].map((at) => getComputedStyle(one, at).content))",
    )
    assert [before for before, _ in dots] == ["none"] * len(dots)
    assert [after for _, after in dots] == ['"·"'] * (len(dots) - 1) + ["none"]


def test_the_names_in_drawings_stand_beside_the_curves(visit, fake_address):
    page = visit(f"{fake_address}?tab=learn", ready=False)
    page.wait_for_function("window.dsparkPage?.store")
    crossed = page.evaluate(
        """async () => {
          const { Picture } = await import(new URL("dspark/static/picture.js", location));
          const svg = document.body.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
          svg.setAttribute("viewBox", "0 0 520 190");
          svg.style.width = "520px";
          const curves = [[0.7, 0.7, 0.36, 0.36], [0.36, 0.36, 0.7, 0.7], [0.24, 0.36, 0.24, 0.24]];
          return curves.map((values) => {
            const picture = new Picture(svg, { first: 1, last: 4, ticks: [0, 1], format: String });
            picture.level(0.3, "threshold 0.30 on c");
            picture.path(values.map((value, at) => [at + 1, value]), "ds-line-confidence");
            const name = svg.querySelector(".ds-level-name").getBBox();
            const line = svg.querySelector("polyline");
            const inside = (at) => {
              const { x, y } = line.getPointAtLength(at);
              return x > name.x && x < name.x + name.width && y > name.y && y < name.y + name.height;
            };
            return Array.from({ length: 400 }, (_, at) => (at / 400) * line.getTotalLength()).filter(inside).length;
          });
        }"""
    )
    assert crossed == [0, 0, 0]


def test_numbers_of_many_digits_have_their_thousands_apart(visit, fake_address):
    page = visit(f"{fake_address}?tab=cost&cost_gpus=123456", ready=False)
    page.wait_for_function("document.querySelector('.ds-cost-table')?.textContent.includes('12\\u202f350\\u202f000')")
    written = page.evaluate(
        "async () => { const { significant } = await import(new URL('dspark/static/text.js', location));"
        " return [0, 0.004, 1234.56, -98765432, 1e21, 1e-9].map((value) => significant(value)); }"
    )
    assert written == ["0", "0.004", "1\u202f235", "-98\u202f770\u202f000", "1e+21", "1e-9"]
