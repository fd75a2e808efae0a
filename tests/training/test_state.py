"""A run's state: taken by its own run alone, whole or not at all, and free of values that are not finite."""

import io
import json
import pickle
import re
import zipfile

import pytest
import torch

from dspark_core.errors import CheckpointError, NumericsError, ResourceError
from tests.training.setup import tiny_cache, tiny_settings, tiny_trainer

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tiny_cache(tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="module")
def ended(cache, tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("run")
    tiny_trainer(folder, cache, tiny_settings()).run()
    return folder


@pytest.fixture
def state(ended):
    return torch.load(ended / "state.pt", weights_only=True)


def refused(folder, cache, words, **changes):
    before = (folder / "state.pt").read_bytes()
    start = "^" + re.escape(str(folder / "state.pt"))
    with pytest.raises(CheckpointError, match=start + f".*{words}.*delete this file") as caught:
        tiny_trainer(folder, cache, tiny_settings(**changes))
    assert "weights_only" not in str(caught.value)  # torch's text advises to trust the file
    assert (folder / "state.pt").read_bytes() == before


class Hostile:
    def __reduce__(self):
        return print, ("run by reading",)


def archive():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as pack:
        pack.writestr("notes.txt", "no state")
    return out.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-100],
        lambda whole: whole[:2],
        lambda _: b"\x00" * 1000,
        lambda _: b"no state at all",
        lambda whole: whole[:200] + b"\xff" * 400 + whole[600:],
        lambda _: archive(),
        lambda _: pickle.dumps(Hostile()),
        lambda _: pickle.dumps({"stage": Hostile()}, protocol=2),
    ],
    ids=["empty", "half", "end cut", "start", "zeros", "text", "head", "other archive", "hostile", "hostile part"],
)
def test_a_file_that_is_no_state_is_told(tmp_path, cache, ended, damage, capsys):
    (tmp_path / "state.pt").write_bytes(damage((ended / "state.pt").read_bytes()))
    refused(tmp_path, cache, "cannot be read")
    assert "run by reading" not in capsys.readouterr().out


@pytest.mark.parametrize("value", [[1, 2], 7, None, "state", torch.zeros(3)], ids=str)
def test_another_thing_than_a_state_is_told(tmp_path, cache, value):
    torch.save(value, tmp_path / "state.pt")
    refused(tmp_path, cache, "not the state of a run")


@pytest.mark.parametrize("key", ["drafter", "optimizers", "stage", "step", "anchors", "elapsed_s", "stage_started_s"])
def test_a_missing_key_is_told(tmp_path, cache, state, key):
    torch.save({name: value for name, value in state.items() if name != key}, tmp_path / "state.pt")
    refused(tmp_path, cache, "another drafter" if key == "drafter" else key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("stage", value) for value in (0, 4, -1, "1", True, 1.0, None)),
        *((name, value) for name in ("step", "anchors") for value in (-1, 2.0, NAN, "3", False, 10**30)),
        *((name, value) for name in ("elapsed_s", "stage_started_s") for value in (-1.0, NAN, INF, "3", None, True)),
        *((name, value) for name in ("drafter", "optimizers") for value in (7, [1], "x", torch.zeros(2))),
        *(("optimizers", value) for value in ({}, None, {"tables": {}}, {"matrices 0": {}, "matrices 1": {}})),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_named(tmp_path, cache, state, key, value):
    torch.save(state | {key: value}, tmp_path / "state.pt")
    refused(tmp_path, cache, key)


@pytest.mark.parametrize("changes", [{"layers": 1}, {"layers": 3}, {"markov_rank": 4}])
def test_the_state_of_another_drafter_is_told(ended, cache, changes):
    refused(ended, cache, "another drafter: .*(layers|markov)", **changes)


def test_weights_that_are_no_tensors_are_another_drafters(tmp_path, cache, state):
    state["drafter"]["fc.weight"] = [1.0]
    torch.save(state, tmp_path / "state.pt")
    refused(tmp_path, cache, "another drafter: 'fc.weight'")


@pytest.mark.parametrize("value", [NAN, INF])
def test_weights_that_are_not_finite_are_told(tmp_path, cache, state, value):
    state["drafter"]["fc.weight"][0, 0] = value
    torch.save(state, tmp_path / "state.pt")
    refused(tmp_path, cache, "weights that are not finite")


@pytest.mark.parametrize("name", ["matrices 0", "others", "tables"])
@pytest.mark.parametrize("value", [{}, None, 7, {"state": {}, "param_groups": []}], ids=str)
def test_an_optimizer_without_its_state_is_told(tmp_path, cache, state, name, value):
    state["optimizers"][name] = value
    torch.save(state, tmp_path / "state.pt")
    refused(tmp_path, cache, f"optimizer state '{name}'")


@pytest.mark.parametrize(
    ("optimizer", "moment"),
    [
        ("matrices 0", "momentum_buffer"),
        *((name, moment) for name in ("others", "tables") for moment in ("exp_avg", "exp_avg_sq")),
    ],
)
@pytest.mark.parametrize("damage", ["shape", "lost", "nan", "no tensor"])
def test_optimizer_states_that_do_not_fit_are_told(tmp_path, cache, optimizer, moment, damage):
    run = tiny_trainer(tmp_path, cache, tiny_settings(stage1_anchors=0, stage2_anchors=8))
    run._one_step()
    run.save()
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    moments = state["optimizers"][optimizer]["state"][0]
    if damage == "lost":
        del moments[moment]
    else:
        moments[moment] = {"shape": torch.zeros(2, 3), "nan": moments[moment] * NAN, "no tensor": 7}[damage]
    torch.save(state, tmp_path / "state.pt")
    refused(tmp_path, cache, f"optimizer state '{optimizer}'", stage1_anchors=0, stage2_anchors=8)


def test_a_state_cut_off_while_it_was_written_does_not_count(tmp_path, cache, ended, monkeypatch):
    """Killed in the middle of the third save: the second counts, and the run ends as an unbroken one."""
    saves, save = [], torch.save

    def killed(state, path):
        saves.append(path)
        save(state, path)
        if len(saves) == 3:
            path.write_bytes(path.read_bytes()[:1000])
            raise KeyboardInterrupt

    run = tiny_trainer(tmp_path, cache, tiny_settings())
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", killed)
        patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # a killed process does not tidy up either
        with pytest.raises(KeyboardInterrupt):
            run.run()
    assert saves[-1].exists()
    resumed = tiny_trainer(tmp_path, cache, tiny_settings())
    assert (resumed.stage, resumed.step) == (1, 2)
    resumed.run()
    unbroken = tiny_trainer(ended, cache, tiny_settings())
    for name, value in unbroken.drafter.state_dict().items():
        assert torch.equal(value, resumed.drafter.state_dict()[name]), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "state.pt"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("unexpected pos 64 vs 0")])
def test_a_full_disk_is_told_and_the_last_state_stays(tmp_path, cache, monkeypatch, error):
    run = tiny_trainer(tmp_path, cache, tiny_settings())
    run.save()
    before = (tmp_path / "state.pt").read_bytes()

    def full(*_):
        raise error

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(ResourceError, match=r"state\.pt cannot be written"):
        run.save()
    assert (tmp_path / "state.pt").read_bytes() == before


def all_finite(folder):
    state = torch.load(folder / "state.pt", weights_only=True)
    tensors = [*state["drafter"].values()]
    for optimizer in state["optimizers"].values():
        values = [value for moments in optimizer["state"].values() for value in moments.values()]
        tensors += [value for value in values if isinstance(value, torch.Tensor)]
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("value", [NAN, INF])
def test_features_that_are_not_finite_stop_the_run_before_they_are_learnt(tmp_path, cache, stage, value):
    settings = tiny_settings(**({} if stage == 1 else {"stage1_anchors": 0}))
    run = tiny_trainer(tmp_path, cache, settings)
    draw = run.sampler.draw

    def poisoned(*args, **kwargs):
        batch = draw(*args, **kwargs)
        if run.step == 2:
            batch.target_hidden.fill_(value)
        return batch

    run.sampler.draw = poisoned
    words = f"loss is nan in step 2 of stage {stage}.*{re.escape(str(cache.folder))} are not finite: delete that folder"
    with pytest.raises(NumericsError, match=words):
        run.run()
    assert all_finite(tmp_path)
    resumed = tiny_trainer(tmp_path, cache, settings)
    assert (resumed.stage, resumed.step) == (stage, 2)
    resumed.run()
    unbroken = tiny_trainer(tmp_path / "unbroken", cache, settings)
    unbroken.run()
    assert torch.equal(unbroken.drafter.fc.weight, resumed.drafter.fc.weight)


@pytest.mark.parametrize(("place", "words"), [("fc.weight", "gradient norm"), ("markov_head", "gradient of a table")])
def test_gradients_that_are_not_finite_stop_the_run(tmp_path, cache, monkeypatch, place, words):
    run = tiny_trainer(tmp_path, cache, tiny_settings(stage1_anchors=0))
    run.save()
    wanted = next(i for i, (name, _) in enumerate(run.drafter.named_parameters()) if name.startswith(place))
    gradients = torch.autograd.grad

    def broken(*args, **kwargs):
        found = gradients(*args, **kwargs)
        return tuple(grad * NAN if i == wanted else grad for i, grad in enumerate(found))

    monkeypatch.setattr(torch.autograd, "grad", broken)
    before = run.drafter.fc.weight.clone()
    with pytest.raises(NumericsError, match=f"The {words} is nan in step 0 of stage 2.*rates are too high"):
        run.run()
    assert torch.equal(run.drafter.fc.weight, before)
    assert all_finite(tmp_path)


@pytest.mark.parametrize("left", [b'{"stage": 1, "st', b"\x00" * 7])
def test_a_half_written_line_of_the_log_is_taken_away(tmp_path, cache, left):
    (tmp_path / "log.jsonl").write_bytes(b'{"stage": 1, "step": 0}\n' + left)
    run = tiny_trainer(tmp_path, cache, tiny_settings())
    assert (tmp_path / "log.jsonl").read_bytes() == b'{"stage": 1, "step": 0}\n'
    run.run()
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert rows[0] == {"stage": 1, "step": 0}
    assert {row["stage"] for row in rows[1:]} >= {1, 2}


def test_a_log_that_cannot_be_written_is_told(tmp_path, cache):
    run = tiny_trainer(tmp_path, cache, tiny_settings())
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(ResourceError, match=r"log\.jsonl cannot be written"):
        run.run()
    with pytest.raises(ResourceError, match=r"log\.jsonl cannot be read"):
        tiny_trainer(tmp_path, cache, tiny_settings())


def after_a_step(folder, cache):
    """The state of a run after its first step, and the settings' changes that it was made with."""
    changes = {"stage1_anchors": 0, "stage2_anchors": 8}
    run = tiny_trainer(folder, cache, tiny_settings(**changes))
    run._one_step()
    run.save()
    return torch.load(folder / "state.pt", weights_only=True), changes


def test_rates_and_decay_are_the_runs_own_whatever_the_file_says(tmp_path, cache):
    state, changes = after_a_step(tmp_path, cache)
    for name, optimizer in state["optimizers"].items():
        for group in optimizer["param_groups"]:
            group.update({"momentum": NAN, "ns_steps": -1} if name.startswith("matrices") else {"betas": "none"})
    torch.save(state, tmp_path / "state.pt")
    fresh = tiny_trainer(tmp_path / "new", cache, tiny_settings(**changes))
    taken = tiny_trainer(tmp_path, cache, tiny_settings(**changes))
    for name, optimizer in taken.optimizers.named.items():
        own = fresh.optimizers.named[name]
        assert optimizer.state_dict()["param_groups"] == own.state_dict()["param_groups"]
        assert len(optimizer.state) == len(state["optimizers"][name]["state"]) > 0


def test_a_count_of_steps_that_is_no_number_is_told(tmp_path, cache):
    state, changes = after_a_step(tmp_path, cache)
    next(iter(state["optimizers"]["others"]["state"].values()))["step"] = torch.tensor(NAN)
    torch.save(state, tmp_path / "state.pt")
    refused(tmp_path, cache, "'others' does not fit this drafter", **changes)


def test_the_state_of_other_optimizers_is_told_by_their_names_alone(tmp_path, cache, state):
    state["optimizers"]["network"] = state["optimizers"].pop("matrices 0")
    torch.save(state, tmp_path / "state.pt")
    refused(tmp_path, cache, "holds the optimizers '[^{]*network'; this run has matrices 0, [^{]*earlier version")
