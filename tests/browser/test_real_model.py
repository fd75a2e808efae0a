"""The whole way: the real model, its drafter, the page, a browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.browser.conftest import ask, set_number, shows
from tests.ui.pages import free_port
from ui.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
LAUNCH = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_question_is_answered_steered_stopped_and_measured(visit, serve, keep):
    page = visit(serve(Settings(device="cpu").open_session, "smollm2-135m"), height=1500, ready=False)
    page.wait_for_selector("#ds-send:enabled", timeout=300_000)
    page.wait_for_function(
        "document.querySelector('[data-fig=plain] .ds-sub').textContent.startsWith('measured')", timeout=120_000
    )
    page.click("#ds-more button")
    set_number(page, "#ds-max-tokens", 1024)
    set_number(page, "#ds-threshold", 0.05)
    ask(page, "Write a short story about a lighthouse keeper.")
    # Until the answer's first round, the page shows the recorded one that filled it before the model was there.
    page.wait_for_function("dsparkPage.store.running && dsparkPage.store.rounds.length > 12", timeout=60_000)
    before = page.evaluate("dsparkPage.store.rounds.length")
    set_number(page, "#ds-l-max", 2)
    page.wait_for_selector('.ds-round[data-lmax="2"]', timeout=60_000)
    page.wait_for_function("dsparkPage.store.rounds.filter((round) => round?.lMax === 2).length >= 8", timeout=60_000)
    page.click("#ds-stop")
    page.wait_for_selector("#ds-send:enabled")
    keep(page, "real-model")
    rounds = page.evaluate("dsparkPage.store.rounds.map((r) => [r.lMax, r.verifyLen, r.draft.map((d) => d.fate)])")
    first = next(index for index, (l_max, _, _) in enumerate(rounds) if l_max == 2)
    assert first >= before
    assert max(length for _, length, _ in rounds[:first]) > 2
    assert max(length for _, length, _ in rounds[first:]) <= 2
    assert {"accepted", "rejected", "unverified"} <= {fate for _, _, fates in rounds for fate in fates}
    assert page.inner_text(".ds-model .ds-said").strip()
    for figure in ("now", "plain"):
        page.wait_for_function(f"Number(document.querySelector('[data-fig={figure}] .ds-big').textContent) > 0")


def test_an_unknown_model_is_explained_on_the_page(visit, serve):
    page = visit(serve(Settings(model="no-such-model").open_session, "no-such-model"), ready=False)
    page.wait_for_selector(".ds-notice:not([hidden])", timeout=120_000)
    shows(page, ".ds-notice", "no-such-model")
    assert page.is_disabled("#ds-send")


def test_app_py_serves_the_page_before_the_model_is_there_and_ends_on_request(visit):
    port = free_port()
    command = [sys.executable, "-c", LAUNCH, str(ROOT / "app.py"), "--port", str(port), "--model", "no-such-model"]
    app = subprocess.Popen(command, env=os.environ | {"GRADIO_SERVER_NAME": "127.0.0.1"}, cwd=ROOT)
    try:
        address = f"http://127.0.0.1:{port}/"
        for _ in range(300):
            try:
                if httpx.get(address, timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.2)
        page = visit(address, ready=False)
        page.wait_for_selector(".ds-head h1")
        page.wait_for_selector("#ds-retry:visible", timeout=120_000)
        page.context.close()
        taken = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert taken.returncode == 1
        assert f"Port {port}" in taken.stderr
        assert f"--port {port + 1}" in taken.stderr
        assert "Traceback" not in taken.stderr
    finally:
        app.send_signal(signal.SIGINT)
        try:
            app.wait(30)
        finally:
            app.kill()
            app.wait()
