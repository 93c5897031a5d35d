"""What a terminal shows of a record."""

import io

from rich.console import Console

from uncone import report
from uncone.records.blocks import Document
from uncone.report.terminal import print_document


def printed(shown: report.Shown | Document, width: int = 80, encoding: str = "utf-8", *, colour: bool = False) -> str:
    """The lines of a record or a document in a terminal of this width and encoding."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    console = Console(file=stream, width=width, force_terminal=colour, color_system="standard" if colour else None)
    (print_document if isinstance(shown, Document) else report.print_record)(shown, console)
    return raw.getvalue().decode(encoding)
