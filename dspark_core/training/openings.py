"""How the target's self-written user turns begin: a table of openings, none of them a prompt that is measured on."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from importlib.resources import files

from dspark_core.target.tokenizer import ChatTokenizer

_SLOT = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r" [a-z]{5,}")


@dataclass(frozen=True)
class Opening:
    """The beginning of a user turn; `whole` when nothing is to be added to it."""

    text: str
    whole: bool


class Openings:
    """Draws openings; every kind has its share, `words` fill the places marked {word}."""

    def __init__(self, words: list[str]) -> None:
        table = json.loads(files("dspark_core.training").joinpath("openings.json").read_text(encoding="utf-8"))
        self._words = words
        self._kinds = list(table["openings"].values())
        whole = table["whole_prompts"]
        self._whole_kinds = list(whole["kinds"].values())
        self._slots: dict[str, list[str]] = whole["slots"]
        self._shares = [kind["share"] for kind in self._kinds] + [whole["share"]]

    def draw(self, rng: random.Random) -> Opening:
        """One opening, decided by `rng` alone."""
        (kind,) = rng.choices(range(len(self._shares)), self._shares)
        if kind == len(self._kinds):
            return Opening(self.whole_prompt(rng), whole=True)
        text = rng.choice(self._kinds[kind]["texts"])
        return Opening(text.replace("{word}", rng.choice(self._words)), whole=False)

    def whole_prompt(self, rng: random.Random) -> str:
        """A whole user turn: a pattern whose slots are filled, and theirs, until none is left."""
        (kind,) = rng.choices(self._whole_kinds, [kind["share"] for kind in self._whole_kinds])
        text: str = rng.choice(kind["patterns"])
        before = ""
        while text != before:
            before = text
            text = _SLOT.sub(lambda slot: rng.choice(self._slots[slot[1]]), text)
        return text[:1].upper() + text[1:]

    def could_draw(self, text: str) -> bool:
        """Whether `whole_prompt` can give these words, whatever their case and punctuation."""
        words = plain_words(text)
        patterns = (pattern for kind in self._whole_kinds for pattern in kind["patterns"])
        return any(re.fullmatch(self._expression(pattern), words) for pattern in patterns)

    def _expression(self, pattern: str) -> str:
        """A regular expression of a pattern's plain words."""
        parts = []
        for index, part in enumerate(_SLOT.split(pattern)):
            slot = index % 2  # the parts between are the slots' names
            parts.append(
                "(?:" + "|".join(map(self._expression, self._slots[part])) + ")" if slot else plain_words(part)
            )
        return r"\s*".join(parts)


def common_words(tokenizer: ChatTokenizer) -> list[str]:
    """Words of five letters and more that are one token each: topics without any outside text."""
    tokens = (tokenizer.token_bytes(token).decode("utf-8", "replace") for token in range(tokenizer.vocab_size))
    return sorted({text[1:] for text in tokens if _WORD.fullmatch(text)})


def measured_prompts() -> frozenset[str]:
    """The benchmark's prompts as `plain_words` gives them: never to be trained on."""
    folder = files("dspark_core.bench").joinpath("prompts")
    return frozenset(
        plain_words(turn)
        for file in folder.iterdir()
        if file.name.endswith(".jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
        for turn in json.loads(line)["turns"]
    )


def plain_words(text: str) -> str:
    """Lower-case words with single spaces, so that punctuation hides no repetition."""
    return " ".join(re.findall(r"\w+", text.lower()))
