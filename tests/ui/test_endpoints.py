"""Programs reach the named endpoints through gradio_client, and nothing else."""

import json
import time
import urllib.error
import urllib.request

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.browser.conftest import until
from tests.ui.fake_session import FakeSession
from tests.ui.pages import served
from ui.endpoints import NAMES


@pytest.fixture(scope="module")
def fake():
    return FakeSession(0.01)


@pytest.fixture(scope="module")
def address(fake):
    with served(lambda _progress: fake) as where:
        yield where.rstrip("/")


@pytest.fixture(scope="module")
def client(address):
    client = Client(address, verbose=False)
    yield client
    client.close()


def test_generate_streams_the_text_with_figures_that_add_up(client, fake):
    job = client.submit("tell me", drafter="dspark", l_max=4, max_tokens=30, seed=7, api_name="/generate")
    text, figures = job.result(timeout=60)
    assert text
    assert figures["finish_reason"] == "length"
    assert figures["tokens"] == 30
    assert figures["seed"] == 7
    assert figures["drafted"] >= figures["verified"] >= figures["accepted"] > 0
    steps = job.outputs()
    assert [text.startswith(step) for step, _ in steps] == [True] * len(steps)
    _, sampling, schedule, drafter = fake.requests[-1]
    assert (sampling.seed, sampling.max_new_tokens, schedule.l_max, drafter) == (7, 30, 4, "dspark")


def test_a_prompt_is_enough(client, fake):
    text, figures = client.predict("tell me", api_name="/generate")
    assert text
    assert figures["seed"] is not None
    assert fake.requests[-1][3] == next(iter(fake.info.drafters))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"prompt": " "}, "message"),
        ({"drafter": "<b>"}, "drafter"),
        ({"policy": "none such"}, "policy"),
        ({"l_min": 5, "l_max": 2}, "l_min"),
        ({"threshold": 7}, "threshold"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_new_tokens"),
        ({"seed": -1}, "seed"),
        ({"l_max": "many"}, "l_max"),
    ],
)
def test_a_bad_value_is_refused_by_its_name(client, wrong, named):
    with pytest.raises(AppError, match=named):
        client.predict(**{"prompt": "tell me", **wrong}, api_name="/generate")


@pytest.mark.parametrize(
    ("name", "wrong", "named"),
    [
        ("race", {"lanes": "plain"}, "lanes"),
        ("race", {"repeats": "x"}, "repeats"),
        ("sweep", {"axes": None}, "axes"),
        ("sweep", {"axes": []}, "axes"),
        ("sweep", {"axes": "threshold"}, "axes"),
        ("sweep", {"axes": {"threshold": 1}}, "axes"),
        ("sweep", {"prompts": "tell me"}, "prompts"),
        ("sweep", {"prompts": [1]}, "prompts"),
        ("sweep", {"prompts": {"a": 1}}, "prompts"),
        ("sweep", {"sets": "chat"}, "sets"),
        ("sweep", {"sets": 7}, "sets"),
        ("sweep", {"prompts": None, "sets": ["<b>"]}, "set named"),
        ("sweep", {"limit": -1}, "limit"),
        ("sweep", {"limit": True}, "limit"),
        ("sweep", {"limit": None}, "limit"),
        ("sweep", {"max_tokens": 513}, "max_tokens"),
        ("sweep", {"max_tokens": "x"}, "max_tokens"),
        ("sweep", {"repeats": 11}, "repeats"),
        ("sweep", {"repeats": []}, "repeats"),
        ("load", {"users": []}, "users"),
        ("load", {"drafter": 0}, "drafter"),
        ("load", {"drafter": []}, "drafter"),
        ("load", {"sets": 0}, "sets"),
        ("load", {"sets": "chat"}, "sets"),
        ("load", {"seconds": None}, "seconds"),
    ],
)
def test_a_value_of_another_kind_or_beyond_the_bounds_is_refused_by_its_name(client, fake, name, wrong, named):
    usual = {
        "race": {"prompt": "tell me", "lanes": ["plain", "fixed@2"]},
        "sweep": {"axes": {"threshold": "0"}, "prompts": ["tell me"]},
        "load": {},
    }
    with pytest.raises(AppError, match=named):
        client.predict(**{**usual[name], **wrong}, api_name=f"/{name}")
    assert until(lambda: fake.engine.num_active == 0)


def test_a_refusal_is_short_however_long_the_value(client):
    with pytest.raises(AppError) as refused:
        client.predict("tell me", policy="x" * 300_000, api_name="/generate")
    assert str(refused.value).startswith("policy 'xx")
    assert str(refused.value).endswith("is unknown.")
    assert len(str(refused.value)) < 5000


def test_a_prompt_of_several_lines_is_one_prompt_of_a_sweep(client):
    asked = {"axes": {"threshold": "0"}, "prompts": ["tell me\nof the sea", " "], "max_tokens": 8}
    _, report = client.predict(**asked, api_name="/sweep")
    assert report["settings"]["prompts"] == {"own prompts": 1}


def test_a_call_that_is_cancelled_ends_its_answer(client, fake):
    fake.engine.pace_s = 0.2
    try:
        job = client.submit("tell me", max_tokens=400, api_name="/generate")
        assert until(lambda: len(job.outputs()) > 0)
        generation = fake.engine.submitted[-1]
        job.cancel()
        assert until(generation.cancelled.is_set)
    finally:
        fake.engine.pace_s = 0.01


def test_a_call_that_is_cancelled_before_its_first_token_ends_its_answer(client, fake):
    assert until(lambda: fake.engine.num_active == 0)
    fake.engine.turn.clear()  # as in a long prompt: nothing comes
    try:
        before = len(fake.engine.submitted)
        job = client.submit("tell me", max_tokens=400, api_name="/generate")
        assert until(lambda: len(fake.engine.submitted) > before)
        generation = fake.engine.submitted[before]
        job.cancel()
        assert until(generation.cancelled.is_set, seconds=10)
    finally:
        fake.engine.turn.set()


def test_race_tells_what_happens_and_ends_with_a_report_that_adds_up(client, fake):
    asked = {"lanes": ["plain", "dspark+threshold@0.6"], "max_tokens": 20, "seed": 3, "repeats": 2}
    job = client.submit("tell me", **asked, api_name="/race")
    state, report = job.result(timeout=60)
    assert state == "done"
    plain, other = report["lanes"]
    assert (report["reference"], report["about"]["seed"], len(plain["laps"])) == ("plain", "3", 2)
    assert other["ratio"]["n"] == 2
    assert other["sameness"] == {"verdict": "same", "tokens": 20, "ours": None, "theirs": None}
    assert other["figures"]["drafted"] >= other["figures"]["verified"] >= other["figures"]["accepted"] > 0
    assert {state for state, _ in job.outputs()} <= {"waiting", "warm-up", "running", "comparing", "done"}
    assert fake.engine.num_active == 0


def test_a_race_that_is_none_is_refused_by_name(client):
    with pytest.raises(AppError, match="no lane named 'warp'"):
        client.predict("tell me", lanes=["plain", "warp"], api_name="/race")


def test_a_race_that_is_cancelled_frees_the_engine(client, fake):
    fake.engine.pace_s = 0.2
    try:
        job = client.submit("tell me", lanes=["plain", "fixed@2"], max_tokens=400, api_name="/race")
        assert until(lambda: len(job.outputs()) > 0 and fake.engine.num_active > 0)
        job.cancel()
        # Between two laps nobody is active either: it must stay so.
        assert until(lambda: not (fake.engine.num_active or time.sleep(0.5) or fake.engine.num_active))
    finally:
        fake.engine.pace_s = 0.01


def test_load_measures_so_many_users_for_so_long(client, fake):
    job = client.submit(users=3, policy="fixed", l_max=4, max_tokens=16, seconds=2, api_name="/load")
    state, figures = job.result(timeout=90)
    assert state == "done"
    assert figures["users"] == 3
    assert figures["window_s"] >= 2
    assert figures["throughput_interval"][0] <= figures["throughput"] <= figures["throughput_interval"][1]
    assert 1 < figures["budget"] <= 5
    assert {state for state, _ in job.outputs()} == {"running", "done"}
    assert fake.engine.num_active == 0


def test_a_load_that_is_none_or_comes_while_another_goes_on_is_refused(client, fake):
    with pytest.raises(AppError, match="from 1 to"):
        client.predict(users=99, api_name="/load")
    with pytest.raises(AppError, match="seconds for each step"):
        client.predict(seconds=0, api_name="/load")
    job = client.submit(users=2, seconds=60, api_name="/load")
    assert until(lambda: fake.engine.num_active == 2)
    with pytest.raises(AppError, match="one load run at a time"):
        client.predict(api_name="/load")
    job.cancel()
    assert until(lambda: fake.engine.num_active == 0)


def test_only_the_named_endpoints_are_told(client):
    told = client.view_api(return_format="dict", print_info=False)
    assert set(told["named_endpoints"]) == {f"/{name}" for name in NAMES}
    assert told["unnamed_endpoints"] == {}
    for endpoint in told["named_endpoints"].values():
        assert all(value["python_type"]["type"] != "Any" for value in endpoint["parameters"])


def test_the_client_cannot_call_the_pages_own_listeners(client):
    private = [d for d in client.config["dependencies"] if d["api_visibility"] == "private"]
    assert private
    for listener in private:
        with pytest.raises(ValueError, match="Invalid function index"):
            client.submit(fn_index=listener["id"])
        with pytest.raises(ValueError, match="api_name"):
            client.submit(api_name=f"/{listener['api_name']}")


def test_names_of_the_pages_own_listeners_answer_404(client, address):
    names = {d["api_name"] for d in client.config["dependencies"] if d["api_visibility"] == "private"} - {None, False}
    for route in ("call", "call/v2", "run", "api"):
        for name in names:
            assert _post(f"{address}/gradio_api/{route}/{name}", {"data": []}) == 404


def test_a_direct_call_around_the_queue_is_refused(address, client):
    number = next(d["id"] for d in client.config["dependencies"] if d["api_name"] == "generate")
    assert _post(f"{address}/gradio_api/run/predict", {"fn_index": number, "data": ["tell me"]}) == 404


def _post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_sweep_measures_a_grid_and_ends_with_the_report_that_the_page_exports(client, fake):
    job = client.submit({"threshold": "0,0.6"}, ["tell me"], max_tokens=12, api_name="/sweep")
    state, report = job.result(timeout=90)
    assert state == "done"
    assert len(report["rows"]) == 2
    assert {state for state, _ in job.outputs()} <= {"waiting", "running", "done"}
    assert until(lambda: fake.engine.num_active == 0)


def test_a_sweep_that_is_none_is_refused_by_name_and_one_that_is_cancelled_frees_the_engine(client, fake):
    with pytest.raises(AppError, match="The axes are"):
        client.predict({"speed": "1"}, api_name="/sweep")
    fake.engine.pace_s = 0.2
    try:
        job = client.submit({"threshold": "0,0.6"}, ["tell me"], max_tokens=400, api_name="/sweep")
        assert until(lambda: len(job.outputs()) > 0 and fake.engine.num_active > 0)
        job.cancel()
        assert until(lambda: fake.engine.num_active == 0)
    finally:
        fake.engine.pace_s = 0.01
