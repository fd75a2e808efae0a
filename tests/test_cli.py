"""The command line: exact text, events a line, exit codes, and no traceback whatever goes wrong."""

import argparse
import io
import json
import math
import os
import signal
import subprocess
import sys

import pytest

from dspark_core.cli import COMMANDS, main
from dspark_core.event_json import from_line
from dspark_core.events import DecodeRound, Finished, Prefilled
from dspark_core.options import add_schedule_options, schedule_from
from dspark_core.recording import read
from dspark_core.terminal import printable, write_text
from dspark_core.trace_check import check_answer
from tests import toy_session
from tests.event_samples import finished, prefilled, waiting

INFER = ["infer", "--model", "toy", "--prompt", "hello", "--temperature", "1", "--seed", "3", "--threshold", "0.2"]


def test_text_mode_streams_exactly_the_answer_and_sums_up_on_stderr(opened, capsys):
    assert main([*INFER, "--json", "--max-new-tokens", "40"]) == 0
    finished = from_line(capsys.readouterr().out.splitlines()[-1])
    assert main([*INFER, "--max-new-tokens", "40"]) == 0
    output = capsys.readouterr()
    assert output.out == finished.text
    assert "length: token limit 40 · 40 tokens in" in output.err
    assert "seed 3" in output.err
    assert len(opened) == 2


def test_json_mode_gives_one_event_a_line_with_the_published_keys(opened, capsys):
    assert main([*INFER, "--json", "--max-new-tokens", "40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    events = [from_line(line) for line in lines]
    assert isinstance(events[0], Prefilled)
    assert isinstance(events[-1], Finished)
    assert all(isinstance(event, DecodeRound) for event in events[1:-1])
    assert all(line.startswith('{"type": "') for line in lines)
    of_round, end = json.loads(lines[1]), json.loads(lines[-1])
    assert of_round["type"] == "round"
    assert {"index", "anchor", "draft", "verify_len", "reason", "num_accepted", "next", "committed"} <= set(of_round)
    assert set(of_round["timings"]) == {"draft_s", "schedule_s", "verify_s"}
    assert "source" in of_round["load"]
    assert of_round["stop_early"] is True
    assert set(of_round["draft"][0]) == {
        "id", "text", "draft_prob", "confidence", "survival", "target_prob", "accept_prob", "uniform", "fate",
        "raw_confidence",
    }  # fmt: skip
    assert {"finish_reason", "text", "token_ids", "rounds", "tau", "tokens_per_s"} <= set(end)
    assert opened[0].closed


def test_a_recorded_answer_is_whole_and_its_header_tells_how_it_was_made(opened, capsys, tmp_path):
    path = tmp_path / "answer.jsonl.gz"
    assert main([*INFER, "--max-new-tokens", "40", "--inspect", "--record", str(path)]) == 0
    text = capsys.readouterr().out
    recording = read(path)
    told = check_answer(recording, "the file")
    assert (told.kind, told.model, told.sampling.seed) == ("recorded", opened[0].info.model, 3)
    assert [(said.role, said.content) for said in told.messages] == [("user", "hello")]
    assert recording.events[-1].text == text
    assert all(event.inspection for event in recording.events if isinstance(event, DecodeRound))


@pytest.mark.parametrize("place", ["", "/", "none/answer.jsonl"])
def test_a_record_that_cannot_be_written_is_refused_before_anything_is_loaded(opened, capsys, tmp_path, place):
    path = str(tmp_path / place) if place != "/" else place
    assert main([*INFER, "--record", path]) == 2
    output = capsys.readouterr()
    assert (output.out, opened) == ("", [])
    assert "cannot be written" in output.err


def test_inspected_rounds_tell_their_laws_and_only_as_events(opened, capsys):
    told = {}
    for words in ((), ("--inspect",)):
        assert main([*INFER, "--json", "--max-new-tokens", "40", *words]) == 0
        rounds = [from_line(line) for line in capsys.readouterr().out.splitlines()[1:-1]]
        told[words] = [(r.inspection is not None, r.committed) for r in rounds]
    assert {inspected for inspected, _ in told[()]} == {False}
    assert told[("--inspect",)] == [(True, committed) for _, committed in told[()]]
    assert main([*INFER, "--inspect"]) == 2
    assert "Add --json" in capsys.readouterr().err
    assert len(opened) == 2


def test_every_option_reaches_the_request(opened, capsys):
    words = "--policy fixed --l-min 1 --l-max 3 --threshold 0.5 --temperature 0.7 --top-k 4 --top-p 0.9 --seed 5"
    more = ["--max-new-tokens", "7", "--stop", "END", "--stop", "\n\n", "--system", "be brief", "--drafter", "dflash"]
    more += [
        "--min-p",
        "0.1",
        "--repetition-penalty",
        "1.2",
        "--presence-penalty",
        "0.3",
        "--frequency-penalty",
        "-0.4",
    ]
    more += ["--logit-bias", "1=-5.5", "--logit-bias", "2=-inf"]
    more += ["--no-stop-early", "--band-low", "0.5", "--band-high", "0.8", "--load-signal", "simulated"]
    more += ["--simulated-load", "0.9", "--no-back-off"]
    assert main(["infer", "--prompt", "hello", *words.split(), *more]) == 0
    messages, sampling, schedule, drafter = opened[0].asked
    assert messages == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert (schedule.policy, schedule.l_min, schedule.l_max, schedule.threshold) == ("fixed", 1, 3, 0.5)
    assert not schedule.stop_early
    assert (schedule.band_low, schedule.band_high) == (0.5, 0.8)
    assert (schedule.load_signal, schedule.simulated_load) == ("simulated", 0.9)
    assert schedule.back_off is False
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed) == (0.7, 4, 0.9, 5)
    assert (sampling.min_p, sampling.repetition_penalty, sampling.logit_bias) == (0.1, 1.2, ((1, -5.5), (2, -math.inf)))
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.3, -0.4)
    assert (sampling.max_new_tokens, sampling.stop, drafter) == (7, ("END", "\n\n"), "dflash")
    capsys.readouterr()


@pytest.mark.parametrize("bias", ["7", "=5", "a=5", "7=", "1.5=2", "7=x"])
def test_a_bias_that_is_not_written_as_id_and_number_is_refused_with_its_text(bias, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["infer", "--prompt", "x", "--logit-bias", bias])
    assert stopped.value.code == 2
    assert f"{bias!r} is no token id and bias" in capsys.readouterr().err


@pytest.mark.parametrize(("policy", "l_min"), [("fixed", 1), ("threshold", 1), ("prefix", 0), ("delayed", 0)])
def test_l_min_is_0_where_the_policy_weighs_by_the_profile_unless_it_is_given(policy, l_min):
    parser = argparse.ArgumentParser()
    add_schedule_options(parser)
    schedule = schedule_from(parser.parse_args(["--policy", policy]))
    assert (schedule.l_min, schedule.back_off) == (l_min, None)
    schedule = schedule_from(parser.parse_args(["--policy", policy, "--l-min", "2", "--back-off"]))
    assert (schedule.l_min, schedule.back_off) == (2, True)


def test_a_dash_reads_the_prompt_from_standard_input(opened, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("你好\n\xff".encode("latin-1", "ignore") + b"hi\xff")))
    assert main(["infer", "--prompt", "-", "--max-new-tokens", "2"]) == 0
    assert opened[0].asked[0][0]["content"].endswith("hi\ufffd")
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["infer", "--prompt", " "], "The prompt is empty"),
        (["infer", "--prompt", "x", "--threshold", "nan"], "threshold is nan"),
        (["infer", "--prompt", "x", "--temperature", "inf"], "temperature is inf"),
        (["infer", "--prompt", "x", "--l-min", "5", "--l-max", "3"], "l_min is 5 and l_max is 3"),
        (["infer", "--prompt", "x", "--drafter", "eagle9"], "no drafter named 'eagle9'"),
        (["infer", "--prompt", "x", "--policy", "coin"], "no policy named 'coin'"),
        (["infer", "--prompt", "x", "--policy", "retrospective"], "'retrospective' is biased"),
        (["infer", "--prompt", "x", "--policy", "prefix"], "python -m dspark_core profile"),
        (["infer", "--prompt", "x", "--band-low", "0.95"], "band_low is 0.95 and band_high is 0.9"),
        (["infer", "--prompt", "x", "--load-signal", "moon"], "load_signal is 'moon'"),
        (["infer", "--prompt", "x", "--simulated-load", "0.9"], "Add --load-signal simulated"),
        (
            ["infer", "--prompt", "x", "--load-signal", "simulated", "--simulated-load", "2"],
            "simulated_load is 2",
        ),
        (["infer", "--prompt", "x", "--model", "missing"], "The model 'missing' is unknown.[2J Choose another."),
        (["bench", "--limit", "-1"], "limit is -1"),
        (["bench", "--lanes", "plain,warp"], "no lane named 'warp'"),
        (["bench", "--prompts", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["space", "--root", "nowhere"], "nowhere"),
    ],
)
@pytest.mark.usefixtures("opened")
def test_what_cannot_be_honoured_is_refused_with_one_message_and_code_2(words, message, capsys):
    assert main(words) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert "Traceback" not in output.err
    assert output.out == ""


def test_an_answer_that_fails_inside_ends_with_code_1_and_says_why(opened, monkeypatch, capsys, caplog):
    caplog.set_level("CRITICAL")

    def broken(*_, **__):
        raise RuntimeError("the device fell off")

    monkeypatch.setattr("tests.toy.ToyTarget.forward", broken)
    assert main(INFER) == 1
    assert "the device fell off" in capsys.readouterr().err
    assert opened[0].closed


@pytest.mark.parametrize("as_json", [False, True])
def test_the_place_in_the_line_is_told(as_json, monkeypatch, capsys):
    monkeypatch.setattr("dspark_core.engine.Generation.__iter__", lambda _: iter([waiting(2), prefilled(), finished()]))
    monkeypatch.setattr("dspark_core.loading.open_session", toy_session.open_session)
    assert main([*INFER, *(["--json"] if as_json else [])]) == 0
    output = capsys.readouterr()
    assert ("Waiting: 2 ahead of you (32 answers" in output.err) is not as_json
    first = output.out.partition("\n")[0]
    assert from_line(first) == waiting(2) if as_json else not output.out


def test_plain_decoding_for_want_of_a_drafter_is_said(opened, monkeypatch, capsys):
    monkeypatch.setattr(toy_session.ToySession, "default_drafter", "none")
    assert main([*INFER, "--max-new-tokens", "2"]) == 0
    error = capsys.readouterr().err
    assert "no drafter for toy here" in error
    assert "nothing drafted" in error
    assert opened[0].asked[3] == "none"


@pytest.mark.parametrize(
    "words",
    [
        ["infer", "--prompt", "x", "--policy", "coin"],
        ["bench", "--policy", "coin"],
        ["infer", "--prompt", "x", "--drafter", "eagle9"],
    ],
)
def test_names_that_exist_nowhere_are_refused_before_the_model_loads(opened, words, capsys):
    assert main(words) == 2
    assert opened == []
    assert "Choose one of: " in capsys.readouterr().err


def test_help_says_how_to_ask_what_begins_with_a_dash(opened, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["infer", "--help"])
    assert "--prompt=TEXT" in capsys.readouterr().out
    assert main(["infer", "--prompt=-x", "--max-new-tokens", "2"]) == 0
    assert opened[0].asked[0][0]["content"] == "-x"
    capsys.readouterr()


def test_a_byte_order_mark_is_no_part_of_a_prompt(opened, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfhello")))
    assert main(["infer", "--prompt", "-", "--max-new-tokens", "2"]) == 0
    assert opened[0].asked[0][0]["content"] == "hello"
    capsys.readouterr()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert "usage: python -m dspark_core " + name in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["dance"], ["infer"], ["infer", "--prompt", "x", "--top-k", "many"]])
def test_a_wrong_call_is_refused_with_code_2(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "usage:" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_no_control_characters_and_a_pipe_gets_the_exact_text():
    text = "a\x1b[31mred\x1b[0m\r\x07\x7f\x9b2J\ttab\nline"
    terminal, pipe = Terminal(), io.StringIO()
    write_text(terminal, text)
    write_text(pipe, text)
    assert terminal.getvalue() == printable(text) == "a[31mred[0m2J\ttab\nline"
    assert pipe.getvalue() == text


def test_text_mode_on_a_terminal_is_harmless_and_ends_the_line(opened, monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    assert main([*INFER, "--max-new-tokens", "40"]) == 0
    assert "[2J" in terminal.getvalue(), "the toy wrote no escape sequence, so this test shows nothing"
    assert "\x1b" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\n")
    assert opened
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2_folder")
def test_infer_answers_on_the_real_model(capsys):
    words = ["infer", "--draft-model", "none", "--dtype", "float32", "--prompt", "Say hello.", "--max-new-tokens", "6"]
    assert main([*words, "--json"]) == 0
    finished = from_line(capsys.readouterr().out.splitlines()[-1])
    assert finished.text.strip()
    assert main(words) == 0
    assert capsys.readouterr().out == finished.text


TOY_PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
import dspark_core.loading
from tests.toy import ToyTarget
from tests.toy_session import open_session
dspark_core.loading.open_session = open_session
forward = ToyTarget.forward
def slow_forward(*arguments, **options):
    time.sleep(0.01)
    return forward(*arguments, **options)
ToyTarget.forward = slow_forward
from dspark_core.cli import main
sys.exit(main(sys.argv[1:]))
"""
LONG = [*INFER, "--max-new-tokens", "5000"]


def _start(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-c", TOY_PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_ctrl_c_ends_cleanly_with_code_130_and_a_cancelled_line():
    process = _start(*LONG, "--json")
    process.stdout.read1(10)
    process.send_signal(signal.SIGINT)
    output, error = process.communicate(timeout=60)
    finished = from_line(output.splitlines()[-1])
    assert (process.returncode, finished.finish_reason) == (130, "cancelled")
    assert b"Traceback" not in error


@pytest.mark.skipif(os.name == "nt", reason="pipes break differently there")
@pytest.mark.parametrize("mode", [["--json"], []])
def test_a_reader_that_goes_away_ends_the_command_quietly(mode):
    process = _start(*LONG, *mode)
    process.stdout.read(10)
    process.stdout.close()
    error = process.stderr.read()
    assert process.wait(timeout=60) == 141
    assert b"Traceback" not in error
    assert b"Exception ignored" not in error
    process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_disk_is_a_message_and_code_1():
    with open("/dev/full", "wb") as full:
        words = [sys.executable, "-c", TOY_PROGRAM, *INFER, "--max-new-tokens", "40"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def _with_closed(streams, *words):
    """The toy program with streams closed as a shell does it (``2>&-``)."""
    closed = " ".join({"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-"}[name] for name in streams)
    command = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", TOY_PROGRAM, *words]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell closes the streams")
@pytest.mark.parametrize("streams", [["stderr"], ["stdin"], ["stdin", "stderr"]])
def test_closed_streams_cost_no_answer(streams):
    words = [*INFER, "--max-new-tokens", "40"]
    done = _with_closed(streams, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == _with_closed([], *words).stdout != b""
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell closes the streams")
def test_without_an_output_the_answer_goes_nowhere_in_peace():
    done = _with_closed(["stdout"], *INFER, "--max-new-tokens", "4")
    assert done.returncode == 0
    assert b"4 tokens in" in done.stderr
    assert b"Traceback" not in done.stderr
    everything = _with_closed(["stdin", "stdout", "stderr"], *INFER, "--max-new-tokens", "4")
    assert (everything.returncode, everything.stdout, everything.stderr) == (0, b"", b"")


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell closes the streams")
def test_a_prompt_from_a_closed_input_is_empty():
    done = _with_closed(["stdin"], "infer", "--prompt", "-")
    assert done.returncode == 2
    assert b"The prompt is empty" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_remarks_that_cannot_be_written_cost_no_answer():
    words = [sys.executable, "-c", TOY_PROGRAM, *INFER, "--max-new-tokens", "40"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=full, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize(("debug", "shown"), [("0", False), ("1", True)])
def test_a_failed_round_shows_its_traceback_only_to_who_asks_for_it(debug, shown):
    failing = TOY_PROGRAM.replace("    time.sleep(0.01)", "    raise RuntimeError('the device fell off')")
    assert failing != TOY_PROGRAM
    words = [sys.executable, "-c", failing, *INFER]
    done = subprocess.run(words, capture_output=True, env=os.environ | {"DSPARK_DEBUG": debug}, timeout=60, check=False)
    assert done.returncode == 1
    assert b"the device fell off" in done.stderr
    assert (b"Traceback" in done.stderr) is shown


def test_a_terminal_that_cannot_encode_gets_escapes_instead_of_an_error():
    process = _start(*INFER, "--max-new-tokens", "40", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    output, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert b"\\U0001f600" in output


def test_the_space_command_needs_no_torch():
    check = "import sys; from dspark_core.cli import main; main(['space']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0
