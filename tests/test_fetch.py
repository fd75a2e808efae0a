"""The fetch command: a bar on stderr, one line on stdout."""

from __future__ import annotations

import argparse
import io

import pytest

from dspark_core import fetch
from dspark_core.errors import ModelUnavailableError


def parse(*arguments):
    parser = argparse.ArgumentParser()
    fetch.add_arguments(parser)
    return parser.parse_args(arguments)


def test_the_known_model_is_the_default():
    args = parse()
    assert (args.name, args.from_hub, args.force) == ("smollm2-135m", False, False)


def test_the_command_says_where_the_model_is(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"x" * 2_000_000)
    asked = []

    def ensure(name, progress, *, from_hub, force):
        asked.append((name, from_hub, force))
        progress("Downloading: 1 of 2 MB", 0.5)
        progress("Downloading: 2 of 2 MB", 1.0)
        return tmp_path

    monkeypatch.setattr(fetch, "ensure_model", ensure)
    assert fetch.run(parse("owner/name", "--from-hub", "--force")) == 0
    output = capsys.readouterr()
    assert asked == [("owner/name", True, True)]
    assert output.out == f"owner/name: {tmp_path} (2 MB, from local folder)\n"
    assert output.err == "Downloading\n"  # no terminal: stages, not a hundred lines


def test_errors_are_raised_for_the_command_line_to_print(monkeypatch):
    def fail(*_args, **_kwargs):
        raise ModelUnavailableError("no network")

    monkeypatch.setattr(fetch, "ensure_model", fail)
    with pytest.raises(ModelUnavailableError, match="no network"):
        fetch.run(parse())


def test_on_a_terminal_the_bar_redraws_itself(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(fetch.sys, "stderr", stream)
    bar = fetch.ProgressBar()
    bar("Downloading: 1 of 2 MB", 0.5)
    bar("Done", 1.0)
    bar.close()
    first, second = stream.getvalue().rstrip("\n").split("\r")[1:]
    assert first.startswith("[" + "#" * 15 + "." * 15 + "]  50 %")
    assert len(second) >= len(first)  # what was drawn before is covered
    assert stream.getvalue().endswith("\n")
