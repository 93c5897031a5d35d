"""Building blocks of the page: every text goes through `escape`, so nothing from a record can become markup."""

import html

from uncone.report.text import count, number, typeset, visible


def escape(text: object) -> str:
    """`text` made visible and safe in element content and in quoted attributes."""
    return html.escape(visible(str(text)), quote=True)


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """One element around `content`, which is markup already. `class_` and `data_label` become `class`, `data-label`."""
    opened = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{opened}>{content}</{name}>"


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
