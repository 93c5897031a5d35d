"""Building blocks of the page: every text goes through `escape`, so nothing from a record can become
markup."""

import html

from uncone.records.text import Limits, count, number, typeset, visible

SVG = "http://www.w3.org/2000/svg"


def escape(text: object) -> str:
    """`text` made visible and safe in element content and in quoted attributes."""
    return html.escape(visible(str(text)), quote=True)


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """One element around `content`, which is markup already. `class_` and `data_label` become `class`,
    `data-label`."""
    given = {
        key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None
    }
    opened = "".join(f' {key}="{escape(value)}"' for key, value in given.items())
    return f"<{name}{opened}>{content}</{name}>"


def typeset_text(text: str) -> str:
    """A text of ours or of the record, made visible, with its numbers typeset, escaped."""
    return html.escape(typeset(visible(text)), quote=True)


def shown(value: float, limits: Limits = (None, None)) -> str:
    """A number as the page prints it, escaped."""
    return typeset_text(number(value, limits=limits))


def shown_count(value: int) -> str:
    """A count as the page prints it, escaped."""
    return typeset_text(count(value))


def token(text: str) -> str:
    """A token string: verbatim spaces, and isolated so that right-to-left text cannot reorder its
    neighbours."""
    return f'<bdi class="token">{escape(text)}</bdi>'
