"""Look of Gradio's own components: quiet surfaces, fonts that come with Gradio (no font is fetched from anywhere)."""

from __future__ import annotations

import gradio as gr
from gradio.themes.utils import fonts


def playground_theme() -> gr.themes.Base:
    """The theme; `ui/static/page.css` does the rest with the same variables.

    Bold is 700 on purpose: the SemiBold files that Gradio 6.31 ships hold two letters of the Latin alphabet.
    """
    theme: gr.themes.Base = gr.themes.Default(
        primary_hue=gr.themes.colors.indigo,
        secondary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        text_size=gr.themes.sizes.text_md,
        font=[fonts.LocalFont("IBM Plex Sans", weights=(400, 700)), "ui-sans-serif", "system-ui", "sans-serif"],
        font_mono=[fonts.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "Consolas", "monospace"],
    )
    return theme.set(
        body_background_fill="#f5f6f8",
        body_background_fill_dark="#0e1218",
        body_text_color="#1b2430",
        body_text_color_dark="#e7ebf1",
        body_text_color_subdued="#56616f",
        body_text_color_subdued_dark="#a3aebc",
        block_background_fill="#ffffff",
        block_background_fill_dark="#161c25",
        block_border_color="#e2e6ec",
        block_border_color_dark="#28313d",
        border_color_primary="#e2e6ec",
        border_color_primary_dark="#28313d",
        block_label_text_color="#56616f",
        block_label_text_color_dark="#a3aebc",
        block_title_text_color="#56616f",
        block_info_text_color="#56616f",
        block_info_text_color_dark="#a3aebc",
        block_shadow="none",
        block_shadow_dark="none",
        input_background_fill="#ffffff",
        input_background_fill_dark="#10151d",
        input_placeholder_color="#667085",
        input_placeholder_color_dark="#8793a3",
        input_border_color="#cfd6df",
        input_border_color_dark="#36414f",
        button_primary_background_fill="#4338ca",
        button_primary_background_fill_hover="#3730a3",
        button_primary_background_fill_dark="#5b54e8",
        button_primary_background_fill_hover_dark="#655fe9",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
        button_cancel_background_fill="#c81e1e",
        button_cancel_background_fill_hover="#a61919",
        button_secondary_background_fill="#eef0f4",
        button_secondary_background_fill_hover="#e2e6ec",
        button_secondary_background_fill_dark="#222b37",
        button_secondary_background_fill_hover_dark="#2c3745",
        button_secondary_text_color="#1b2430",
        button_secondary_text_color_dark="#e7ebf1",
        slider_color="#4338ca",
        slider_color_dark="#8b85ff",
    )
