"""Every text that the page shows has its Chinese, and every entry is shown somewhere."""

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import ui
from dspark_core.params import PRESETS
from ui.panels import STATIC, locale_module, panel_markup
from ui.recorded import SHIPPED
from ui.tabs import page_tabs
from ui.words import dictionary, key_of, say, translations

UI = Path(ui.__file__).parent
ZH = UI / "words" / "zh"
SPOKEN = ("label", "info", "placeholder", "title")  # what Gradio shows of a component, beside its first argument
ATTRIBUTES = ("aria-label", "data-tip", "title", "placeholder", "data-title")  # the last one goes through t()
VOID = {"input", "br", "hr", "img", "meta", "link"}


class Panel(HTMLParser):
    """Texts of a panel's markup, as ``translate`` of words.js finds them."""

    def __init__(self):
        super().__init__()
        self.texts, self._skipping = set(), 0

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if (self._skipping or attrs.get("translate") == "no") and tag not in VOID:
            self._skipping += 1
        if not self._skipping:
            self._add(*(attrs.get(name) or "" for name in ATTRIBUTES))

    def handle_endtag(self, tag):
        if tag not in VOID:
            self._skipping = max(0, self._skipping - 1)

    def handle_data(self, data):
        if not self._skipping:
            self._add(data)

    def _add(self, *texts):
        self.texts |= {" ".join(text.split()) for text in texts if re.search("[A-Za-z]", text)}


def texts_of_panels():
    found = set()
    for path in STATIC.glob("*.html"):
        parser = Panel()
        parser.feed(panel_markup(path.stem))
        found |= parser.texts
    return found


def texts_of_scripts():
    literal = re.compile(r'(?<![\w.$])(?:t|later)\(\s*("(?:[^"\\]|\\.)*")')
    return {
        json.loads(text) for path in STATIC.glob("*.js") for text in literal.findall(path.read_text(encoding="utf-8"))
    }


def trees():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in UI.rglob("*.py")}


def called(node, name):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def texts_of_components():
    said = {
        node.args[0].value
        for tree in trees().values()
        for node in ast.walk(tree)
        if called(node, "say") and isinstance(node.args[0], ast.Constant)
    }
    return said | {tab.title for tab in page_tabs()} | {preset.name for preset in PRESETS} | set(SHIPPED.values())


def shown():
    return texts_of_panels() | texts_of_scripts() | texts_of_components()


def test_every_text_of_the_page_has_its_chinese():
    assert sorted(shown() - set(dictionary())) == []


def test_every_entry_is_a_text_of_the_page():
    assert sorted(set(dictionary()) - shown()) == []


def test_values_keep_their_names_and_no_translation_is_empty():
    name = re.compile(r"\{\w+\}")
    for english, chinese in dictionary().items():
        assert chinese.strip(), english
        assert sorted(name.findall(english)) == sorted(name.findall(chinese)), english


def test_components_say_no_text_of_their_own():
    bare = [
        f"{path.name}:{node.lineno}: {word.value.value}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(getattr(node.func, "value", None), "id", "") == "gr"
        if not any(word.arg == "visible" and getattr(word.value, "value", "") == "hidden" for word in node.keywords)
        for word in node.keywords
        if word.arg in SPOKEN and isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
        if re.search("[A-Za-z]", word.value.value) and node.func.attr != "Blocks"
    ]
    assert bare == []


def test_scripts_say_literals_so_that_they_can_be_found():
    for path in STATIC.glob("*.js"):
        for template in re.findall(r"(?<![\w.$])(?:t|later)\(\s*`[^`]*", path.read_text(encoding="utf-8")):
            pytest.fail(f"{path.name}: {template}")


def test_files_are_in_order_and_agree():
    for path in ZH.glob("*.json"):
        pairs = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=list)
        assert len({english for english, _ in pairs}) == len(pairs), f"{path.name} has an entry twice"
    assert dictionary()


def test_markers_are_what_gradio_reads_whatever_the_text_holds():
    known = next(english for english in dictionary() if "{" in english)
    marker = say(known)
    assert marker.count("}") == 1  # Gradio's frontend ends the marker at the first one
    assert json.loads(marker.removeprefix("__i18n__"))["key"] == key_of(known)
    assert say("no such text") == "no such text"


def test_no_value_of_a_component_is_a_key():
    told = translations().translations_dict
    assert set(told) == {"en", "zh"}
    assert set(told["en"]) == set(told["zh"])
    assert len(set(told["en"])) == len(dictionary())
    assert not set(told["zh"]) & set(dictionary())


def test_gradios_frontend_has_a_language_switch():
    assert locale_module().startswith("assets/core-")


# Counts that are never 1 where these are said.
NEVER_ONE = {
    "{n} answers share the engine", "the first {n} tokens together", "{n} texts of each drawn",
    "prompt {n} tokens in {s} s", "Show {n} of {all} earlier rounds", "{s} of {end} seconds",
    "Nothing to compare: {n} texts, and all fall into one cell. Take more texts, another prompt or a "
    "higher temperature.",
    "Figures over {n} repeats in rotating order: the median, and lowest to highest. The seed is the same in all, so "
    "the spread is the machine's. Replayed is each lane's middle run.",
}  # fmt: skip


def test_a_count_is_said_with_its_own_word():
    count = re.compile(
        r"\{\w+\} (?:earlier |other |verified |virtual )?(?:answers?|cells|combinations|drafts|ones|others|outcomes"
        r"|prompts|repeats|rounds|seconds|settings|texts|tokens|tries|users)\b(?!/s| a second| a request| a round)"
    )
    constant = re.compile(r"A pass over \{tokens\} tokens|In all \{rounds\} rounds:")
    wrong = [
        english for english in dictionary() if count.search(constant.sub("", english)) and english not in NEVER_ONE
    ]
    assert wrong == []


def test_a_word_that_hangs_on_a_count_has_a_singular_and_a_plural():
    chosen = re.compile(r"\{(\w+):([^{}|]+)\|([^{}|]+)\}")
    found = [(english, *parts) for english in dictionary() for parts in chosen.findall(english)]
    assert len(found) > 20
    for english, name, one, many in found:
        assert one != many
        assert f"{{{name}}}" in english, english
    assert [other for other in dictionary().values() if chosen.search(other) or "{n:" in other] == []
