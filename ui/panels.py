"""Custom panels: constant markup that scripts fill. The only value that ever changes is a feed's JSON string.

`gr.HTML` evaluates its rendered template as a JavaScript template literal. Hence the templates here never contain a
value, and the scripts (`ui/static`) put every text into the document as text.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from ui.fates import legend_html, palette_css

STATIC = Path(__file__).parent / "static"
_INBOX = "const page = (window.dsparkPage ??= {inbox: []});"


def panel_markup(name: str) -> str:
    """The constant markup of a panel."""
    return (STATIC / f"{name}.html").read_text(encoding="utf-8").replace("<!--legend-->", legend_html())


def panel(name: str, *, elem_id: str) -> gr.HTML:
    """A panel with the markup of ``ui/static/<name>.html``; its script is told when it is in the document.

    Its button with ``data-press`` triggers the component's click event.
    """
    markup = panel_markup(name)
    if "${" in markup or "{{" in markup or "`" in markup or "\\" in markup:
        raise AssertionError(f"{name}.html must be constant: Gradio evaluates templates.")
    return gr.HTML(
        html_template=markup,
        js_on_load=f"{_INBOX} page.inbox.push(['mount', '{name}', element, (data) => trigger('click', data)]);",
        apply_default_css=False,
        elem_id=elem_id,
        elem_classes=["ds-panel"],
    )


def feed(name: str) -> gr.HTML:
    """An invisible component whose value, a JSON string, goes to the page's store.

    So does the value that it has when it is mounted: a message may be quicker than the mounting, and is not sent again.
    """
    tell = "page.inbox.push(['feed', props.value])"
    return gr.HTML(
        html_template="",
        js_on_load=f"{_INBOX} {tell}; watch('value', () => {tell});",
        apply_default_css=False,
        elem_id=f"ds-feed-{name}",
        elem_classes=["ds-feed"],
    )


def port(name: str) -> gr.HTML:
    """An invisible component through which a script sends text: the page's store gets ``send`` under this name.

    Sending triggers the component's submit event, with the text as its value.
    """
    send = "(text) => { props.value = text; trigger('submit'); }"
    return gr.HTML(
        html_template="",
        js_on_load=f"{_INBOX} page.inbox.push(['port', '{name}', {send}]);",
        apply_default_css=False,
        elem_id=f"ds-port-{name}",
        elem_classes=["ds-feed"],
    )


def page_css() -> str:
    """All of the page's own style: what is common, then each tab's."""
    own = sorted(path for path in STATIC.glob("*.css") if path.name != "page.css")
    return palette_css() + "".join(path.read_text(encoding="utf-8") for path in (STATIC / "page.css", *own))


def locale_module() -> str:
    """The module of Gradio's frontend that exports ``changeLocale``, as the page names it; '' where there is none."""
    assets = Path(gr.__file__).parent / "templates" / "frontend" / "assets"
    names = (path.name for path in assets.glob("core-*.js") if "as changeLocale" in path.read_text(encoding="utf-8"))
    return next((f"assets/{name}" for name in names), "")


def page_head() -> str:
    """Scripts of the page: plotly.js from the installed package, our modules from this one; nothing from elsewhere."""
    return (
        '<meta name="color-scheme" content="light dark">'
        f'<meta name="dspark-locale-module" content="{locale_module()}">'
        '<script type="module" src="dspark/static/words.js"></script>'
        '<script type="module" src="dspark/static/main.js"></script>'
        '<script src="dspark/plotly/plotly.min.js"></script>'
    )
