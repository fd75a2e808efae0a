"""Starting and serving: settings, closed doors, a taken port."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import gradio as gr
import httpx
import pytest

from dspark_core.admission import Limits
from dspark_core.scheduling import POLICIES
from tests.ui.fake_session import FakeSession
from tests.ui.pages import free_port, in_a_loop, served
from ui import panels
from ui.endpoints import NAMES
from ui.host import SessionHost
from ui.news import News
from ui.page import build_page
from ui.server import launch_options, serve
from ui.settings import Settings, read_settings

ROOT = Path(__file__).parents[2]


def test_settings_come_from_the_command_line_then_the_environment_then_defaults():
    assert read_settings([], {}) == Settings()
    env = {"DSPARK_MODEL": "m", "DSPARK_DEVICE": "cpu", "PORT": "8000", "GRADIO_SERVER_NAME": "0.0.0.0"}
    assert read_settings([], env) == Settings("0.0.0.0", 8000, "m", device="cpu")
    assert read_settings(["--port", "9000", "--model", "n"], env).port == 9000
    assert read_settings(["--profile-s", "5"], {"DSPARK_PROFILE_S": "0"}).profile_s == 5
    assert read_settings([], {"DSPARK_PROFILE_S": "0"}).profile_s == 0


def test_limits_come_from_the_same_places_and_reach_the_session(monkeypatch):
    env = {"DSPARK_MAX_ACTIVE": "3", "DSPARK_MAX_WAITING": "4", "DSPARK_MAX_WAIT_S": "5.5", "DSPARK_MAX_TOKENS": "600"}
    settings = read_settings(["--max-active", "2"], env)
    assert settings.limits == Limits(2, 4, 5.5, 600)
    assert read_settings([], {"DSPARK_MAX_TOKENS": "auto"}).limits == Limits(36)
    asked = {}
    monkeypatch.setattr("dspark_core.loading.open_session", lambda *_, **options: asked.update(options))
    settings.open_session(lambda *_: None)
    assert asked["limits"] == settings.limits


@pytest.mark.parametrize("words", [["--max-active", "0"], ["--max-wait-s", "0"], ["--max-tokens", "many"]])
def test_limits_that_are_none_are_refused_by_name(words, capsys):
    with pytest.raises(SystemExit):
        read_settings(words, {})
    assert words[0].strip("-").replace("-", "_") in capsys.readouterr().err.partition("error:")[2].replace("-", "_")


@pytest.mark.parametrize("seconds", ["-1", "inf", "nan", "long"])
def test_a_time_to_measure_that_is_none_is_refused(seconds, capsys):
    with pytest.raises(SystemExit):
        read_settings([f"--profile-s={seconds}"], {})
    assert "--profile-s" in capsys.readouterr().err.partition("error:")[2]


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1"])
def test_a_port_that_is_none_is_refused(port, capsys):
    with pytest.raises(SystemExit):
        read_settings(["--port", port], {})
    assert "no port" in capsys.readouterr().err


def test_a_taken_port_is_told_with_the_way_out():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        host, news = SessionHost(lambda _: FakeSession(), "fake"), News()
        with pytest.raises(SystemExit, match=rf"Port {port}.*--port {port + 1}"):
            serve(in_a_loop(lambda: build_page(host, news)), host, Settings(port=port), news)
    assert host.state.stage == "starting"


class Recorded:
    """Stands for the page: writes down when it is served, and is served until ``until`` is set."""

    def __init__(self, order, until):
        self._order = order
        self._until = until

    def launch(self, **_):
        self._order.append("page")

    def block_thread(self):
        assert self._until.wait(20)


def test_the_page_is_served_before_the_model_is_loaded():
    order, opened = [], threading.Event()

    def opener(_progress):
        order.append("model")
        opened.set()
        return FakeSession()

    serve(Recorded(order, opened), SessionHost(opener, "fake"), Settings(port=free_port()), News())
    assert order == ["page", "model"]


def test_doors_that_the_page_does_not_need_are_closed():
    options = launch_options("127.0.0.1", 7860, News())
    assert not any(options[name] for name in ("share", "ssr_mode", "run_history", "enable_monitoring", "mcp_server"))
    assert "allowed_paths" not in options


def test_the_page_offers_every_policy_before_a_session_is_open():
    host = SessionHost(lambda _: FakeSession(), "fake")
    parts = in_a_loop(lambda: build_page(host)).config["components"]
    (policy,) = (part["props"] for part in parts if part["props"].get("elem_id") == "ds-policy")
    assert [value for _, value in policy["choices"]] == list(POLICIES)


def test_handlers_cannot_be_called_beside_the_queue_and_answers_never():
    with served(lambda _: FakeSession(0.0)) as address, httpx.Client(base_url=address, timeout=20) as client:
        config = client.get("config").json()
        streaming = [part["id"] for part in config["dependencies"] if part["types"]["generator"]]
        assert len(streaming) >= 9
        for number in streaming:
            reply = client.post("gradio_api/run/predict", json={"fn_index": number, "data": [], "session_hash": "x"})
            assert reply.status_code == 404
        assert set(client.get("gradio_api/info").json()["named_endpoints"]) == {f"/{name}" for name in NAMES}
        assert client.get("monitoring").status_code in (403, 404)
        for path in ("docs", "openapi.json", "dspark/static/../settings.py", "dspark/static/%2e%2e/settings.py"):
            assert client.get(path).status_code == 404
        assert client.get("dspark/plotly/plotly.min.js").status_code == 200
        files = {"files": ("big.bin", b"0" * 100_000)}
        assert client.post("gradio_api/upload", files=files).status_code >= 400


def test_panels_are_constant_and_scripts_never_write_markup():
    static = Path(panels.STATIC)
    for page in static.glob("*.html"):
        assert not re.search(r"\$\{|\{\{|`|\\|<script", page.read_text(encoding="utf-8")), page.name
    for script in static.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg\b)", text), script.name  # a namespace is no address
    assert "https://" not in panels.page_css() + panels.page_head()


OPENER = """
import sys, time
from ui.host import SessionHost
from ui.news import News
from ui.page import build_page
from ui.server import serve
from ui.settings import Settings

def opener(progress):
    progress("reading weights", 0.2)
    sys.stdout.write("loading\\n")
    sys.stdout.flush()
    time.sleep(60)

host = SessionHost(opener, "slow")
news = News()
serve(build_page(host, news), host, Settings(port=int(sys.argv[1])), news)
"""


@pytest.mark.parametrize("twice", [False, True])
def test_an_interrupt_ends_the_process_while_the_model_is_loaded(twice):
    command = [sys.executable, "-c", OPENER, str(free_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert "loading\n" in iter(process.stdout.readline, "")
        process.send_signal(signal.SIGINT)
        if twice:
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, said = process.communicate(timeout=50)
        assert time.monotonic() - begun < 15
    assert process.returncode == 130
    assert "Traceback" not in said


def test_an_interrupt_ends_the_process_while_it_is_imported():
    with subprocess.Popen(
        [sys.executable, "app.py", "--port", str(free_port())], stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=50)
    assert process.returncode == 130
    assert "Traceback" not in said


def test_no_listener_cancels_another():
    host = SessionHost(lambda _: None, "fake")
    fns = in_a_loop(lambda: build_page(host)).fns.values()
    # The browser would no longer listen to one that goes on here, and its buttons would stay as they are.
    assert [fn.name for fn in fns if fn.cancels] == []


def test_no_listener_lets_gradio_refuse_a_number():
    host = SessionHost(lambda _: None, "fake")
    fns = in_a_loop(lambda: build_page(host)).fns.values()
    # Its exception names no control and fills the log; ours are checked by `ui.inputs`, with words.
    ranged = [fn for fn in fns if fn.fn and any(isinstance(part, (gr.Slider, gr.Number)) for part in fn.inputs)]
    assert ranged
    assert [fn.name for fn in ranged if fn.preprocess] == []
