"""Show a result in the terminal, as one HTML page, as Markdown or in a notebook. Renderers know no records."""

import dataclasses
import re
from typing import Any, Protocol, runtime_checkable

from uncone import atomic
from uncone.errors import expect
from uncone.lazy import open_room
from uncone.records.blocks import Blocks, Document
from uncone.records.record import Record
from uncone.report.html import to_page
from uncone.report.markdown import markdown_of
from uncone.roles import Path_

__all__ = ["print_record", "to_html", "to_markdown", "write_html", "write_markdown"]


@runtime_checkable
class Shown(Protocol):
    """A record, or what a public function returns of one, as `rank_curve` does."""

    def blocks(self) -> Blocks: ...


def print_record(record: Shown, console: Any = None, *, brief: bool = False) -> None:
    """Print the record to `console` (of rich), by default to standard output. Its text is never read as markup. With
    `brief`, print only the verdict, the findings and what to do."""
    from uncone.report.terminal import print_document  # rich is loaded only by those who print

    document = _document_of(record)
    print_document(document.brief() if brief else document, console)


def to_html(record: Shown) -> str:
    """The record as one HTML page that opens from disk. Without JavaScript only the interactive picture is missing."""
    return to_page(_document_of(record))


def to_markdown(record: Shown) -> str:
    """The record as Markdown, with tables as GitHub draws them."""
    return markdown_of(_document_of(record))


def write_html(record: Shown, path: Path_) -> None:
    """Write `to_html(record)` to `path`, atomically. InputError: the page cannot be written there."""
    atomic.write_text(path, to_html(record))


def write_markdown(record: Shown, path: Path_) -> None:
    """Write `to_markdown(record)` to `path`, as `write_html` does."""
    atomic.write_text(path, to_markdown(record))


def _document_of(record: Shown) -> Document:
    if isinstance(record, Record):
        return record.document()
    kind = type(record).__name__
    can = dataclasses.is_dataclass(record) and not isinstance(record, type) and hasattr(record, "blocks")
    expect(can, f"a record, or a part of one that has blocks, got {kind}: print() shows its fields")
    return Document("", re.sub(r"(?<!^)([A-Z])", r" \1", kind).lower(), record.blocks())


open_room(__name__)
