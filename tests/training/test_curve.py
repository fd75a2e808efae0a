"""The picture of a run."""

import importlib.util

import pytest

from dspark_core.training.curve import write_curve

ROWS = [
    {"elapsed_s": 30.0, "loss": 2.0, "ce": 3.0, "tv": 1.0, "confidence": 0.6},
    {"elapsed_s": 60.0, "law_tau": 1.5, "greedy_tau": 1.6, "law_acceptance": [0.4, 0.3]},
    {"elapsed_s": 90.0, "loss": "odd"},
    {"elapsed_s": None, "loss": 1.0},
    {"elapsed_s": 120.0, "law_tau": 1.8, "law_acceptance": [0.5, 0.4]},
]


def test_it_is_drawn_from_the_log_whatever_a_row_lacks(tmp_path):
    pytest.importorskip("matplotlib")
    for rows in ([], ROWS):
        assert write_curve(rows, tmp_path / "curve.png")
        assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_nothing_is_drawn_and_nothing_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert write_curve(ROWS, tmp_path / "curve.png") is False
    assert not (tmp_path / "curve.png").exists()
