"""The three prompt sets of the evaluation: large enough, and kept apart from what drafters are trained on."""

import pytest

from dspark_core.bench.prompts import DEFAULT_SETS, packaged
from dspark_core.training.data import read_conversations
from dspark_core.training.openings import Openings, plain_words
from tests.sources import ROOT


def measured_turns():
    return [plain_words(turn) for kind in DEFAULT_SETS for prompt in packaged(kind) for turn in prompt.turns]


def test_three_sets_of_at_least_24_prompts_of_which_none_is_there_twice():
    assert DEFAULT_SETS == ("chat", "maths", "code")
    assert all(len(packaged(kind)) >= 24 for kind in DEFAULT_SETS)
    assert len(set(measured_turns())) == len(measured_turns())


@pytest.mark.parametrize("kind", DEFAULT_SETS)
def test_no_prompt_can_come_out_of_the_table_that_training_prompts_are_drawn_from(kind):
    openings = Openings(["word"])
    turns = [turn for prompt in packaged(kind) for turn in prompt.turns]
    assert [turn for turn in turns if openings.could_draw(turn)] == []


def test_no_prompt_is_in_the_shipped_training_data(smollm2_tokenizer):
    trained_on = [
        plain_words(smollm2_tokenizer.decode(conversation.prompt_ids))
        for conversation in read_conversations(ROOT / "data" / "selfplay")
    ]
    assert len(trained_on) > 1000
    assert [turn for turn in measured_turns() if any(f" {turn} " in f" {words} " for words in trained_on)] == []
