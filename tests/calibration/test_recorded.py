"""Rollouts in a file: read as they were written, refused when damaged; those that ship serve."""

import gzip
import json

import numpy as np
import pytest

from dspark_core.calibration.calibration import FittedOn
from dspark_core.calibration.halves import fitted_setting, held_out
from dspark_core.calibration.recorded import Recorded, read_recorded, write_recorded
from dspark_core.calibration.rounds import Rounds, joined
from dspark_core.errors import ParameterError

MADE_BY = FittedOn("toy", "float64", "dspark", "prompts.jsonl", 1, 1, 8, 0)


def some_parts():
    return (Rounds.of([[0.25, -1.5], [2.0, 0.125]], [1, 0], [2, 1]), joined([], 2))


def test_what_is_written_is_read_again_and_the_same_rounds_are_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write_recorded(tmp_path / name, Recorded("a" * 64, MADE_BY, 2, {0.0: some_parts(), 0.7: some_parts()}))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    read = read_recorded(tmp_path / "one")
    assert (read.weights_sha256, read.made_by, read.num_positions) == ("a" * 64, MADE_BY, 2)
    assert list(read.parts) == [0.0, 0.7]
    for part, kept in zip(read.parts[0.7], some_parts(), strict=True):
        for name in ("logits", "accepted", "observed"):
            assert getattr(part, name).tolist() == getattr(kept, name).tolist()


def test_no_file_is_no_rollouts(tmp_path):
    assert read_recorded(tmp_path / "none") is None


def zipped(text):
    """`text` zipped, the same bytes at any second: names of tests made of them must agree between the workers."""
    return gzip.compress(text.encode(), mtime=0)


@pytest.mark.parametrize(
    "body",
    [
        b"no gzip",
        zipped("no json"),
        zipped("[]"),
        zipped(json.dumps({"format": 9})),
        zipped('{"format": 1}'),
        zipped(json.dumps({"format": 1, "num_positions": 2, "settings": {"0": [[[2, 1, 0.5]]]}})),
    ],
    ids=["no gzip", "no json", "a list", "another format", "no settings", "a row that is too long"],
)
def test_a_damaged_file_is_refused_with_the_way_to_make_it_again(tmp_path, body):
    (tmp_path / "file").write_bytes(body)
    with pytest.raises(ParameterError, match="calibrate --rounds"):
        read_recorded(tmp_path / "file")


def test_the_rollouts_that_ship_have_every_setting_and_enough_rounds_to_fit_and_to_measure():
    shipped = read_recorded()
    assert list(shipped.parts) == [0.0, 0.7, 1.0]
    for temperature, parts in shipped.parts.items():
        setting = fitted_setting(temperature, parts, shipped.num_positions)
        assert setting.before[0].n >= 100
        assert np.isfinite(held_out(parts, shipped.num_positions).logits).all()
