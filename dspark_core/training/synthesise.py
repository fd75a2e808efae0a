"""More data: the target answers prompts greedily, many side by side."""

import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from dspark_core.target.base import KVSlot, Target
from dspark_core.training.data import Conversation, read_conversations

ROWS = 48  # answers side by side: the pass is bound by reading the weights


def answer_greedily(
    target: Target, prompts: Sequence[tuple[int, ...]], max_new_tokens: int, *, rows: int = ROWS
) -> list[Conversation]:
    """One greedy answer per prompt (ids), ended by a stop token or after `max_new_tokens`; the order is kept."""
    return [
        conversation
        for first in range(0, len(prompts), rows)
        for conversation in _answer_rows(target, prompts[first : first + rows], max_new_tokens)
    ]


def _answer_rows(target: Target, prompts: Sequence[tuple[int, ...]], limit: int) -> list[Conversation]:
    slots = [target.open_slot(len(ids) + limit) for ids in prompts]
    answers: list[list[int]] = [[] for _ in prompts]
    try:
        _decode(target, slots, prompts, answers, limit)
    finally:
        for slot in slots:
            slot.release()
    return [Conversation(tuple(p), tuple(a), 0.0) for p, a in zip(prompts, answers, strict=True)]


def _decode(
    target: Target, slots: list[KVSlot], prompts: Sequence[tuple[int, ...]], answers: list[list[int]], limit: int
) -> None:
    waiting: dict[int, Sequence[int]] = dict(enumerate(prompts))
    while waiting:
        rows = list(waiting)
        outputs = target.forward([slots[i] for i in rows], [waiting[i] for i in rows], tapped_layers=())
        for i, output in zip(rows, outputs, strict=True):
            token = int(output.logits[-1, : target.vocab_size].argmax())
            answers[i].append(token)
            if token in target.stop_token_ids or len(answers[i]) == limit:
                del waiting[i]
            else:
                waiting[i] = [token]


def stored_answers(file: Path, make: Callable[[], list[Conversation]]) -> list[Conversation]:
    """The conversations in `file`, made and written first if it is not there (so a resumed run trains on the same)."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.part")
        with gzip.open(unfinished, "wt", encoding="utf-8") as out:
            for c in make():
                out.write(json.dumps({"p": c.prompt_ids, "r": c.answer_ids, "T": c.temperature}) + "\n")
        os.replace(unfinished, file)
    return read_conversations(file)
