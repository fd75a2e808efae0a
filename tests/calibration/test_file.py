"""calibration.json: written whole or not at all, read with care, used only beside its own weights."""

import hashlib
import json
from dataclasses import replace

import pytest

from dspark_core.calibration.figures import figures_by_position
from dspark_core.calibration.file import FILE_NAME, read_calibration, weights_sha256, write_calibration
from dspark_core.calibration.rounds import Rounds
from dspark_core.checkpoint import save_drafter
from dspark_core.errors import CheckpointError, ResourceError
from dspark_core.loading import load_drafters
from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice
from tests.toy import ToyTarget, toy_calibration, toy_draft_model


@pytest.fixture
def checkpoint(tmp_path):
    loaded = toy_draft_model()
    save_drafter(tmp_path / "toy", loaded.config, loaded.modules.state_dict())
    return tmp_path / "toy"


def calibration_of(folder):
    """The toy's calibration with figures in it, for the weights in ``folder``."""
    figures = figures_by_position(Rounds.of([[0.3, -1.0], [2.0, 0.1]], [0, 2]), [1.0, 1.0])
    calibration = toy_calibration(weights_sha256(folder))
    settings = tuple(replace(s, before=figures, after=figures, notes=("a note",)) for s in calibration.settings)
    return replace(calibration, settings=settings)


@pytest.fixture
def calibrated(checkpoint):
    write_calibration(checkpoint / FILE_NAME, calibration_of(checkpoint))
    return checkpoint


def changed(folder, change):
    values = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    change(values)
    (folder / FILE_NAME).write_text(json.dumps(values), encoding="utf-8")


def test_what_was_written_is_read(calibrated):
    assert read_calibration(calibrated, 2) == (calibration_of(calibrated), "")


def test_the_hash_is_that_of_the_weights_file(checkpoint):
    weights = (checkpoint / "model.safetensors").read_bytes()
    assert weights_sha256(checkpoint) == hashlib.sha256(weights).hexdigest()


def test_without_the_file_nothing_is_said(checkpoint):
    assert read_calibration(checkpoint, 2) == (None, "")


def test_beside_other_weights_it_is_not_used_and_a_note_says_so(calibrated):
    with (calibrated / "model.safetensors").open("ab") as file:
        file.write(b" ")
    calibration, note = read_calibration(calibrated, 2)
    assert calibration is None
    assert "belongs to other weights" in note
    assert "calibrate --overwrite" in note


def test_a_drafter_is_loaded_with_its_calibration_and_shows_the_note_when_it_has_none_of_its_own(calibrated, tmp_path):
    target = ToyTarget()

    def dspark():
        return load_drafters(tmp_path, str(calibrated), target)["dspark"]

    sampling = SamplingParams(temperature=1.0)
    block = dspark().open(5).draft(1, 2, sampling, SeededDice(0))
    assert block.raw_confidences is not None
    assert block.raw_confidences != block.confidences
    assert dspark().note == ""
    changed(calibrated, lambda values: values.update(weights_sha256="f" * 64))
    stale = dspark()
    assert stale.open(5).draft(1, 2, sampling, SeededDice(0)).confidences == block.raw_confidences
    assert "other weights" in stale.note
    (calibrated / FILE_NAME).unlink()
    assert dspark().note == ""
    assert dspark().open(5).draft(1, 2, sampling, SeededDice(0)).raw_confidences is None


def first(values):
    return values["settings"][0]


FAULTS = {
    "an unknown version": (lambda v: v.update(format=2), "has the format 2"),
    "no version": (lambda v: v.pop("format"), "has the format None"),
    "no settings": (lambda v: v.update(settings=[]), "settings is empty"),
    "settings of another kind": (lambda v: v.update(settings={}), "settings must be a list"),
    "a missing key": (lambda v: v.pop("fitted_on"), r"missing: \['fitted_on'\]"),
    "an unknown key": (lambda v: first(v).update(extra=1), r"unknown: \['extra'\]"),
    "no hash": (lambda v: v.update(weights_sha256="abc"), "weights_sha256 must be 64 hexadecimal digits"),
    "one setting twice": (lambda v: v["settings"].append(first(v)), "two of one sampling_temperature"),
    "an impossible setting": (lambda v: first(v).update(sampling_temperature=-1), "temperature is -1"),
    "a temperature of zero": (
        lambda v: first(v).update(confidence_temperatures=[1, 0]),
        "greedy hold 0.0 at position 2",
    ),
    "a negative temperature": (lambda v: first(v).update(confidence_temperatures=[-2, 1]), "-2.0 at position 1"),
    "NaN": (lambda v: first(v).update(confidence_temperatures=[1, float("nan")]), "must be a finite number"),
    "a text": (lambda v: first(v).update(confidence_temperatures=[1, "2"]), "must be a finite number"),
    "too few positions": (lambda v: first(v).update(confidence_temperatures=[1.0]), "has 1 temperatures for greedy"),
    "broken figures": (lambda v: first(v)["before"][0].update(n="many"), r"before\[0\]\.n must be of type int"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_file_is_refused_with_the_way_out(calibrated, fault):
    change, words = FAULTS[fault]
    changed(calibrated, change)
    with pytest.raises(CheckpointError, match=words) as refusal:
        read_calibration(calibrated, 2)
    assert "Remove the file" in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "words"), [(b"{", "not valid JSON"), (b"[]", "not an object"), (b"\xff\xfe", "cannot be read")]
)
def test_a_file_that_is_no_object_is_refused(calibrated, content, words):
    (calibrated / FILE_NAME).write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        read_calibration(calibrated, 2)


def test_a_file_cut_short_anywhere_is_refused(calibrated):
    whole = (calibrated / FILE_NAME).read_bytes()
    for length in range(0, len(whole) - 2, 97):
        (calibrated / FILE_NAME).write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_calibration(calibrated, 2)


def test_weights_that_are_missing_are_told(tmp_path):
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        weights_sha256(tmp_path)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_or_is_interrupted_leaves_the_old_file_and_no_other(calibrated, monkeypatch, error):
    before = {path.name: path.read_bytes() for path in calibrated.iterdir()}

    def fail(*_):
        raise error

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(ResourceError if isinstance(error, OSError) else KeyboardInterrupt):
        write_calibration(calibrated / FILE_NAME, toy_calibration())
    assert {path.name: path.read_bytes() for path in calibrated.iterdir()} == before


def test_a_folder_that_is_missing_is_told_in_words(tmp_path):
    with pytest.raises(ResourceError, match="cannot be written"):
        write_calibration(tmp_path / "none" / FILE_NAME, toy_calibration())


@pytest.mark.parametrize(
    ("asked", "taken"), [(0.0, 0.0), (0.01, 0.7), (0.5, 0.7), (0.8, 0.7), (0.86, 1.0), (1.0, 1.0), (10.0, 1.0)]
)
def test_a_request_takes_the_nearest_sampled_setting_and_greedy_only_when_greedy(asked, taken):
    calibration = toy_calibration()
    (wanted,) = [s.confidence_temperatures for s in calibration.settings if s.sampling_temperature == taken]
    assert calibration.temperatures_for(asked) == wanted


def test_of_two_settings_equally_near_the_cooler_one_is_taken():
    calibration = toy_calibration()
    cool, warm = (replace(calibration.settings[1], sampling_temperature=t) for t in (0.5, 1.5))
    other = replace(calibration, settings=(replace(warm, confidence_temperatures=(9.0, 9.0)), cool))
    assert other.temperatures_for(1.0) == cool.confidence_temperatures


def test_a_kind_of_sampling_without_a_setting_stays_as_the_head_gives_it():
    calibration = toy_calibration()
    greedy_only = replace(calibration, settings=calibration.settings[:1])
    sampled_only = replace(calibration, settings=calibration.settings[1:])
    assert greedy_only.temperatures_for(1.0) is None
    assert sampled_only.temperatures_for(0.0) is None
