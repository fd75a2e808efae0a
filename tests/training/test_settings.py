"""Settings: what cannot train is refused by name, value and bounds; and a run is continued as it was begun."""

import json
import re
from dataclasses import fields

import pytest

from dspark_core.errors import ParameterError, ResourceError
from dspark_core.training.settings import SETTINGS_NAME, TrainSettings, read_settings, same_run
from tests.training.setup import tiny_settings

NAN, INF = float("nan"), float("inf")
WHOLE = (
    "workers",
    "batch_sequences",
    "batch_predictions",
    "block_size",
    "layers",
    "common_tokens",
    "step_tokens",
    "log_steps",
)
WHOLE_OR_NONE = (
    "stage1_anchors",
    "stage2_anchors",
    "seed",
    "copy_longest",
    "markov_rank",
    "mask_token_id",
    "warmup_steps",
)
ABOVE_0 = ("hours", "cool_weight", "stage1_rate", "stage2_rate", "table_rate", "clip_norm", "held_out_share")
FROM_0 = ("stage1_share", "prompt_share", "weight_decay", "checkpoint_s", "validate_s")
FLAGS = ("autocast", "confidence_reads_law", "only_confidence")
SHARES = ("stage1_share", "prompt_share", "held_out_share")


def faults():
    yield from ((name, value) for name in WHOLE + WHOLE_OR_NONE for value in (-1, 2.0, NAN, True, "8", None, 10**30))
    yield from ((name, 0) for name in WHOLE)
    yield from ((name, value) for name in ABOVE_0 + FROM_0 for value in (-0.1, NAN, INF, -INF, True, "0.5", 10**400))
    yield from ((name, 0) for name in ABOVE_0)
    yield from ((name, None) for name in ABOVE_0 + FROM_0 if name != "hours")
    yield from ((name, 1.5) for name in SHARES)
    yield ("held_out_share", 1)


@pytest.mark.parametrize(("name", "value"), list(faults()), ids=lambda value: str(value)[:20])
def test_a_value_that_cannot_train_is_refused_with_its_bounds(name, value):
    shown = re.escape(repr(value)[:15])
    with pytest.raises(ParameterError, match=f"^{name} is {shown}.*; it must be a (whole )?number from .+ to .+"):
        tiny_settings(**{name: value})


def test_every_number_among_the_settings_is_checked():
    plain = {f.name for f in fields(TrainSettings)} - {"block_lengths", "block_shares", "head_type", *FLAGS}
    assert plain == {*WHOLE, *WHOLE_OR_NONE, *ABOVE_0, *FROM_0}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", [1, "true", None])
def test_a_flag_is_true_or_false(name, value):
    with pytest.raises(ParameterError, match=f"^{name} is .*; it must be true or false"):
        tiny_settings(**{name: value})


def test_only_what_confidences_heed_is_trained_where_they_heed_something_and_in_stage_2():
    for more in ({"confidence_reads_law": False, "stage1_anchors": 0}, {"stage1_anchors": 1}):
        with pytest.raises(ParameterError, match=r"^only_confidence trains"):
            tiny_settings(only_confidence=True, **more)


@pytest.mark.parametrize("name", FROM_0)
def test_nothing_of_what_may_be_absent_is_allowed(name):
    assert getattr(tiny_settings(**{name: 0}), name) == 0


@pytest.mark.parametrize(
    "value", [(), (5, 2), (2,), (4, 0), (4, -2), (4, 2.0), (4, True), (4, NAN), "42", [4, 2], None, 4]
)
def test_block_lengths_that_no_block_has_are_refused(value):
    with pytest.raises(ParameterError, match=re.escape(f"block_lengths is {value!r}; ") + ".*from 1 to γ = 4"):
        tiny_settings(block_lengths=value)


@pytest.mark.parametrize(
    "value",
    [
        (),
        (1.0,),
        (0.5, 0.4),
        (0.5, 0.6),
        (1.5, -0.5),
        (NAN, 0.5),
        (INF, -INF),
        (0.5, "0.5"),
        (True, 0),
        [0.5, 0.5],
        None,
    ],
)
def test_block_shares_that_are_no_shares_are_refused(value):
    with pytest.raises(ParameterError, match=re.escape(f"block_shares is {value!r}; ") + ".*add up to 1"):
        tiny_settings(block_shares=value)


@pytest.mark.parametrize("value", [1, "yes", None])
def test_autocast_is_a_flag(value):
    with pytest.raises(ParameterError, match="autocast"):
        tiny_settings(autocast=value)


def test_a_run_has_something_to_train():
    with pytest.raises(ParameterError, match="Nothing to train"):
        tiny_settings(stage1_anchors=0, stage2_anchors=0)
    with pytest.raises(ParameterError, match="head_type is 'lstm'"):
        tiny_settings(head_type="lstm")
    assert tiny_settings(markov_rank=0).markov_rank == 0  # DFlash, trained by itself


def test_settings_survive_a_file(tmp_path):
    file = tmp_path / SETTINGS_NAME
    for settings in (TrainSettings(), tiny_settings(hours=0.5)):
        file.unlink(missing_ok=True)
        for _ in range(2):
            same_run(file, settings)
            assert read_settings(file) == settings
    assert [path.name for path in tmp_path.iterdir()] == [SETTINGS_NAME]


def test_only_the_end_of_a_run_may_move(tmp_path):
    file = tmp_path / SETTINGS_NAME
    same_run(file, tiny_settings())
    longer = tiny_settings(hours=2.0, stage1_anchors=100, stage2_anchors=200)
    same_run(file, longer)
    assert read_settings(file) == longer
    with pytest.raises(ParameterError, match=r"\(layers 2 there, 3 here; seed 0 there, 5 here\)"):
        same_run(file, tiny_settings(seed=5, layers=3))
    assert read_settings(file) == longer


def test_a_run_from_before_a_setting_goes_on_as_it_began(tmp_path):
    """Every answer was drawn alike until `cool_weight` came."""
    file = tmp_path / SETTINGS_NAME
    older = {name: value for name, value in tiny_settings().to_dict().items() if name != "cool_weight"}
    file.write_text(json.dumps(older))
    with pytest.raises(ParameterError, match=r"\(cool_weight 1.0 there, 3.0 here\)"):
        same_run(file, tiny_settings(cool_weight=3.0))
    for hours in (1.0, 2.0):
        same_run(file, tiny_settings(hours=hours, cool_weight=1.0))
    assert read_settings(file) == tiny_settings(hours=2.0, cool_weight=1.0)


def stored(**changes):
    return json.dumps(tiny_settings().to_dict() | changes)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not valid JSON"),
        (stored()[:100], "not valid JSON"),
        ("\x00" * 50, "not valid JSON"),
        ("[" * 200_000, "nested too deeply"),
        ("[1, 2]", "list, not an object"),
        ("{}", "lacks .*seed"),
        (stored(learning="fast"), "not known here .*learning.*another version"),
        (stored(seed="0"), "seed is '0'"),
        (stored(cool_weight=NAN), "cool_weight is nan"),
        (stored(block_lengths=[4, [2]]), "block_lengths is"),
        (stored(block_lengths={"4": 1}), "block_lengths is"),
    ],
)
def test_a_broken_file_of_settings_is_told(tmp_path, content, words):
    file = tmp_path / SETTINGS_NAME
    file.write_text(content)
    for read in (read_settings, lambda path: same_run(path, tiny_settings())):
        with pytest.raises(ParameterError, match=re.escape(str(file)) + f".*{words}.*[Gg]ive another work folder"):
            read(file)
    assert file.read_text() == content


def test_bytes_that_are_no_text_are_told(tmp_path):
    file = tmp_path / SETTINGS_NAME
    file.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ParameterError, match="not valid JSON"):
        same_run(file, tiny_settings())


def test_what_a_killed_writer_left_is_neither_read_nor_in_the_way(tmp_path, monkeypatch):
    file = tmp_path / SETTINGS_NAME
    same_run(file, tiny_settings())

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", killed)
        patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # a killed process does not tidy up either
        with pytest.raises(KeyboardInterrupt):
            same_run(file, tiny_settings(hours=1.0))
    assert len(list(tmp_path.iterdir())) == 2
    assert read_settings(file) == tiny_settings()
    same_run(file, tiny_settings(hours=2.0))
    assert read_settings(file) == tiny_settings(hours=2.0)
    assert [path.name for path in tmp_path.iterdir()] == [SETTINGS_NAME]


def test_a_folder_that_takes_no_file_is_told(tmp_path):
    (tmp_path / "work").write_text("a file")
    with pytest.raises(ResourceError, match=r"settings\.json cannot be written"):
        same_run(tmp_path / "work" / SETTINGS_NAME, tiny_settings())
