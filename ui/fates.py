"""The one visual language of token fates: a colour *and* a mark *and* a line, for both themes, used everywhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FateStyle:
    """How one fate looks.

    Attributes:
        key: the fate's name: a value of `Fate`, or of `NextKind` for the target's own token.
        mark: the sign next to the token, so that colour is never the only carrier.
        light, dark: ink colour in each theme; contrast with the token's tinted ground is at least 4.5 : 1.
        line: CSS ``text-decoration`` of the token's text.
        border: CSS border style of the token's box.
        meaning: one sentence for the legend.
    """

    key: str
    mark: str
    light: str
    dark: str
    line: str
    border: str
    meaning: str


FATES: tuple[FateStyle, ...] = (
    FateStyle(
        "accepted", "✓", "#136c3d", "#6ee7a8", "underline solid", "solid",
        "drafted, verified by the target and kept",
    ),
    FateStyle(
        "rejected", "✗", "#b42338", "#ff9aa8", "line-through solid", "solid",
        "drafted and verified; the first one of its round that failed the acceptance rule",
    ),
    FateStyle(
        "discarded", "⊘", "#5a6472", "#a9b4c2", "line-through solid", "dotted",
        "verified after the rejection (or after the end of the text): wasted work",
    ),
    FateStyle(
        "unverified", "⋯", "#5b5487", "#bdb4ee", "none", "dashed",
        "drafted, but cut by the scheduler: the target never saw it",
    ),
    FateStyle(
        "correction", "↷", "#8a5200", "#f7c76b", "underline dashed", "solid",
        "the target's own token in place of the rejected one",
    ),
    FateStyle(
        "bonus", "★", "#1a56b8", "#8fbcff", "underline double", "solid",
        "the target's own token after a round whose verified drafts were all accepted",
    ),
)  # fmt: skip


def palette_css() -> str:
    """CSS variables and token rules of every fate, for both themes."""
    light = "".join(f"--fate-{fate.key}:{fate.light};" for fate in FATES)
    dark = "".join(f"--fate-{fate.key}:{fate.dark};" for fate in FATES)
    rules = "".join(
        f'.ds-tok[data-fate="{fate.key}"],.ds-mark[data-fate="{fate.key}"]'
        f"{{--fate:var(--fate-{fate.key});border-style:{fate.border}}}"
        f'.ds-tok[data-fate="{fate.key}"] .ds-txt{{text-decoration:{fate.line}}}'
        f'.ds-tok[data-fate="{fate.key}"]::after{{content:"{fate.mark}"}}'
        f'.ds-ribbon[data-hide~="{fate.key}"] .ds-tok[data-fate="{fate.key}"]{{display:none}}'
        for fate in FATES
    )
    return f":root{{{light}}}.dark{{{dark}}}{rules}"


def legend_html() -> str:
    """The legend: one switch for each fate that shows or hides its tokens. Constant markup, no model text."""
    return "".join(
        f'<button type="button" class="ds-key" aria-pressed="true" data-key="{fate.key}" data-mark="{fate.mark}" '
        f'data-tip="{fate.key}: {fate.meaning}. Press to hide or show.">'
        f'<span class="ds-mark" data-fate="{fate.key}" aria-hidden="true">{fate.mark}</span>{fate.key}</button>'
        for fate in FATES
    )
