"""Gradio's own texts can be read in both themes."""

from __future__ import annotations

import pytest

from tests.ui.test_fates import channels, contrast
from ui.theme import playground_theme

PAIRS = [
    ("body_text_color", "body_background_fill"),
    ("body_text_color_subdued", "body_background_fill"),
    ("body_text_color_subdued", "block_background_fill"),
    ("block_title_text_color", "block_background_fill"),
    ("block_info_text_color", "block_background_fill"),
    ("input_placeholder_color", "input_background_fill"),
    ("button_primary_text_color", "button_primary_background_fill"),
    ("button_primary_text_color", "button_primary_background_fill_hover"),
    ("button_secondary_text_color", "button_secondary_background_fill"),
    ("button_secondary_text_color", "button_secondary_background_fill_hover"),
    ("button_cancel_text_color", "button_cancel_background_fill"),
    ("button_cancel_text_color", "button_cancel_background_fill_hover"),
]


def colour(theme, name):
    """The colour behind a variable of the theme; a star points to another variable."""
    value = getattr(theme, name)
    if not value.startswith("*"):
        return {"white": "#ffffff"}.get(value, value)
    pointed = value[1:]
    dark = f"{pointed}_dark"
    return colour(theme, dark if name.endswith("_dark") and hasattr(theme, dark) else pointed)


@pytest.mark.parametrize("suffix", ["", "_dark"], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS, ids=lambda name: name)
def test_every_text_on_its_ground_reaches_aa(ink, ground, suffix):
    theme = playground_theme()
    texts = [channels(colour(theme, name + suffix)) for name in (ink, ground)]
    assert contrast(*texts) >= 4.5
