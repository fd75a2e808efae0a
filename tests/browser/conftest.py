"""A real Chromium on a page that runs in this process, and a watch on everything it complains about."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.ui.fake_session import FakeSession
from tests.ui.pages import served

PATIENCE_MS = 90_000  # a busy machine is slow; only a failure waits so long
ARTIFACTS = Path(__file__).parents[2] / "artifacts"
CHROMIUM_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
HOW_TO_INSTALL = (
    "Browser tests need Chromium, and there is none on the PATH. Install it (Debian and Ubuntu: "
    "apt-get install -y chromium fonts-noto-cjk fonts-noto-color-emoji) or deselect these tests: -m 'not browser'."
)


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail(HOW_TO_INSTALL, pytrace=False)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def fake():
    """The scripted session behind `fake_address`: its pace, failures and requests can be set and read."""
    session = FakeSession(0.05)
    session.engine.plain_pace_s = 0.0
    return session


@pytest.fixture(scope="module")
def fake_address(fake):
    with served(lambda _progress: fake) as address:
        yield address


@pytest.fixture
def serve():
    """Serves another page for one test, until its visitors have left."""
    with ExitStack() as stack:
        yield lambda opener, *how: stack.enter_context(served(opener, *how))


@pytest.fixture
def visit(chromium, serve):  # noqa: ARG001 (asked for so that visitors leave before its pages close)
    """Opens pages as separate visitors; in the end none may have complained or asked another host for anything."""
    contexts, complaints = [], []

    def open_page(address, *, width=1440, height=1500, theme="light", ready=True, locale="en-GB"):
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=theme, locale=locale)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: _watch_host(request.url, address.split("?")[0], complaints))
        page.goto(address)
        if ready:
            page.wait_for_selector("#ds-send:enabled")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def unwatched(chromium):
    """Opens a page whose complaints nobody reads: of the requests that a reload cuts off, Gradio's client complains."""
    context = chromium.new_context(viewport={"width": 1440, "height": 1500})

    def open_page(address):
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("#ds-send:enabled")
        return page

    yield open_page
    context.close()


def _watch_host(url, address, complaints):
    if not url.startswith((address, "data:", "blob:")):
        complaints.append(f"asked {url}")


@pytest.fixture
def keep():
    """Keeps a screenshot under artifacts/."""

    def save(page, name):
        ARTIFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"{name}.png")

    return save


def ask(page, text):
    page.fill("#ds-prompt textarea", text)
    page.keyboard.press("Enter")


def set_number(page, selector, value):
    """Types a number and waits until the page has it: the slider beside the field shows what the next message sends."""
    field = page.locator(f"{selector} input[type=number]")
    field.wait_for()
    # What an accordion has just shown, Gradio sets to its first values in the next frame, over anything typed by then.
    page.evaluate("() => new Promise(requestAnimationFrame)")
    field.fill(str(value))
    field.press("Enter")
    page.wait_for_function(
        "([slider, value]) => Number(document.querySelector(slider).value) === value",
        arg=[f"{selector} input[type=range]", value],
    )


def fits(page, width, parts, keep, name):
    """The whole page is kept as a picture; neither it nor any of ``parts`` is wider than the window."""
    page.set_viewport_size({"width": width, "height": int(page.evaluate("document.documentElement.scrollHeight")) + 20})
    keep(page, name)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    too_wide = page.evaluate(
        "(parts) => [...document.querySelectorAll(parts)].filter((n) => n.offsetParent"
        " && n.getBoundingClientRect().right > innerWidth + 1 && !n.closest('.ds-scroll')).map((n) => n.outerHTML)",
        parts,
    )
    assert too_wide == []


def until(check, seconds=40.0):
    """Waits until ``check()`` is true; returns its last value."""
    end = time.monotonic() + seconds
    while not (value := check()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


def shows(page, selector, text):
    """Waits until ``text`` stands in the element: the page draws what it is told in the next frames, not at once."""
    until(lambda: text in page.inner_text(selector))
    assert text in page.inner_text(selector)


def choose(page, selector, name):
    """Chooses the entry that begins with ``name`` from a list."""
    page.click(f"{selector} input")
    page.locator("[role=option]", has_text=re.compile(rf"^\W*{name}")).click()
    page.wait_for_function(
        "([field, name]) => document.querySelector(field).value.startsWith(name)", arg=[f"{selector} input", name]
    )


def open_tab(page, key):
    """Opens a tab by its key, also where the row is too narrow and it stands in the menu."""
    page.evaluate("(key) => import(new URL('dspark/static/tabs.js', location)).then((tabs) => tabs.openTab(key))", key)
    page.wait_for_selector(f"#ds-tabs [role=tab][data-tab-id={key}][aria-selected=true]", state="attached")
