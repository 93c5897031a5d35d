"""Building blocks of the page: every text goes through `escape`, so nothing from a record can become markup."""

import html

from uncone.records.text import count, number, typeset, visible

SVG = "http://www.w3.org/2000/svg"


def escape(text: object) -> str:
    """`text` made visible and safe in element content and in quoted attributes."""
    return html.escape(visible(str(text)), quote=True)


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """One element around `content`, which is markup already. `class_` and `data_label` become `class`, `data-label`."""
    given = {
        key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None
    }
    opened = "".join(f' {key}="{escape(value)}"' for key, value in given.items())
    return f"<{name}{opened}>{content}</{name}>"


def section(heading: str, content: str, *, uid: str | None = None, class_: str = "block") -> str:
    """A titled part of a subject; `heading` is plain text, `uid` makes it a landmark of that name."""
    return element(
        "section", element("h3", escape(heading), id=uid) + content, class_=class_, aria_labelledby=uid
    )


def shown(value: float, limits: tuple[float | None, float | None] = (None, None)) -> str:
    """A number as the page prints it, escaped."""
    return escape_number(number(value, limits=limits))


def escape_number(text: str) -> str:
    """A printed number typeset and escaped (`<1` holds a character that HTML reserves)."""
    return html.escape(typeset(text), quote=True)


def shown_count(value: int) -> str:
    """A count as the page prints it, escaped."""
    return escape_number(count(value))


def token(text: str) -> str:
    """A token string: verbatim spaces, and isolated so that right-to-left text cannot reorder its neighbours."""
    return f'<bdi class="token">{text}</bdi>'
