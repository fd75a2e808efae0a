"""Explore in a real browser: a sweep from the form to the chat, stopped half-way, recorded, hostile, looked at."""

from __future__ import annotations

import json
import time

import pytest

from tests.browser.conftest import fits, open_tab, shows, until

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def quick(fake):
    """Answers are quick here; other tests find the usual pace."""
    fake.engine.pace_s = 0.005
    yield
    fake.engine.pace_s = 0.05
    until(lambda: fake.engine.num_active == 0)


def opened(visit, address, **size):
    page = visit(address, **size)
    open_tab(page, "explore")
    page.wait_for_selector(".ds-ex-go:visible")
    return page


def sweep(page, wait=True, **fields):
    for name, value in {"prompts": "tell me\nand me", "tokens": "12", "threshold": "0,0.6", **fields}.items():
        page.fill(f".ds-ex-form [name={name}]", value)
    page.click(".ds-ex-go")
    if wait:
        page.wait_for_selector("[data-export=csv]:enabled", timeout=60_000)


def rows(page):
    return page.eval_on_selector_all(
        ".ds-ex-table tbody tr", "(all) => all.map((row) => [...row.children].map((cell) => cell.textContent))"
    )


def saved(page, kind):
    with page.expect_download() as download:
        page.click(f"[data-export={kind}]")
    return download.value.path().read_text(encoding="utf-8")


def test_a_sweep_is_measured_sorted_exported_and_applied_to_the_chat(visit, fake_address):
    page = opened(visit, fake_address)
    sweep(page, l_max="2,5", l_min="0,4")
    shows(page, ".ds-ex-kind", "MEASURED")
    shows(page, ".ds-ex-left summary", "2 combinations were left out")
    assert len(rows(page)) == 6
    page.click("[data-by=waste]")
    page.wait_for_selector("th[aria-sort=descending] [data-by=waste]")
    waste = [float(row[7].split(" ")[0]) for row in rows(page)]
    assert waste == sorted(waste, reverse=True)
    report = json.loads(saved(page, "json"))
    assert len(report["rows"]) == 6
    assert len(saved(page, "csv").splitlines()) == 7
    page.click("[data-by=l_max]")
    page.focus(".ds-ex-table tbody tr")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ds-ex-chosen:visible")
    row = next(it for it in report["rows"] if it["id"] == int(page.get_attribute("tr[aria-selected=true]", "data-id")))
    shows(page, ".ds-ex-flags", "--speculative-config")
    shows(page, ".ds-ex-notes", "no counterpart")
    assert page.locator(".ds-ex-map button").count() == 4
    assert page.locator(".ds-ex-dot").count() == 6
    assert page.is_visible(".ds-ex-threshold")
    page.click(".ds-ex-apply")
    page.wait_for_selector("#ds-controls:visible")
    for selector, name in (("#ds-l-min", "l_min"), ("#ds-l-max", "l_max"), ("#ds-threshold", "threshold")):
        page.wait_for_function(
            "([field, value]) => Number(document.querySelector(field).value) === value",
            arg=[f"{selector} input[type=number]", row[name]],
        )


def test_a_sweep_stopped_half_way_keeps_its_rows_and_the_engine_is_free(visit, fake, fake_address):
    fake.engine.pace_s = 0.05
    page = opened(visit, fake_address)
    sweep(page, wait=False, threshold="0:0.9:0.1", tokens="40")
    page.wait_for_function("document.querySelectorAll('.ds-ex-table tbody tr').length >= 2", timeout=60_000)
    shows(page, ".ds-ex-now", " left")
    page.click(".ds-ex-stop")
    page.wait_for_selector("[data-export=json]:enabled")
    shows(page, ".ds-ex-now", "stopped")
    assert 2 <= len(rows(page)) < 10
    assert until(lambda: fake.engine.num_active == 0)


def test_leaving_the_page_stops_its_sweep(unwatched, fake, fake_address):
    fake.engine.pace_s = 0.05
    page = opened(unwatched, fake_address)
    sweep(page, wait=False, tokens="400")
    assert until(lambda: fake.engine.num_active == 1)
    page.goto("about:blank")
    assert until(lambda: fake.engine.num_active == 0)
    submitted = len(fake.engine.submitted)
    time.sleep(1)
    assert len(fake.engine.submitted) == submitted


def test_the_threshold_figure_is_one_press_and_a_wrong_grid_is_explained(visit, fake_address):
    page = opened(visit, fake_address)
    page.click("[data-preset=threshold]")
    assert page.input_value("[name=threshold]") == "0:0.9:0.1"
    sweep(page, threshold="fast", wait=False)
    shows(page, ".ds-ex-error", "Write numbers with commas")
    sweep(page, threshold="0,0.5,0.9")
    assert not page.is_visible(".ds-ex-error")
    assert page.locator(".ds-ex-threshold [data-plot=shares] .ds-ex-mark").count() >= 4
    assert "acceptance rate" in page.get_attribute(".ds-ex-threshold [data-plot=shares]", "aria-label")


def test_a_recorded_sweep_of_a_stranger_is_shown_as_recorded_and_as_text_alone(visit, fake_address, tmp_path):
    page = opened(visit, fake_address)
    sweep(page, prompts="hostile\n<script>document.title='pwned'</script>")
    report = json.loads(saved(page, "json"))
    evil = "<img src=x onerror=\"document.title='pwned'\">${document.title='pwned'}"
    report |= {"model": evil, "device": evil, "left_out": [{**report["rows"][0], "reason": evil}]}
    report["rows"] = [{**row, "drafter": evil, "policy": "=1+1", "failure": evil} for row in report["rows"]]
    path = tmp_path / "evil.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    page.set_input_files(".ds-ex-form input[type=file]", path)
    shows(page, ".ds-ex-kind", "RECORDED")
    shows(page, ".ds-ex-head", "onerror")
    assert not page.is_visible(".ds-ex-threshold"), "no row of the file is one of the policy threshold"
    page.click(".ds-ex-table tbody tr")
    shows(page, ".ds-ex-chosen h3", "onerror")
    page.click(".ds-ex-apply")
    shows(page, ".ds-ex-error", "is not here")
    page.hover(".ds-ex-dot")
    time.sleep(0.3)
    assert page.title() == "DSpark Playground"
    assert page.locator(".ds-explore :is(img, script)").count() == 0
    assert "'=1+1" in saved(page, "csv")


def test_a_field_of_numbers_says_what_the_address_wanted_of_it(visit, fake_address):
    page = opened(visit, f"{fake_address}?explore_limit=<b>abc&explore_tokens=24")
    shows(page, ".ds-ex-error", "explore_limit is “<b>abc” in the address")
    assert page.locator(".ds-ex-error b").count() == 0
    limit, tokens = (page.input_value(f".ds-ex-form [name={name}]") for name in ("limit", "tokens"))
    assert int(limit) > 0
    assert tokens == "24"
    assert until(lambda: "explore_limit" not in page.evaluate("location.search"))  # Playwright's own copy may be old


def test_explore_speaks_chinese(visit, fake_address):
    page = opened(visit, fake_address)
    page.click("[data-language=zh]")
    sweep(page)
    shows(page, ".ds-ex-now", "完成")
    page.click(".ds-ex-table tbody tr")
    shows(page, ".ds-ex-apply", "用于对话")
    shows(page, ".ds-ex-table thead", "接受率")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_explore_fits_and_is_kept_as_a_picture(visit, fake_address, keep, theme, width):
    page = opened(visit, fake_address, width=width, theme=theme)
    sweep(page, l_max="2,4,7", threshold="0:0.9:0.3")
    page.click(".ds-ex-table tbody tr")
    page.wait_for_selector(".ds-ex-chosen:visible")
    time.sleep(0.5)
    fits(page, width, ".ds-explore *", keep, f"explore-{theme}-{width}")
