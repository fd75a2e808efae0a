"""The target writes with itself: template and ends kept, greedy answers its own, nothing that is measured is used."""

import itertools
import random
import re

import pytest
import torch

from dspark_core.errors import ParameterError
from dspark_core.training.openings import Opening, Openings, common_words, measured_prompts, plain_words
from dspark_core.training.writer import Writer, WriterSettings, template_around_user

SMALL = WriterSettings(rows=4, user_tokens=14, answer_tokens=10, temperatures=(0.0, 1.0), seed=3)


@pytest.fixture(scope="module")
def written(smollm2, smollm2_tokenizer):
    return list(itertools.islice(Writer(smollm2, smollm2_tokenizer, SMALL).conversations(), 8))


def test_a_conversation_is_a_chat_prompt_and_its_answer(written, smollm2, smollm2_tokenizer):
    before, after = template_around_user(smollm2_tokenizer)
    for conversation in written:
        words = list(conversation.prompt_ids[len(before) : -len(after)])
        assert list(conversation.prompt_ids) == before + words + after
        text = smollm2_tokenizer.decode(words)
        assert len(plain_words(text)) >= 8
        assert not set(words) & smollm2_tokenizer.special_ids
        assert 1 <= len(conversation.answer_ids) <= SMALL.answer_tokens
        ends = [token in smollm2.stop_token_ids for token in conversation.answer_ids]
        assert not any(ends[:-1])
        assert ends[-1] or len(ends) == SMALL.answer_tokens


def test_greedy_answers_are_the_targets_own(written, smollm2):
    greedy = [c for c in written if c.temperature == 0][:2]
    assert greedy, "no greedy answer was drawn: this test shows nothing"
    for conversation in greedy:
        slot = smollm2.open_slot(len(conversation.ids))
        (output,) = smollm2.forward([slot], [conversation.ids], tapped_layers=())
        start = len(conversation.prompt_ids) - 1
        told = output.logits[start:-1].argmax(-1).tolist()
        assert told == list(conversation.answer_ids)


def test_the_same_seed_writes_the_same_and_another_does_not(written, smollm2, smollm2_tokenizer):
    def first(seed):
        settings = WriterSettings(SMALL.rows, SMALL.user_tokens, SMALL.answer_tokens, SMALL.temperatures, seed)
        return next(Writer(smollm2, smollm2_tokenizer, settings).conversations())

    assert first(SMALL.seed) == written[0]
    assert first(SMALL.seed + 1) != written[0]


def test_what_is_measured_is_never_written_about(smollm2, smollm2_tokenizer):
    measured = "Why do leaves change colour in autumn?"
    assert plain_words(measured) in measured_prompts()
    writer = Writer(smollm2, smollm2_tokenizer, SMALL)
    row = writer._new_row()
    row.ids = [*template_around_user(smollm2_tokenizer)[0], *smollm2_tokenizer.encode(measured.upper())]
    row.prompt_length, row.forced = 0, []
    stop = min(smollm2.stop_token_ids)
    assert writer._take(row, stop) is None
    row.ids = [*template_around_user(smollm2_tokenizer)[0], *smollm2_tokenizer.encode("Why is it so?")]
    assert writer._take(row, stop) is not None
    assert row.prompt_length > len(row.ids)


def test_openings_are_reproducible_and_none_is_measured(smollm2_tokenizer):
    words = common_words(smollm2_tokenizer)
    assert "photograph" in words
    assert all(len(word) >= 5 and word.islower() for word in words)
    openings = Openings(words)
    drawn = [openings.draw(random.Random(seed)) for seed in range(200)]
    assert drawn == [openings.draw(random.Random(seed)) for seed in range(200)]
    assert all(isinstance(opening, Opening) and not re.search(r"\{\w+\}", opening.text) for opening in drawn)
    assert {opening.whole for opening in drawn} == {True, False}
    whole = [openings.whole_prompt(random.Random(seed)) for seed in range(400)]
    assert len(set(whole)) > 300
    assert all(openings.could_draw(prompt) for prompt in whole)
    assert not openings.could_draw("Sing me the telephone book backwards")


def test_no_whole_prompt_can_be_one_that_is_measured():
    openings = Openings(["word"])
    assert len(measured_prompts()) > 70
    assert [prompt for prompt in measured_prompts() if openings.could_draw(prompt)] == []


def test_a_measured_whole_prompt_is_drawn_again(smollm2_tokenizer, smollm2, monkeypatch):
    writer = Writer(smollm2, smollm2_tokenizer, WriterSettings(rows=1, user_tokens=8, answer_tokens=2))
    measured = sorted(measured_prompts())[0]
    turns = iter([Opening(measured.upper(), whole=True), Opening("What is hope?", whole=True)])
    monkeypatch.setattr(writer._openings, "draw", lambda _: next(turns))
    row = writer._new_row()
    assert smollm2_tokenizer.encode("What is hope?")[0] == row.forced[0]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rows": 0}, "rows"),
        ({"answer_tokens": 1}, "answer_tokens"),
        ({"user_tokens": 0}, "user_tokens"),
        ({"seed": -1}, "seed"),
        ({"temperatures": ()}, "temperatures"),
        ({"temperatures": (float("nan"),)}, "temperatures"),
        ({"temperatures": (-0.1,)}, "temperatures"),
    ],
)
def test_settings_that_cannot_write_are_refused(changes, named):
    with pytest.raises(ParameterError, match=named):
        WriterSettings(**changes)


def test_a_context_too_short_for_the_turns_is_refused(smollm2, smollm2_tokenizer):
    with pytest.raises(ParameterError, match="context"):
        Writer(smollm2, smollm2_tokenizer, WriterSettings(answer_tokens=9000))


def test_sampled_turns_follow_the_temperature(smollm2, smollm2_tokenizer):
    """At a temperature near 0 the drawn token is the likeliest one; far above, others come."""
    writer = Writer(smollm2, smollm2_tokenizer, SMALL)
    rows = [writer._new_row() for _ in range(4)]
    hidden = torch.randn(4, smollm2.hidden_size, generator=torch.Generator().manual_seed(0))
    best = smollm2.lm_head(hidden).argmax(-1).tolist()
    for row in rows:
        row.forced, row.prompt_length, row.user_temperature = [], 0, 1e-4
    assert list(writer._draw(hidden, rows).values()) == best
    for row in rows:
        row.user_temperature = 50.0
    assert list(writer._draw(hidden, rows).values()) != best
