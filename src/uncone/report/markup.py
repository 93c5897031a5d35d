"""Building blocks of the page. `escape` keeps the text of a record from becoming markup."""

import html
from functools import cache
from importlib import resources

from uncone.records.text import typeset, visible

SVG = "http://www.w3.org/2000/svg"


@cache
def beside(name: str) -> str:
    return resources.files("uncone.report").joinpath(name).read_text(encoding="utf-8")


def escape(text: object) -> str:
    """Visible, and safe in element content and quoted attributes."""
    return html.escape(visible(str(text)), quote=True)


def typeset_text(text: str) -> str:
    """Escaped, with its numbers typeset."""
    return html.escape(typeset(visible(text)), quote=True)


def tag(name: str, content: str = "", css: str | None = None, /, **attributes: object) -> str:
    """An element of class `css`; `class_` is `class`, `data_label` `data-label`; floats get one decimal."""
    opened = name
    for key, value in {"class": css, **attributes}.items():
        if value is not None:
            shown = f"{value:.1f}" if isinstance(value, float) else escape(value)
            opened += f' {key.rstrip("_").replace("_", "-")}="{shown}"'
    return f"<{opened}>{content}</{name}>"


def path(css: str, d: str, tip: str = "") -> str:
    return tag("path", tag("title", tip) if tip else "", css, d=d)
