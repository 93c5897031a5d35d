"""Show a result in the terminal, as one HTML page, as Markdown or in a notebook. Renderers know no records."""

from typing import Any

from uncone import atomic
from uncone.lazy import open_room
from uncone.records.record import Record
from uncone.report.html import to_page
from uncone.report.markdown import markdown_of
from uncone.roles import Path_

__all__ = ["print_record", "to_html", "to_markdown", "write_html", "write_markdown"]


def print_record(record: Record, console: Any = None, *, brief: bool = False) -> None:
    """Print the record to `console` (of rich), by default to standard output. Its text is never read as markup. With
    `brief`, print only the verdict, the findings and what to do."""
    from uncone.report.terminal import print_document  # rich is loaded only by those who print

    document = record.document()
    print_document(document.brief() if brief else document, console)


def to_html(record: Record) -> str:
    """The record as one HTML page that opens from disk. Without JavaScript only the interactive picture is missing."""
    return to_page(record.document())


def to_markdown(record: Record) -> str:
    """The record as Markdown, with tables as GitHub draws them."""
    return markdown_of(record.document())


def write_html(record: Record, path: Path_) -> None:
    """Write `to_html(record)` to `path`, atomically. InputError: the page cannot be written there."""
    atomic.write_text(path, to_html(record))


def write_markdown(record: Record, path: Path_) -> None:
    """Write `to_markdown(record)` to `path`, as `write_html` does."""
    atomic.write_text(path, to_markdown(record))


open_room(__name__)
