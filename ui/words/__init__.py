"""Words for the screen: English in the code, other languages in ``zh/*.json`` as {English: other}."""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr

_HERE = Path(__file__).parent


def dictionary(language: str = "zh") -> dict[str, str]:
    """All entries of a language: one file for each tab. Raises ValueError where two files disagree."""
    words: dict[str, str] = {}
    for path in sorted((_HERE / language).glob("*.json")):
        for english, other in json.loads(path.read_text(encoding="utf-8")).items():
            if words.setdefault(english, other) != other:
                raise ValueError(f"{path.name} translates {english!r} otherwise than a file before it.")
    return words


def translations() -> gr.I18n:
    """What Gradio translates labels with; English is its own key."""
    words = dictionary()
    return gr.I18n(en={english: english for english in words}, zh=words)


def say(english: str) -> str:
    """A component's text that the browser shows in the visitor's language."""
    return str(gr.I18n()(english))
