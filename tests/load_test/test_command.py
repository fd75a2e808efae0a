"""The command load on the toy: figures with their intervals, files, refusals, interruptions."""

import csv
import json

import pytest

import dspark_core.loading
from dspark_core.cli import main
from dspark_core.decode_loop import DecodeLoop
from dspark_core.engine import Engine
from dspark_core.load_test.users import Users
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.step_curve import StepCurve
from tests.toy import FixedLoad
from tests.toy_session import ToySession

QUICK = ["load", "--limit", "1", "--max-new-tokens", "8", "--repeats", "2"]
FEW = [*QUICK, "--users", "1,3", "--lanes", "plain,fixed,threshold"]


class ProfiledToy(ToySession):
    """The toy with a step curve, so that all policies can run."""

    def __init__(self, progress=None):
        super().__init__(progress)
        self.engine.close()
        drafting = {name: DraftingCurve.of([(4, 1, 0.001)], source="made up") for name in ("dspark", "dflash")}
        curve = StepCurve.of([1, 64], [0.01, 0.05], source="made up").with_drafting(drafting)
        self.engine = Engine(DecodeLoop(self.target, self.tokenizer, self.drafters, FixedLoad(), step_curve=curve))


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_every_policy_is_measured_with_every_number_of_users(monkeypatch, capsys):
    monkeypatch.setattr(dspark_core.loading, "open_session", lambda *_, **__: ProfiledToy())
    assert main([*QUICK, "--users", "2,1"]) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    lanes = ["plain", "fixed", "dflash+threshold", "threshold", "banded", "prefix", "delayed"]
    assert list(report["results"]) == lanes
    for lane in lanes:
        assert list(report["results"][lane]) == ["1", "2"]
        for cell in report["results"][lane].values():
            assert cell["answers"] >= 2 * 3
            assert cell["throughput_interval"][0] <= cell["throughput"] <= cell["throughput_interval"][1]
            assert cell["first_token_s"] <= cell["first_token_p95_s"]
            assert (cell["budget"] == 1) == (lane == "plain")
            assert list(cell["by_set"]) == ["chat", "maths", "code"]
            assert cell["by_set"]["maths"]["tau"] >= 1
        assert sum(line.startswith(f"{lane} ") for line in shown) >= 4, "two tables for each number of users"
    assert report["measured"] is True
    assert report["partial"] is False
    assert report["results"]["prefix"]["2"]["over"].keys() == {"plain", "fixed"}
    assert report["settings"]["lanes"]["dflash+threshold"]["drafter"] == "dflash"
    assert report["settings"]["prompts"] == {"chat": 1, "maths": 1, "code": 1}
    goal = "throughput, prefix over the better of plain and fixed"
    assert [it["users"] for it in report["goals"] if it["goal"] == goal] == [1, 2]
    assert any(line.startswith(goal) and "at least 0.97" in line for line in shown)
    assert "Measured on CPU (toy)" in shown[0]
    assert "python -m dspark_core load --users 2,1 --limit 1" in shown[1]


@pytest.mark.usefixtures("opened")
def test_report_rows_and_charts_are_written(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "out"
    assert main([*FEW, "--json", "--out", str(folder)]) == 0
    (only,) = capsys.readouterr().out.splitlines()
    assert json.loads((folder / "load.json").read_text()) == json.loads(only)
    names = {"throughput_over_users.png", "budget_over_users.png", "throughput_over_user_speed.png"}
    assert {path.name for path in folder.iterdir()} == names | {"load.json", "answers.csv", "load.html"}
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in names)
    page = (folder / "load.html").read_text(encoding="utf-8")
    assert "Decoding under load" in page
    with (folder / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    counted = [row for row in rows if row["counted"] == "True"]
    assert {(row["lane"], row["users"]) for row in counted} == {
        (lane, users) for lane in ("plain", "fixed", "threshold") for users in ("1", "3")
    }
    assert all(int(row["tokens"]) == 8 for row in counted)


@pytest.mark.usefixtures("opened")
def test_a_reader_that_went_away_does_not_cost_the_files(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")

    def gone(_):
        raise BrokenPipeError

    monkeypatch.setattr("sys.stdout.write", gone)
    monkeypatch.setattr("dspark_core.cli._discard", lambda _: None)
    assert main([*QUICK, "--users", "1", "--lanes", "plain", "--json", "--out", str(tmp_path)]) == 141
    assert {"load.json", "answers.csv", "load.html"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.usefixtures("opened")
def test_the_lane_that_goes_first_changes(monkeypatch, capsys):
    order = []
    run = Users.run

    def noted(self):
        order.append((self._users, self._lane.name))
        return run(self)

    monkeypatch.setattr(Users, "run", noted)
    assert main(FEW) == 0
    measured = order[3:]
    first, second = ["plain", "fixed", "threshold"], ["fixed", "threshold", "plain"]
    assert [lane for users, lane in measured if users == 1] == first + second
    assert [users for users, _ in measured] == [1] * 3 + [3] * 3 + [1] * 3 + [3] * 3
    capsys.readouterr()


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (dspark_core.errors.ResourceError("full"), 1)])
@pytest.mark.usefixtures("opened")
def test_what_is_finished_is_reported_when_it_ends_early(stop, code, monkeypatch, capsys):
    cells = []
    run = Users.run

    def stopping(self):
        cells.append(self)
        if len(cells) == 3 + 3 + 2:  # warm-up, one user, and one lane of three users
            raise stop
        return run(self)

    monkeypatch.setattr(Users, "run", stopping)
    assert main(FEW) == code
    output = capsys.readouterr()
    report = json.loads(output.out.splitlines()[-1])
    assert report["partial"] is True
    assert all(list(of) == ["1"] for of in report["results"].values()), "with 3 users not all lanes were measured"
    assert output.out.startswith("Partial, the run ended early.")
    assert "the figures are of what was finished" in output.err


@pytest.mark.usefixtures("opened")
def test_an_interruption_before_the_first_figure_is_only_told(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Users, "run", interrupted)
    assert main(FEW) == 130
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--users", "0"], "users is '0'"),
        (["--users", "9" * 5000], "users is '999"),
        (["--lanes", "fixed@" + "9" * 5000], "is no number"),
        (["--users", "two"], "users is 'two'"),
        (["--users", ","], "users is ','"),
        (["--users", "1,1000", "--lanes", "plain"], "1000 users are asked for; this engine runs"),
        (["--users", "32", "--lanes", "plain", "--max-new-tokens", "8000"], "this engine holds 65536 side by side"),
        (["--limit", "0"], "limit is 0"),
        (["--repeats", "0"], "repeats is 0"),
        (["--answers-per-user", "0"], "answers-per-user is 0"),
        (["--seconds", "nan"], "seconds is nan"),
        (["--lanes", "plain,warp"], "no lane named 'warp'"),
        (["--lanes", " , "], "it must name at least one lane"),
        (["--lanes", "fixed,fixed"], "none of them twice"),
        (["--lanes", "eagle9+fixed"], "The lane eagle9+fixed cannot run. There is no drafter named 'eagle9'"),
        (["--lanes", "prefix"], "python -m dspark_core profile"),
        ([], "Or add --profile, which measures it first."),
        (["--threshold", "2"], "threshold is 2"),
        (["--temperature", "inf"], "temperature is inf"),
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["--prompts", "nowhere.jsonl", "--set", "chat"], "either --prompts or --set"),
    ],
)
@pytest.mark.usefixtures("opened")
def test_what_cannot_be_honoured_is_refused_before_anything_is_measured(words, message, monkeypatch, capsys):
    monkeypatch.setattr(Users, "run", lambda _: pytest.fail("it was measured"))
    assert main(["load", "--users", "1", *words]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""


@pytest.mark.usefixtures("opened")
def test_a_file_without_prompts_is_refused(tmp_path, capsys):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    assert main(["load", "--prompts", str(path)]) == 2
    assert "has no prompts" in capsys.readouterr().err


def test_without_a_drafter_there_is_only_plain_decoding_to_measure(monkeypatch, capsys):
    def alone(*_, **__):
        session = ToySession()
        session.default_drafter = "none"
        return session

    monkeypatch.setattr(dspark_core.loading, "open_session", alone)
    assert main([*QUICK, "--users", "1"]) == 2
    assert "--lanes plain" in capsys.readouterr().err
    assert main([*QUICK, "--users", "1", "--lanes", "plain"]) == 0
    assert last_line(capsys)["results"].keys() == {"plain"}


def test_with_profile_missing_step_times_are_measured_and_the_session_opened_again(monkeypatch, capsys):
    sessions = []

    def opening(*_, **__):
        session = ToySession() if not sessions else ProfiledToy()
        session.profile = None if not sessions else object()
        sessions.append(session)
        return session

    measured = []
    monkeypatch.setattr(dspark_core.loading, "open_session", opening)
    monkeypatch.setattr("dspark_core.profiling.command.measure_and_store", lambda *of: measured.append(of[0]))
    assert main([*QUICK, "--users", "1", "--lanes", "plain,prefix", "--profile"]) == 0
    assert measured == sessions[:1]
    assert len(sessions) == 2
    assert all(session.closed for session in sessions)
    assert last_line(capsys)["results"]["prefix"]["1"]["budget"] > 1


@pytest.mark.usefixtures("opened")
def test_seconds_take_the_place_of_a_number_of_answers(capsys):
    words = ["--users", "2", "--lanes", "plain", "--seconds", "0.05"]
    assert main([*QUICK, *words]) == 0
    report = last_line(capsys)
    assert report["settings"]["answers"] == {"2": None}
    assert report["results"]["plain"]["2"]["window_s"] == pytest.approx(2 * 0.05)
