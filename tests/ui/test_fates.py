"""The visual language: nothing depends on colour alone, and every colour can be read in both themes."""

import pytest

from dspark_core.events import Fate
from ui.fates import FATES, legend_html, palette_css

PANELS = {"light": "#ffffff", "dark": "#161c25"}
TINTS = {"light": 0.09, "dark": 0.14}  # --ds-tint of ui/static/page.css


def channels(colour):
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def luminance(rgb):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_every_fate_of_the_engine_has_a_style():
    assert [style.key for style in FATES] == [*(fate.value for fate in Fate), "correction", "bonus"]


def test_marks_and_looks_differ_without_colour():
    assert len({style.mark for style in FATES}) == len(FATES)
    assert len({(style.line, style.border) for style in FATES}) >= 5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("style", FATES, ids=lambda style: style.key)
def test_ink_on_its_tinted_ground_reaches_aa(style, theme):
    ink, panel = channels(getattr(style, theme)), channels(PANELS[theme])
    ground = [i * TINTS[theme] + p * (1 - TINTS[theme]) for i, p in zip(ink, panel, strict=True)]
    assert contrast(ink, ground) >= 4.5


def test_one_source_writes_the_style_and_the_legend():
    css, legend = palette_css(), legend_html()
    for style in FATES:
        assert f"--fate-{style.key}:{style.light}" in css
        assert f"--fate-{style.key}:{style.dark}" in css
        assert style.mark in legend
        assert style.meaning in legend
