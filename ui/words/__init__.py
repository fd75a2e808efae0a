"""Words for the screen: English in the code, other languages in ``zh/*.json`` as {English: other}, a file for each tab.

Three ways lead a text to the screen. Each begins with the English text as a literal, so that a test finds them all and
fails where one has no entry, or an entry is used nowhere:

- `say("English")`: a text of one of Gradio's components (label, info, placeholder, title, value of a button, choice);
- ``t("English {n}", {n})`` of ``ui/static/words.js``: a text that a script writes, at the moment of writing; and
  ``later("English")`` for one that is kept and goes through ``t`` when it is written. ``"{n} {n:token|tokens}"`` has
  the word for n; other languages take what they need of it;
- text, ``aria-label``, ``data-tip``, ``title`` and ``placeholder`` in a panel's markup (``ui/static/*.html``): as it
  stands there, white space folded; each text between two tags is one entry. ``translate="no"`` leaves an element out.

What the server makes while it runs (errors, reasons) and what the model writes stay as they are.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import gradio as gr

_HERE = Path(__file__).parent
LANGUAGES = ("en", *sorted(path.parent.name for path in _HERE.glob("*/chat.json")))


@lru_cache
def dictionary(language: str = "zh") -> dict[str, str]:
    """All entries of a language: one file for each tab. Raises ValueError where two files disagree."""
    words: dict[str, str] = {}
    for path in sorted((_HERE / language).glob("*.json")):
        for english, other in json.loads(path.read_text(encoding="utf-8")).items():
            if words.setdefault(english, other) != other:
                raise ValueError(f"{path.name} translates {english!r} otherwise than a file before it.")
    return words


def key_of(english: str) -> str:
    """The name of a text in Gradio's dictionaries.

    Not the text itself: Gradio reads a marker up to its first closing brace, and looks up whatever a component first
    shows, so that the policy called "threshold" would become a Chinese one.
    """
    return "ds" + sha256(english.encode()).hexdigest()[:12]


def translations() -> gr.I18n:
    """The dictionaries for `Blocks.launch`; ``words.js`` reads them too."""
    words = dictionary()
    return gr.I18n(
        en={key_of(english): english for english in words},
        zh={key_of(english): other for english, other in words.items()},
    )


def say(english: str) -> str:
    """A component's text that the browser shows in the visitor's language; a text without an entry stays English."""
    return str(gr.I18n()(key_of(english))) if english in dictionary() else english
