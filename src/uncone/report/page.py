"""The frame of a page that stands alone: one file, nothing loaded from elsewhere."""

from functools import cache
from importlib import resources
from urllib.parse import quote

from uncone.report.markup import element, escape

# Nothing but inline styles and the favicon may load, so a string that slipped through could still do nothing.
STILL = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_MARK = (
    '<svg class="mark" viewBox="0 0 24 24" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
    '<circle cx="12" cy="12" r="9.6" fill="none" stroke="#4a7bea" stroke-width="2.4"/>'
    '<path fill="#e8622a" d="M12 12 12.7 2.6A9.4 9.4 0 0 1 20.4 7.7Z"/></svg>'
)


def page(title: str, description: str, body: str, *, policy: str = STILL, script: str = "") -> str:
    """A page that opens from disk.

    Args:
        title: of the window, plain text.
        description: what the page says in one sentence, plain text.
        body: markup.
        policy: the content security policy; one that allows `script` names its hash.
        script: JavaScript to put into the head, none by default.
    """
    icon = "data:image/svg+xml," + quote(_MARK)
    head = (
        '<head>\n<meta charset="utf-8"/>',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        '<meta name="color-scheme" content="light dark"/>',
        '<meta name="generator" content="uncone"/>',
        f'<meta name="description" content="{escape(description)}"/>',
        f'<link rel="icon" href="{escape(icon)}"/>',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_style()}</style>",
        *([f"<script>{script}</script>"] if script else []),
        "</head>",
    )
    joined = "\n".join(head)
    return f'<!DOCTYPE html>\n<html lang="en">\n{joined}\n<body>{body}</body>\n</html>\n'


def masthead(name: str, links: list[tuple[str, str]]) -> str:
    """The top of the page: the mark, a name, and with several parts the links (text, address within the page)
    to them."""
    content = element("span", _MARK + "uncone", class_="brand") + element(
        "span", escape(name), class_="subject-name"
    )
    if len(links) > 1:
        listed = "".join(element("a", escape(text), href=address) for text, address in links)
        content += element("nav", listed, aria_label="Subjects")
    return element("header", content, class_="masthead")


@cache
def _style() -> str:
    return resources.files("uncone.report").joinpath("report.css").read_text(encoding="utf-8")
