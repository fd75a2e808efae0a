"""Several drafters in one session: each under its own name, with its own taps, and the text is the target's."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from dspark_core.checkpoint import save_drafter
from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.dspark import DSparkDrafter
from dspark_core.drafters.lm import LmDrafter
from dspark_core.errors import CheckpointError
from dspark_core.events import DecodeRound, Prefilled
from dspark_core.loading import card_uuid, load_drafters
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.conftest import TINY_CONFIG, make_tiny_state
from tests.modules.tiny import tiny_drafter
from tests.toy import FixedLoad, ToyTokenizer

SIZES = {
    "hidden_size": 32,
    "head_dim": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "num_target_layers": 4,
}
HEADLESS = {"markov_rank": 0, "confidence_head_with_markov": False, "enable_confidence_head": False}
TOKENIZER = ToyTokenizer(dict.fromkeys(range(97), b"x"))
GREEDY = SamplingParams(max_new_tokens=30)


def drafter_folder(folder, seed=0, **changes):
    drafter = tiny_drafter(seed, **(SIZES | changes))
    save_drafter(folder, drafter.config, drafter.state_dict())
    return folder


def lm_folder(folder, **changes):
    config = TINY_CONFIG | {"architectures": ["LlamaForCausalLM"]} | changes
    folder.mkdir()
    save_file(make_tiny_state(config, seed=1), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def folders(tmp_path):
    """A drafter of each kind; they tap different layers and draft 5, 3, 5 and 8 tokens."""
    return {
        "dspark": drafter_folder(tmp_path / "one"),
        "dspark-rnn": drafter_folder(
            tmp_path / "two", 1, markov_head_type="rnn", block_size=3, target_layer_ids=(1, 2)
        ),
        "dflash": drafter_folder(tmp_path / "three", 2, target_layer_ids=(2,), **HEADLESS),
        "lm": lm_folder(tmp_path / "four"),
    }


def load(target, *paths):
    return load_drafters(paths[0].parent, ",".join(map(str, paths)), target)


def test_each_is_loaded_under_its_kind_in_the_order_given(folders, tiny_target):
    drafters = load(tiny_target, *folders.values())
    assert list(drafters) == [*folders, "none", "ngram"]
    assert [drafter.name for drafter in drafters.values()] == list(drafters)
    assert [type(drafters[name]) for name in folders] == [DSparkDrafter] * 3 + [LmDrafter]
    assert [drafters[name].tapped_layers for name in folders] == [(0, 1), (1, 2), (2,), ()]
    assert list(load(tiny_target, folders["lm"], folders["dflash"])) == ["lm", "dflash", "none", "ngram"]


def test_the_look_up_drafts_as_many_as_the_longest_drafter(folders, tiny_target):
    assert load(tiny_target, folders["dspark"], folders["lm"])["ngram"].num_draft_tokens == 8
    assert load(tiny_target, folders["dspark"])["ngram"].num_draft_tokens == 5


def test_a_trained_dflash_replaces_the_borrowed_one(folders, tiny_target):
    borrowed = load(tiny_target, folders["dspark"])["dflash"]
    trained = load(tiny_target, folders["dspark"], folders["dflash"])["dflash"]
    assert "switched off" in borrowed.note
    assert trained.note == ""
    assert trained.model.markov_head is None
    assert trained.tapped_layers == (2,)


def test_two_of_a_kind_get_the_names_of_their_folders(folders, tmp_path, tiny_target):
    other = drafter_folder(tmp_path / "other", 5)
    drafters = load(tiny_target, folders["dspark"], other)
    assert list(drafters) == ["dspark", "other", "dflash", "none", "ngram"]
    assert drafters["other"].name == "other"
    own, theirs = (drafters[name].model.norm.weight for name in ("dspark", "other"))
    assert not torch.equal(own, theirs)


def test_every_drafter_of_a_session_writes_the_targets_greedy_text(folders, tiny_target):
    drafters = load(tiny_target, *folders.values())
    loop = DecodeLoop(tiny_target, TOKENIZER, drafters, FixedLoad())
    texts = {}
    for name in drafters:
        events = loop.run(GenerationRequest((5, 6, 7), GREEDY, ScheduleParams("fixed", 0, 8, 0), name))
        assert isinstance(events[0], Prefilled)
        assert (events[0].drafter, events[0].num_draft_tokens) == (name, drafters[name].num_draft_tokens)
        texts[name] = events[-1].token_ids
    assert set(texts.values()) == {texts["none"]}


def test_side_by_side_each_drafter_gets_the_features_of_its_own_layers(folders, tiny_target):
    """Drafts of a joint session equal those of a session with one drafter alone, which taps nothing else."""
    schedule = ScheduleParams("fixed", 0, 8, 0)
    requests = {
        name: GenerationRequest((5, 6, 7), SamplingParams(temperature=1.0, seed=3, max_new_tokens=20), schedule, name)
        for name in folders
    }

    def drafts(rounds):
        return [[token.id for token in event.draft] for event in rounds if isinstance(event, DecodeRound)]

    alone = {}
    for name, folder in folders.items():
        loop = DecodeLoop(tiny_target, TOKENIZER, load(tiny_target, folder), FixedLoad())
        alone[name] = drafts(loop.run(requests[name]))
    loop = DecodeLoop(tiny_target, TOKENIZER, load(tiny_target, *folders.values()), FixedLoad())
    answers = {name: loop.open(request) for name, request in requests.items()}
    for answer in answers.values():
        while loop.prefill_chunk(answer) is None:
            pass
    together = {name: [] for name in folders}
    while running := [name for name, answer in answers.items() if answer.ending is None]:
        for name, event in zip(running, loop.step([answers[name] for name in running]), strict=True):
            together[name].append(event)
    assert {name: drafts(events) for name, events in together.items()} == alone
    assert any(alone.values())


def test_a_language_model_of_another_tokenizer_is_refused(folders, tiny_target, smollm2_tokenizer):
    with pytest.raises(CheckpointError, match="vocabulary of 50 tokens and the target"):
        load(tiny_target, lm_folder(folders["lm"].parent / "small", vocab_size=50))
    (folders["lm"] / "tokenizer.json").write_text(
        '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'
    )
    with pytest.raises(CheckpointError, match="another tokenizer than the target"):
        load_drafters(folders["lm"].parent, str(folders["lm"]), tiny_target, smollm2_tokenizer)


@pytest.mark.parametrize(("uuid", "told"), [("1111-2222", "1111-2222"), (None, None)])
def test_a_cuda_cards_uuid_is_told_and_a_cpu_has_none(monkeypatch, uuid, told):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=uuid, device=device))
    assert card_uuid(torch.device("cuda", 0)) == told
    assert card_uuid(torch.device("cpu")) is None
