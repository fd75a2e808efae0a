"""A draft language model: its cache follows the text, its law is what it draws from, and strangers are refused."""

import json
import math
from dataclasses import dataclass

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from dspark_core.calibration.file import write_calibration
from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.base import EMPTY_BLOCK
from dspark_core.drafters.lm import NUM_DRAFT_TOKENS, LmDrafter, load_lm_drafter
from dspark_core.drafters.none import NoneDrafter
from dspark_core.drafters.vocabulary import write_draft_vocabulary
from dspark_core.errors import CheckpointError, NumericsError, ParameterError
from dspark_core.events import DecodeRound
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.sampling import SeededDice
from dspark_core.target.llama import LlamaTarget
from tests.conftest import TINY_CONFIG, make_tiny_state
from tests.toy import FixedLoad, ToyTarget, ToyTokenizer, toy_calibration, toy_lm

FIXED = ScheduleParams("fixed", 0, 64, 0)
SAMPLED = SamplingParams(temperature=1.0)
NOTHING = torch.empty(0, 0)
PROMPTS = [(5, 6, 7), (40, 3), (90, 11, 12, 13, 14), (8,), tuple(range(30, 70))]
TOKENIZER = ToyTokenizer(dict.fromkeys(range(200), b"x"))


def noisy_state(noise, seed=1):
    """The tiny target's weights with noise: a draft model that is right now and then."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value + noise * value.std() * torch.randn(value.shape, generator=generator)
        for name, value in make_tiny_state().items()
    }


def tiny_lm(noise=0.15, **changes):
    return LlamaTarget.from_state(TINY_CONFIG | changes, noisy_state(noise), torch.float32, poison=True)


@dataclass
class Seen:
    """A drafter whose states are kept for the test."""

    drafter: LmDrafter

    def __post_init__(self):
        self.states = []

    def __getattr__(self, name):
        return getattr(self.drafter, name)

    def open(self, capacity):
        self.states.append(self.drafter.open(capacity))
        return self.states[-1]


def loop_of(target, drafter):
    return DecodeLoop(target, TOKENIZER, {"none": NoneDrafter(), "lm": drafter}, FixedLoad())


def ask(prompt, drafter="lm", schedule=FIXED, **sampling):
    return GenerationRequest(prompt, SamplingParams(**({"max_new_tokens": 40} | sampling)), schedule, drafter)


def next_logits(model, slot):
    """What the model says after a slot's text and one token more; the slot is left as it was."""
    length = slot.length
    logits = model.forward([slot], [[9]], tapped_layers=())[0].logits[0]
    slot.crop(length)
    return logits


def assert_holds(model, state, tokens):
    """The state's cache is that of ``tokens`` read afresh, and nothing else is in it."""
    fresh = model.open_slot(len(tokens) + 1)
    model.forward([fresh], [tokens], tapped_layers=(), want_logits=False)
    assert state._slot.length == len(tokens)
    torch.testing.assert_close(next_logits(model, state._slot), next_logits(model, fresh), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_equals_plain_decoding_with_every_length_of_acceptance(prompt, tiny_target):
    loop = loop_of(tiny_target, LmDrafter(tiny_lm(), tiny_target, num_draft_tokens=3))
    events = loop.run(ask(prompt))
    assert events[-1].token_ids == loop.run(ask(prompt, "none"))[-1].token_ids


def test_all_lengths_of_acceptance_occur(tiny_target):
    loop = loop_of(tiny_target, LmDrafter(tiny_lm(), tiny_target, num_draft_tokens=3))
    rounds = [event for prompt in PROMPTS for event in loop.run(ask(prompt)) if isinstance(event, DecodeRound)]
    assert {event.num_accepted for event in rounds} == {0, 1, 2, 3}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_target_as_its_own_draft_model_is_always_right(temperature, tiny_target):
    """One token too many or too few in the draft model's cache, or at a wrong position, and it would not be."""
    twin = LlamaTarget.from_state(TINY_CONFIG, make_tiny_state(), torch.float32, poison=True)
    loop = loop_of(tiny_target, LmDrafter(twin, tiny_target, candidates=97))
    rounds = [
        event
        for seed, prompt in enumerate(PROMPTS)
        for event in loop.run(ask(prompt, temperature=temperature, seed=seed))
        if isinstance(event, DecodeRound)
    ]
    drafted = [token for event in rounds for token in event.draft if token.accept_prob is not None]
    assert len(drafted) > 100
    assert min(token.accept_prob for token in drafted) > 0.999


@pytest.mark.parametrize("l_max", [0, 1, 3, 8])
def test_after_every_round_the_cache_holds_the_committed_tokens_without_the_anchor(l_max, tiny_target):
    model = tiny_lm()
    loop = loop_of(tiny_target, LmDrafter(model, tiny_target, num_draft_tokens=4))
    answer = loop.open(ask((5, 6, 7), schedule=ScheduleParams("fixed", 0, l_max, 0), temperature=0.7, seed=2))
    while loop.prefill_chunk(answer) is None:
        pass
    while answer.ending is None:
        loop.step([answer])
        if answer.ending is None:
            assert_holds(model, answer.drafter_state, [5, 6, 7, *answer.token_ids][:-1])


def test_drafts_that_were_accepted_are_not_read_again(tiny_target):
    model = tiny_lm()
    passes = []
    forward = model.forward
    model.forward = lambda slots, ids, **options: passes.append(list(ids[0])) or forward(slots, ids, **options)
    state = LmDrafter(model, tiny_target).open(40)
    state.observe((5, 6), NOTHING)
    block = state.draft(7, 4, SAMPLED, SeededDice(0))
    assert passes == [[5, 6], [7], *([token] for token in block.token_ids[:3])]
    passes.clear()
    state.observe((7, *block.token_ids[:2]), NOTHING)
    assert passes == []
    again = state.draft(block.token_ids[2], 2, SAMPLED, SeededDice(0))
    passes.clear()
    state.observe((block.token_ids[2], *again.token_ids), NOTHING)
    assert passes == [[again.token_ids[1]]], "the last draft of a block is the only one that was not read"


def test_drafting_twice_gives_the_same(tiny_target):
    state = LmDrafter(tiny_lm(), tiny_target).open(40)
    state.observe((5, 6), NOTHING)
    blocks = [state.draft(7, 4, SAMPLED, SeededDice(3)) for _ in range(2)]
    assert blocks[0].token_ids == blocks[1].token_ids
    assert torch.equal(blocks[0].candidate_probs, blocks[1].candidate_probs)
    assert blocks[0].confidences == blocks[1].confidences


def test_several_answers_in_one_pass_equal_each_alone(tiny_target):
    def requests():
        for index, prompt in enumerate(PROMPTS):
            yield ask(prompt, temperature=0.6 * (index % 3), seed=index, max_new_tokens=9 + 4 * index)

    drafter = LmDrafter(tiny_lm(), tiny_target)
    alone = [loop_of(tiny_target, drafter).run(request)[-1].token_ids for request in requests()]
    loop = loop_of(tiny_target, drafter)
    answers = [loop.open(request) for request in requests()]
    for answer in answers:
        while loop.prefill_chunk(answer) is None:
            pass
    while running := [answer for answer in answers if answer.ending is None]:
        loop.step(running)
    assert [tuple(answer.token_ids) for answer in answers] == alone


def test_the_end_of_an_answer_gives_the_memory_back(tiny_target):
    drafter = Seen(LmDrafter(tiny_lm(), tiny_target))
    loop_of(tiny_target, drafter).run(ask((5, 6)))
    (state,) = drafter.states
    assert state._slot is None
    state.release()
    for use in (lambda: state.observe((1,), NOTHING), lambda: state.draft(1, 2, SAMPLED, SeededDice(0))):
        with pytest.raises(RuntimeError, match="released"):
            use()


def test_a_shorter_context_ends_the_drafting_and_not_the_answer(tiny_target):
    drafter = LmDrafter(tiny_lm(max_position_embeddings=20), tiny_target, num_draft_tokens=4)
    assert f"reads 20 tokens, the target {tiny_target.max_context}" in drafter.note
    loop = loop_of(tiny_target, drafter)
    events = loop.run(ask((5, 6, 7)))
    assert events[-1].token_ids == loop.run(ask((5, 6, 7), "none"))[-1].token_ids
    at, text = [], 3
    for event in events:
        if isinstance(event, DecodeRound):
            at.append((text, len(event.draft)))
            text += len(event.committed)
    assert all(drafted == min(4, 21 - held) for held, drafted in at if held <= 20)  # held tokens, the anchor among them
    assert [drafted for held, drafted in at if held > 20]
    assert all(drafted == 0 for held, drafted in at if held > 20)


def test_a_prompt_beyond_its_context_is_answered_by_plain_decoding(tiny_target):
    loop = loop_of(tiny_target, LmDrafter(tiny_lm(max_position_embeddings=20), tiny_target))
    prompt = tuple(range(5, 65))
    events = loop.run(ask(prompt, schedule=ScheduleParams()))
    assert events[-1].token_ids == loop.run(ask(prompt, "none"))[-1].token_ids
    assert all(event.draft == () for event in events if isinstance(event, DecodeRound))


def test_the_note_has_no_word_of_a_context_that_is_long_enough(tiny_target):
    note = LmDrafter(tiny_lm(), tiny_target).note
    assert "no confidence head" in note
    assert "largest probability of its own law at temperature 1" in note
    assert "the target" not in note


class Preset:
    """Dice that draw given candidates, which are sorted by likelihood."""

    def __init__(self, *indices):
        self.indices = list(indices)

    def choose(self, probs):  # noqa: ARG002
        return self.indices.pop(0)


def test_a_confidence_depends_only_on_the_tokens_before_its_own():
    state = LmDrafter(toy_lm(), ToyTarget()).open(9)
    state.observe((1, 2), NOTHING)
    blocks = [state.draft(0, 2, SAMPLED, Preset(i, j)) for i in range(3) for j in range(3)]
    assert len({block.confidences[0] for block in blocks}) == 1
    by_first = {}
    for block in blocks:
        assert by_first.setdefault(block.token_ids[0], block.confidences[1]) == block.confidences[1]
    assert len(set(by_first.values())) == 3


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED, SamplingParams(temperature=0.3, top_p=0.5)])
def test_the_confidence_is_the_largest_probability_at_temperature_1_whatever_is_sampled(sampling):
    model = toy_lm()
    state = LmDrafter(model, ToyTarget()).open(9)
    state.observe((1, 2), NOTHING)
    block = state.draft(0, 2, sampling, SeededDice(1))
    slot = model.open_slot(9)
    logits = model.forward([slot], [(1, 2, 0, block.token_ids[0])], tapped_layers=())[0].logits[2:]
    assert block.confidences == pytest.approx(logits.softmax(-1).max(-1).values.tolist())


def test_the_reported_law_is_cut_to_the_candidates_and_normalised(tiny_target):
    block = LmDrafter(tiny_lm(), tiny_target, candidates=5).open(9).draft(1, 3, SAMPLED, SeededDice(0))
    assert block.candidate_probs.shape == (3, 5)
    assert block.candidate_probs.sum(-1).tolist() == pytest.approx([1, 1, 1])
    for k, token in enumerate(block.token_ids):
        row = block.candidate_ids[k].tolist()
        assert block.shown_probs[k] == pytest.approx(float(block.candidate_probs[k, row.index(token)]))
    assert block.confidences[0] < float(block.candidate_probs[0].max()), "of the whole law, not of the candidates alone"


def test_greedy_drafts_are_one_hot_and_show_the_models_probability(tiny_target):
    block = LmDrafter(tiny_lm(), tiny_target).open(9).draft(1, 3, SamplingParams(), SeededDice(0))
    assert (block.candidate_probs.max(-1).values == 1).all()
    assert block.candidate_probs.sum(-1).tolist() == [1.0] * 3
    assert block.shown_probs == block.confidences
    assert all(0 < shown < 1 for shown in block.shown_probs)


def test_only_the_draft_vocabulary_is_drafted_and_the_law_over_it_is_the_same_up_to_its_mass():
    target = ToyTarget()
    whole = LmDrafter(toy_lm(), target).open(5).draft(1, 2, SAMPLED, Preset(0, 0))
    part = LmDrafter(toy_lm(), target, draft_vocabulary=(0, 2)).open(5).draft(1, 2, SAMPLED, Preset(0, 0))
    assert set(part.candidate_ids.flatten().tolist()) == {0, 2}
    law = dict(zip(whole.candidate_ids[0].tolist(), whole.candidate_probs[0].tolist(), strict=True))
    for token, probability in zip(part.candidate_ids[0].tolist(), part.candidate_probs[0].tolist(), strict=True):
        assert probability == pytest.approx(law[token] / (law[0] + law[2]))


def test_padding_of_the_draft_model_is_never_drafted():
    drafter = LmDrafter(toy_lm(7), ToyTarget(), used_tokens=3, num_draft_tokens=40)
    state = drafter.open(60)
    block = state.draft(1, 40, SAMPLED, SeededDice(0))
    assert set(block.candidate_ids.flatten().tolist()) == {0, 1, 2}
    assert len(set(block.token_ids)) > 1


def test_a_token_that_only_the_target_has_ends_the_drafting():
    drafter = LmDrafter(toy_lm(3), ToyTarget(vocab_size=5), used_tokens=3)
    state = drafter.open(20)
    state.observe((1, 2), NOTHING)
    assert state.draft(4, 2, SAMPLED, SeededDice(0)) is EMPTY_BLOCK
    state.observe((4, 1), NOTHING)
    assert state.draft(1, 2, SAMPLED, SeededDice(0)) is EMPTY_BLOCK


@pytest.mark.parametrize("used_tokens", [None, 4])
@pytest.mark.parametrize("sizes", [(3, 5), (5, 3)])
def test_vocabularies_that_differ_in_more_than_padding_are_refused_by_name(sizes, used_tokens):
    own, theirs = sizes
    with pytest.raises(CheckpointError, match=f"vocabulary of {own} tokens and the target toy one of {theirs}"):
        LmDrafter(toy_lm(own), ToyTarget(vocab_size=theirs), used_tokens=used_tokens)


@pytest.mark.parametrize("options", [{"num_draft_tokens": 0}, {"num_draft_tokens": 65}, {"candidates": 0}])
def test_numbers_out_of_range_are_refused_by_name(options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        LmDrafter(toy_lm(), ToyTarget(), **options)


@pytest.mark.parametrize("count", [0, -1])
def test_no_room_no_drafts(count):
    assert LmDrafter(toy_lm(), ToyTarget()).open(5).draft(1, count, SAMPLED, SeededDice(0)) is EMPTY_BLOCK


def test_damaged_weights_are_refused_not_drawn_from(tiny_target):
    state = make_tiny_state()
    state["model.norm.weight"][3] = float("nan")
    broken = LlamaTarget.from_state(TINY_CONFIG, state, torch.float32)
    with pytest.raises(NumericsError):
        LmDrafter(broken, tiny_target).open(5).draft(1, 2, SAMPLED, SeededDice(0))


def test_a_calibration_divides_the_logits_and_leaves_the_drafts():
    plain, calibrated = (
        LmDrafter(toy_lm(), ToyTarget(), num_draft_tokens=2, calibration=calibration)
        .open(9)
        .draft(1, 2, SAMPLED, SeededDice(4))
        for calibration in (None, toy_calibration())
    )
    assert calibrated.token_ids == plain.token_ids
    assert calibrated.raw_confidences == plain.confidences
    for raw, confidence, divisor in zip(plain.confidences, calibrated.confidences, (4.0, 4.5), strict=True):
        assert math.log(confidence / (1 - confidence)) == pytest.approx(math.log(raw / (1 - raw)) / divisor)


def test_drafting_stops_before_the_first_token_that_is_not_worth_drawing_and_saves_its_passes(tiny_target):
    model = tiny_lm()
    whole, stopped = (LmDrafter(model, tiny_target).open(40) for _ in range(2))
    full = whole.draft(7, 6, SAMPLED, SeededDice(0))
    asked = []
    block = stopped.draft(
        7, 6, SAMPLED, SeededDice(0), lambda confidences: asked.append(tuple(confidences)) or len(confidences) < 4
    )
    assert block.token_ids == full.token_ids[:3]
    assert block.confidences == full.confidences[:3]
    assert block.stopped_at == full.confidences[3]
    assert asked == [full.confidences[:k] for k in (1, 2, 3, 4)]
    assert block.candidate_probs.shape == (3, tiny_target.vocab_size)
    assert stopped._slot.length == 4, "anchor and three drafts were read, no more"
    stopped.observe((7, *block.token_ids), NOTHING)
    assert_holds(model, stopped, [7, *block.token_ids])


def test_stopping_at_once_drafts_nothing_and_tells_the_confidence(tiny_target):
    block = LmDrafter(tiny_lm(), tiny_target).open(40).draft(7, 6, SAMPLED, SeededDice(0), lambda _: False)
    assert (block.token_ids, block.confidences) == ((), ())
    assert 0 < block.stopped_at < 1


def words(*names):
    return {name: number for number, name in enumerate(names)}


@pytest.fixture
def lm_folder(tmp_path):
    """A Hugging Face folder with a draft model of the toy's three tokens."""
    config = TINY_CONFIG | {"vocab_size": 3, "architectures": ["LlamaForCausalLM"]}
    folder = tmp_path / "small"
    folder.mkdir()
    save_file(make_tiny_state(config), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_tokenizer(folder, vocabulary):
    Tokenizer(models.WordLevel(vocabulary, unk_token="a")).save(str(folder / "tokenizer.json"))


def test_any_llama_folder_is_a_draft_model(lm_folder):
    drafter = load_lm_drafter(lm_folder, ToyTarget(), words("a", "b", "c"))
    assert (drafter.name, drafter.num_draft_tokens, drafter.tapped_layers) == ("lm", NUM_DRAFT_TOKENS, ())
    assert len(drafter.open(20).draft(1, 8, SAMPLED, SeededDice(0)).token_ids) == 8


def test_the_same_tokenizer_is_taken_and_another_one_is_refused_by_its_first_difference(lm_folder):
    write_tokenizer(lm_folder, words("a", "b", "c"))
    load_lm_drafter(lm_folder, ToyTarget(), words("a", "b", "c"))
    with pytest.raises(CheckpointError, match=r"another tokenizer .* differ in 'b', id 1"):
        load_lm_drafter(lm_folder, ToyTarget(), words("a", "c", "b"))
    (lm_folder / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        load_lm_drafter(lm_folder, ToyTarget(), words("a", "b", "c"))


def test_padding_is_told_from_tokens_by_the_tokenizer(lm_folder):
    load_lm_drafter(lm_folder, ToyTarget(vocab_size=5), words("a", "b", "c"))
    with pytest.raises(CheckpointError, match="of which the tokenizer uses 4"):
        load_lm_drafter(lm_folder, ToyTarget(vocab_size=5), words("a", "b", "c", "d"))


def test_a_draft_vocabulary_in_the_folder_is_honoured(lm_folder):
    write_draft_vocabulary(lm_folder, [0, 2])
    block = load_lm_drafter(lm_folder, ToyTarget()).open(40).draft(1, 8, SAMPLED, SeededDice(0))
    assert set(block.candidate_ids.flatten().tolist()) == {0, 2}


def test_a_calibration_of_other_weights_is_said_and_not_used(lm_folder):
    write_calibration(lm_folder / "calibration.json", toy_calibration(num_draft_tokens=NUM_DRAFT_TOKENS))
    drafter = load_lm_drafter(lm_folder, ToyTarget())
    assert drafter.calibration is None
    assert "belongs to other weights" in drafter.note
