"""The DSpark drafter on a toy: what it draws from is what it reports, and nothing later decides about a confidence."""

import math

import pytest
import torch

from dspark_core.drafters.dspark import COLLECTED, DSparkDrafter
from dspark_core.errors import CheckpointError, NumericsError
from dspark_core.loading import find_model, load_drafters
from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice
from dspark_core.target.llama import LlamaTarget
from tests.toy import HIDDEN, ToyTarget, toy_calibration, toy_draft_model

SAMPLED = SamplingParams(temperature=1.0)


def features_of(target, tokens, taps=(0, 2)):
    slot = target.open_slot(len(tokens))
    return target.forward([slot], [tokens], tapped_layers=taps)[0].features


def opened(name="dspark", tokens=(1, 2, 0, 2)):
    target = ToyTarget()
    drafter = DSparkDrafter(toy_draft_model(), target, calibration=toy_calibration() if name == "calibrated" else None)
    drafter = drafter.without_head() if name == "dflash" else drafter
    state = drafter.open(20)
    state.observe(tuple(tokens), features_of(target, tokens))
    return drafter, state


class Preset:
    """Dice that draw given tokens; candidates are sorted by likelihood, so a token is looked up by its id."""

    def __init__(self, *indices):
        self.indices = list(indices)

    def choose(self, probs):  # noqa: ARG002
        return self.indices.pop(0)


def test_context_told_in_pieces_equals_context_told_at_once():
    tokens = (1, 2, 0, 2, 1, 1)
    target = ToyTarget()
    drafter = DSparkDrafter(toy_draft_model(), target)
    features = features_of(target, tokens)
    whole, pieces = drafter.open(20), drafter.open(20)
    whole.observe(tokens, features)
    for start, end in ((0, 1), (1, 4), (4, 6)):
        pieces.observe(tokens[start:end], features[start:end])
    blocks = [state.draft(1, 2, SAMPLED, SeededDice(4)) for state in (whole, pieces)]
    assert blocks[0].token_ids == blocks[1].token_ids
    assert blocks[0].confidences == pytest.approx(blocks[1].confidences)


def test_tokens_between_drafts_are_read_together_and_never_many_of_them_wait(monkeypatch):
    """As when a request rests from drafts: one reading for all of its rounds, and again whenever many wait."""
    target = ToyTarget()
    drafter = DSparkDrafter(toy_draft_model(), target)
    read, counts = drafter.model.context_keys_values, []
    monkeypatch.setattr(drafter.model, "context_keys_values", lambda f, p: counts.append(len(f)) or read(f, p))
    tokens = tuple(i % 3 for i in range(COLLECTED + 10))
    features = features_of(target, tokens)
    pieces, whole = drafter.open(len(tokens)), drafter.open(len(tokens))
    for at in range(len(tokens)):
        pieces.observe(tokens[at : at + 1], features[at : at + 1])
        assert pieces.num_collected <= COLLECTED
    assert counts == [COLLECTED + 1]
    whole.observe(tokens, features)
    blocks = [state.draft(1, 2, SAMPLED, SeededDice(4)) for state in (pieces, whole)]
    assert counts == [COLLECTED + 1, len(tokens), 9]
    assert blocks[0].token_ids == blocks[1].token_ids
    assert blocks[0].confidences == pytest.approx(blocks[1].confidences)


def test_features_that_do_not_fit_are_refused_at_once():
    _, state = opened()
    with pytest.raises(RuntimeError, match="1 tokens were observed with features of the shape"):
        state.observe((1,), torch.zeros(1, 3, dtype=torch.float64))


def test_drafting_leaves_the_state_as_it_was():
    _, state = opened()
    blocks = [state.draft(1, 2, SAMPLED, SeededDice(4)) for _ in range(2)]
    assert blocks[0].token_ids == blocks[1].token_ids
    assert torch.equal(blocks[0].candidate_probs, blocks[1].candidate_probs)


@pytest.mark.parametrize("name", ["dspark", "dflash", "calibrated"])
def test_a_confidence_depends_only_on_the_tokens_before_its_own(name):
    _, state = opened(name)
    blocks = [state.draft(1, 2, SAMPLED, Preset(i, j)) for i in range(3) for j in range(3)]
    assert len({block.confidences[0] for block in blocks}) == 1
    by_first = {}
    for block in blocks:
        assert by_first.setdefault(block.token_ids[0], block.confidences[1]) == block.confidences[1]
    assert len(set(by_first.values())) == 3


def test_the_markov_head_makes_the_second_law_depend_on_the_first_draft_and_dflash_does_not():
    laws = {}
    for name in ("dspark", "dflash"):
        _, state = opened(name)
        laws[name] = [state.draft(1, 2, SAMPLED, Preset(i, 0)).candidate_probs[1] for i in range(2)]
    assert not torch.allclose(*laws["dspark"])
    assert torch.equal(*laws["dflash"])


def test_the_markov_bias_of_the_first_position_comes_from_the_anchor():
    _, state = opened()
    first = [state.draft(anchor, 1, SAMPLED, Preset(0)) for anchor in (0, 1)]
    assert not torch.allclose(first[0].candidate_probs, first[1].candidate_probs)


def test_greedy_drafts_are_one_hot_and_show_the_models_probability():
    _, state = opened()
    block = state.draft(1, 2, SamplingParams(), SeededDice(0))
    assert block.candidate_probs.sum(-1).tolist() == [1.0, 1.0]
    assert (block.candidate_probs.max(-1).values == 1).all()
    assert all(0 < shown < 1 for shown in block.shown_probs)


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_the_reported_law_is_truncated_to_the_candidates_and_normalised(candidates):
    target = ToyTarget()
    drafter = DSparkDrafter(toy_draft_model(), target, candidates=candidates)
    block = drafter.open(5).draft(1, 2, SAMPLED, SeededDice(0))
    assert block.candidate_probs.shape == (2, candidates)
    assert block.candidate_probs.sum(-1).tolist() == pytest.approx([1, 1])
    for k, token in enumerate(block.token_ids):
        assert token in block.candidate_ids[k].tolist()


@pytest.mark.parametrize("count", [0, -1])
def test_no_room_no_drafts(count):
    _, state = opened()
    assert state.draft(1, count, SAMPLED, SeededDice(0)).token_ids == ()


def test_a_shorter_block_is_a_backbone_pass_of_its_own(monkeypatch):
    """The block looks both ways, so positions that are left out change the others: no slice of the whole one."""
    drafter, state = opened()
    widths = []
    forward = drafter.model.forward_ragged

    def watched(embeddings, *arguments):
        widths.append(len(embeddings))
        return forward(embeddings, *arguments)

    monkeypatch.setattr(drafter.model, "forward_ragged", watched)
    blocks = [state.draft(1, n, SAMPLED, Preset(0, 0)) for n in (2, 1)]
    assert widths == [len(block.token_ids) for block in blocks] == [2, 1]
    assert not torch.allclose(blocks[0].candidate_probs[0], blocks[1].candidate_probs[0])


def test_drafting_stops_before_the_token_of_the_confidence_that_stopped_it():
    _, state = opened("calibrated")
    whole = state.draft(1, 2, SAMPLED, Preset(1, 0))
    asked = []

    def until_the_second(confidences):
        asked.append(tuple(confidences))
        return len(confidences) < 2

    block = state.draft(1, 2, SAMPLED, Preset(1), until_the_second)  # these dice have no second draw
    assert asked == [whole.confidences[:1], whole.confidences]
    assert block.stopped_at == whole.confidences[1]
    assert block.known_confidences == whole.known_confidences == whole.confidences
    assert block.token_ids == whole.token_ids[:1]
    assert block.raw_confidences == whole.raw_confidences[:1]
    assert torch.equal(block.candidate_ids, whole.candidate_ids[:1])
    assert torch.equal(block.candidate_probs, whole.candidate_probs[:1])
    assert block.shown_probs == whole.shown_probs[:1]


def test_drafting_may_stop_before_the_first_token():
    _, state = opened()
    block = state.draft(1, 2, SAMPLED, Preset(), lambda _: False)
    assert (block.token_ids, block.confidences) == ((), ())
    assert block.stopped_at == state.draft(1, 2, SAMPLED, SeededDice(0)).confidences[0]
    assert len(block.candidate_ids) == len(block.candidate_probs) == 0


def test_a_drafter_without_confidences_drafts_on():
    state = DSparkDrafter(toy_draft_model(markov_rank=0), ToyTarget()).open(5)
    block = state.draft(1, 2, SAMPLED, SeededDice(0), lambda _: False)
    assert len(block.token_ids) == 2
    assert block.stopped_at is None


def test_dflash_says_what_it_is():
    drafter, _ = opened("dflash")
    assert "head switched off" in drafter.note
    assert opened("dspark")[0].note == ""


def test_a_drafter_for_another_target_is_refused():
    with pytest.raises(CheckpointError, match="vocabulary size"):
        DSparkDrafter(toy_draft_model(), ToyTarget(vocab_size=5))


def test_own_tables_of_the_file_are_used_when_there_are_any():
    from dataclasses import replace

    target, loaded = ToyTarget(), toy_draft_model()
    table = target.embed(torch.arange(3))
    same = replace(loaded, embed_tokens=table, lm_head=table)
    other = replace(loaded, embed_tokens=table, lm_head=table.flip(0))
    probs = [
        DSparkDrafter(model, target).open(5).draft(1, 1, SAMPLED, SeededDice(0)).candidate_ids.tolist()
        for model in (loaded, same, other)
    ]
    assert probs[0] == probs[1] != probs[2]
    assert table.shape == (3, HIDDEN)


def test_only_the_draft_vocabulary_is_drafted_and_the_law_over_it_is_the_same_up_to_its_mass():
    target, loaded = ToyTarget(), toy_draft_model()
    whole = DSparkDrafter(loaded, target).open(5).draft(1, 2, SAMPLED, Preset(0, 0))
    part = DSparkDrafter(loaded, target, draft_vocabulary=(0, 2)).open(5).draft(1, 2, SAMPLED, Preset(0, 0))
    assert part.candidate_ids.shape == (2, 2)
    assert set(part.candidate_ids.flatten().tolist()) == {0, 2}
    law = dict(zip(whole.candidate_ids[0].tolist(), whole.candidate_probs[0].tolist(), strict=True))
    for token, probability in zip(part.candidate_ids[0].tolist(), part.candidate_probs[0].tolist(), strict=True):
        assert probability == pytest.approx(law[token] / (law[0] + law[2]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_confidence_that_is_no_number_is_refused_not_taken_for_certainty(bad):
    loaded = toy_draft_model()
    loaded.modules.confidence_head.proj.weight[0, 0] = bad
    state = DSparkDrafter(loaded, ToyTarget()).open(5)
    with pytest.raises(NumericsError, match="confidence"):
        state.draft(1, 2, SAMPLED, SeededDice(0))


@pytest.mark.parametrize(("temperature", "divisors"), [(0.0, (0.3, 0.8)), (0.5, (2.0, 2.5)), (1.0, (4.0, 4.5))])
def test_a_calibrated_confidence_is_the_sigmoid_of_the_logit_divided_for_the_requests_temperature(
    temperature, divisors
):
    sampling = SamplingParams(temperature=temperature)
    blocks = {name: opened(name)[1].draft(1, 2, sampling, SeededDice(4)) for name in ("dspark", "calibrated")}
    assert blocks["dspark"].raw_confidences is None
    assert blocks["calibrated"].raw_confidences == blocks["dspark"].confidences
    for raw, calibrated, divisor in zip(
        blocks["dspark"].confidences, blocks["calibrated"].confidences, divisors, strict=True
    ):
        logit = math.log(raw / (1 - raw))
        assert calibrated == pytest.approx(1 / (1 + math.exp(-logit / divisor)))
        assert calibrated != pytest.approx(raw, abs=1e-3)
    assert blocks["calibrated"].token_ids == blocks["dspark"].token_ids
    assert torch.equal(blocks["calibrated"].candidate_probs, blocks["dspark"].candidate_probs)


def test_fewer_drafts_than_temperatures_take_the_first_ones():
    _, state = opened("calibrated")
    block = state.draft(1, 1, SAMPLED, SeededDice(4))
    (raw,) = block.raw_confidences
    assert block.confidences == (pytest.approx(1 / (1 + math.exp(-math.log(raw / (1 - raw)) / 4.0))),)


def test_dflash_made_from_a_calibrated_drafter_keeps_the_heads_own_confidences():
    target = ToyTarget()
    dflash = DSparkDrafter(toy_draft_model(), target, calibration=toy_calibration()).without_head()
    plain = DSparkDrafter(toy_draft_model(), target).without_head()
    blocks = [drafter.open(5).draft(1, 2, SAMPLED, Preset(0, 0)) for drafter in (dflash, plain)]
    assert blocks[0].confidences == blocks[1].confidences
    assert blocks[0].raw_confidences is None


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_shipped_drafter_drafts_finite_numbers_in_every_offered_type(dtype, smollm2_folder, smollm2_tokenizer):
    target = LlamaTarget.load(smollm2_folder, dtype=dtype)
    drafter = load_drafters(find_model("smollm2-135m"), "auto", target)["dspark"]
    prompt = smollm2_tokenizer.encode_chat([{"role": "user", "content": "Name three fruits."}])
    output = target.forward([target.open_slot(len(prompt))], [prompt[:-1]], tapped_layers=drafter.tapped_layers)[0]
    state = drafter.open(64)
    state.observe(prompt[:-1], output.features)
    block = state.draft(prompt[-1], 8, SamplingParams(), SeededDice(0))
    assert len(set(block.token_ids)) > 1
    assert all(0 < probability <= 1 for probability in block.shown_probs)
    assert all(0 < confidence < 1 for confidence in block.confidences)


def test_without_its_head_a_drafter_is_dflash_and_itself_unchanged():
    target, loaded = ToyTarget(), toy_draft_model()
    dspark = DSparkDrafter(loaded, target)
    before = dspark.open(5).draft(1, 2, SAMPLED, Preset(0, 0))
    dflash = dspark.without_head()
    assert (dflash.name, dspark.name, dspark.note) == ("dflash", "dspark", "")
    assert "switched off" in dflash.note
    blocks = [drafter.open(5).draft(1, 2, SAMPLED, Preset(0, 0)) for drafter in (dspark, dflash)]
    assert torch.equal(blocks[0].candidate_probs, before.candidate_probs)
    assert not torch.allclose(blocks[0].candidate_probs, blocks[1].candidate_probs)


def test_a_checkpoint_without_a_markov_head_is_dflash_of_its_own():
    headless = toy_draft_model(markov_rank=0)
    drafter = DSparkDrafter(headless, ToyTarget())
    assert (drafter.name, drafter.note) == ("dflash", "")
