"""On the real model in fp32, greedy text with any drafter equals plain decoding, token for token."""

import json
import os
import re

import pytest
import torch

from dspark_core.decode_loop import DecodeLoop
from dspark_core.draft_folders import drafter_names, find_draft_folders
from dspark_core.drafters.base import EMPTY_BLOCK, DraftBlock, OneByOne
from dspark_core.drafters.lm import LmDrafter
from dspark_core.drafters.none import NoneDrafter
from dspark_core.events import DecodeRound
from dspark_core.loading import find_model, load_drafters
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.target.llama import LlamaTarget
from dspark_core.target.weights import load_tensors
from tests.toy import FixedLoad

SHIPPED = [name for name in drafter_names(find_model("smollm2-135m"), "auto") if name not in ("none", "ngram")]
MAX_NEW_TOKENS = int(os.environ.get("DSPARK_TEST_TOKENS", "20"))
PROMPTS = {
    "chat": [
        "What should I cook tonight with eggs and spinach?",
        "Write two friendly sentences to welcome a new neighbour.",
        "Name three cities in Italy.",
        "Why do cats purr?",
        "Give me a short motto for a bakery.",
    ],
    "maths": [
        "What is 17 + 26?",
        "A train goes 60 km in 45 minutes. How fast is it?",
        "Solve 3x + 5 = 20.",
        "List the first five prime numbers.",
        "What is 15 percent of 80?",
    ],
    "code": [
        "Write a Python function that reverses a string.",
        "Show a for loop in C that prints 0 to 9.",
        "Write an SQL query that counts the rows of a table named users.",
        "What does `git status` show?",
        "Write a JSON object with a name and an age.",
    ],
    "Chinese": ["你好。", "请用中文介绍一下北京。", "一加一等于多少", "写一首关于月亮的短诗。", "人工智能是什么"],
}


class EchoDrafter(OneByOne):
    """Proposes a given text, with every fourth token wrong: all lengths of acceptance occur."""

    name, note, num_draft_tokens, tapped_layers, has_confidence = "echo", "", 6, (0,), True

    def __init__(self, prompt_length, text):
        self.prompt_length, self.text = prompt_length, text

    def open(self, capacity):  # noqa: ARG002
        return EchoState(self)


class EchoState:
    def __init__(self, drafter):
        self.drafter, self.length = drafter, 0

    def observe(self, token_ids, features):
        assert features.shape[0] == len(token_ids)
        self.length += len(token_ids)

    def draft(self, anchor, count, sampling, dice, goes_on=None):  # noqa: ARG002
        start = self.length + 1 - self.drafter.prompt_length
        ids = [t if (start + k) % 4 else t + 1 for k, t in enumerate(self.drafter.text[start : start + count])]
        if not ids:
            return EMPTY_BLOCK
        one = torch.ones(len(ids), 1)
        return DraftBlock(tuple(ids), (0.5,) * len(ids), torch.tensor(ids)[:, None], one, (1.0,) * len(ids))

    def release(self):
        pass


def run(target, tokenizer, drafter, prompt_ids):
    loop = DecodeLoop(target, tokenizer, {drafter.name: drafter}, FixedLoad())
    schedule = ScheduleParams("fixed", 0, 8, 0)
    request = GenerationRequest(prompt_ids, SamplingParams(max_new_tokens=MAX_NEW_TOKENS), schedule, drafter.name)
    return loop.run(request)


@pytest.fixture(scope="session")
def plain_texts(smollm2, smollm2_tokenizer):
    """Plain greedy decoding of every prompt: name → (prompt ids, answer ids, text)."""
    texts = {}
    for kind, prompts in PROMPTS.items():
        for i, prompt in enumerate(prompts):
            ids = smollm2_tokenizer.encode_chat([{"role": "user", "content": prompt}])
            end = run(smollm2, smollm2_tokenizer, NoneDrafter(), ids)[-1]
            texts[f"{kind}-{i}"] = (ids, end.token_ids, end.text)
    return texts


@pytest.fixture(scope="session")
def shipped_drafters(smollm2):
    """The drafters that ship, on the fp32 target."""
    return load_drafters(find_model("smollm2-135m"), "auto", smollm2)


@pytest.fixture(scope="session")
def skipping_lm(smollm2_folder):
    """The real model without two of its layers: a draft model that is often right and often wrong."""
    config = json.loads((smollm2_folder / "config.json").read_text(encoding="utf-8"))
    kept = [layer for layer in range(config["num_hidden_layers"]) if layer not in (12, 20)]
    state = {}
    for name, tensor in load_tensors(smollm2_folder).items():
        if found := re.match(r"model\.layers\.(\d+)\.(.*)", name):
            if int(found[1]) in kept:
                state[f"model.layers.{kept.index(int(found[1]))}.{found[2]}"] = tensor
        else:
            state[name] = tensor
    return LlamaTarget.from_state(config | {"num_hidden_layers": len(kept)}, state)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", [*SHIPPED, "ngram", "echo"])
@pytest.mark.parametrize("kind", PROMPTS)
def test_greedy_text_equals_plain_decoding(kind, drafter, plain_texts, shipped_drafters, smollm2, smollm2_tokenizer):
    accepted = []
    for i, _ in enumerate(PROMPTS[kind]):
        prompt_ids, token_ids, text = plain_texts[f"{kind}-{i}"]
        source = EchoDrafter(len(prompt_ids), token_ids) if drafter == "echo" else shipped_drafters[drafter]
        events = run(smollm2, smollm2_tokenizer, source, prompt_ids)
        assert events[-1].token_ids == token_ids
        assert events[-1].text == text == smollm2_tokenizer.decode(token_ids)
        accepted += [event.num_accepted for event in events if isinstance(event, DecodeRound)]
    if drafter == "echo":
        assert len(set(accepted)) >= 3  # otherwise this test would prove little
    else:
        assert sum(accepted) > 0, "the drafter's tokens are never accepted: it is not read as it was trained"


@pytest.mark.slow
def test_a_draft_language_model_leaves_the_greedy_text_as_it_is(plain_texts, skipping_lm, smollm2, smollm2_tokenizer):
    drafter = LmDrafter(skipping_lm, smollm2, num_draft_tokens=3)
    accepted = []
    for name in ("chat-0", "code-1", "Chinese-2"):
        prompt_ids, token_ids, text = plain_texts[name]
        events = run(smollm2, smollm2_tokenizer, drafter, prompt_ids)
        assert (events[-1].token_ids, events[-1].text) == (token_ids, text)
        accepted += [event.num_accepted for event in events if isinstance(event, DecodeRound)]
    assert len(set(accepted)) >= 3, "neither kept nor cropped in every way, so this proves little"


def test_a_shipped_checkpoint_is_there():
    folders = find_draft_folders(find_model("smollm2-135m"), "auto")
    assert (folders["dspark"].path / "model.safetensors").is_file()
