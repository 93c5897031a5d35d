"""A result to read: in the terminal, as one HTML page, as Markdown, in a notebook. Renderers know no record."""

from typing import Any

from uncone import atomic
from uncone.lazy import open_room
from uncone.records.record import Record
from uncone.report.html import to_page
from uncone.report.markdown import markdown_of
from uncone.roles import Path_

__all__ = ["print_record", "to_html", "to_markdown", "write_html", "write_markdown"]


def print_record(record: Record, console: Any = None, *, brief: bool = False) -> None:
    """Print the record to `console` (one of rich), by default the standard output; its text is never markup. With `brief`
    print the verdict, the findings and what to do alone."""
    from uncone.report.terminal import print_document  # rich is loaded only by those who print

    document = record.document()
    print_document(document.brief() if brief else document, console)


def to_html(record: Record) -> str:
    """The record as one HTML page that opens from disk. Without JavaScript only the picture to explore is missing."""
    return to_page(record.document())


def to_markdown(record: Record) -> str:
    """The record as Markdown, with tables as GitHub draws them."""
    return markdown_of(record.document())


def write_html(record: Record, path: Path_) -> None:
    """Write `to_html(record)` to `path`, atomically. InputError: it cannot be written there."""
    atomic.write_text(path, to_html(record))


def write_markdown(record: Record, path: Path_) -> None:
    """Write `to_markdown(record)`; as `write_html`."""
    atomic.write_text(path, to_markdown(record))


open_room(__name__)
