"""Self-made answers: greedy, ended where the target ends, kept for a resume, and apart from the benchmark's prompts."""

import json
from pathlib import Path

import torch

import dspark_core
from dspark_core.target.llama import LlamaTarget
from dspark_core.training.chat_prompts import chat_prompts
from dspark_core.training.synthesise import answer_greedily, stored_answers
from tests.training.setup import TARGET, conversations, target_state, tiny_source


def test_answers_are_greedy_whatever_is_answered_beside_them():
    target = LlamaTarget.from_state(TARGET, target_state())
    source, prompts = tiny_source(), [(5, 6, 7), (9,), (11, 12), (40, 41, 42, 43), (8, 8)]
    for found, prompt in zip(answer_greedily(target, prompts, 6, rows=2), prompts, strict=True):
        ids = list(prompt)
        while len(ids) < len(prompt) + 6 and (len(ids) == len(prompt) or ids[-1] != 2):
            _, final = source(torch.tensor([ids]))
            ids.append(int((final[0, -1] @ source.lm_head.T).argmax()))
        assert found.prompt_ids == prompt
        assert found.answer_ids == tuple(ids[len(prompt) :])
        assert found.temperature == 0


def test_a_stop_token_ends_an_answer():
    free = LlamaTarget.from_state(TARGET, target_state())
    (whole,) = answer_greedily(free, [(5, 6, 7)], 6)
    third = whole.answer_ids[2]
    target = LlamaTarget.from_state(TARGET | {"eos_token_id": third}, target_state())
    (cut,) = answer_greedily(target, [(5, 6, 7)], 6)
    assert cut.answer_ids == whole.answer_ids[: whole.answer_ids.index(third) + 1]


def test_answers_are_made_once(tmp_path):
    made = []

    def make():
        made.append(1)
        return conversations(3)

    file = tmp_path / "work" / "answers.jsonl.gz"
    assert stored_answers(file, make) == stored_answers(file, make) == conversations(3)
    assert len(made) == 1
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_prompts_are_reproducible_and_none_is_measured_on():
    prompts = chat_prompts(1000)
    assert len(prompts) == len(set(prompts)) > 200
    assert chat_prompts(5) == prompts[:5]
    folder = Path(dspark_core.__file__).parent / "bench" / "prompts"
    measured = {
        turn.lower().strip()
        for file in folder.glob("*.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
        for turn in json.loads(line)["turns"]
    }
    assert measured
    assert not measured & {prompt.lower() for prompt in prompts}
