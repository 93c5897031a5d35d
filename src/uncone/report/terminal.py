"""A document in a terminal: visible, encodable and free of markup."""

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

from uncone.errors import expect, needed
from uncone.records.blocks import Block, Bullets, Cell, Code, Document, Figure, Folded, Heading, Table
from uncone.records.blocks import Text as Paragraph
from uncone.records.text import visible
from uncone.report.spark import ASCII_BARS, BARS, NARROWEST, WIDEST, spark_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_LEAST_WIDTH, _MOST_WIDTH = 20, 10_000
_STYLES = {"severe": "bold red", "warning": "bold yellow", "note": "bold blue", "healthy": "bold green"}
_STYLES |= {"structure": "bold cyan", "no_effect": "bold dim", "strong": "bold", "caution": "yellow"}
_STYLES |= {"better": "green", "worse": "red", "lead": "dim", "little": "dim", "quiet": "dim"}


def print_document(document: Document, console: "Console | None" = None) -> None:
    """Print to `console`, by default to standard output. Text such as `[red]` is printed as it is."""
    _Printer(console).blocks(document.blocks)


def redraw(documents: Iterable[Document]) -> None:
    """Show each document in place of the last, on a separate screen that closes at the end or at Ctrl-C. InputError:
    standard output is not a terminal."""
    rich = needed("rich.console", "printing a result needs rich, got none: pip install rich")
    from rich.text import Text

    console = rich.Console(highlight=False, _environ=environment())
    expect(console.is_terminal, "a terminal to redraw, got a file or a pipe: leave the option out")
    with console.screen(hide_cursor=True) as screen, suppress(KeyboardInterrupt):
        for document in documents:
            with console.capture() as captured:
                print_document(document, console)
            lines = captured.get().splitlines()[: console.height - 1]
            screen.update(Text.from_ansi("\n".join(lines), no_wrap=True))


def environment() -> dict[str, str]:
    """The environment, without a COLUMNS that is not a usable width."""
    kept = dict(os.environ)
    with suppress(ValueError):
        if _LEAST_WIDTH <= int(kept.get("COLUMNS", _LEAST_WIDTH)) <= _MOST_WIDTH:
            return kept
    del kept["COLUMNS"]
    return kept


class _Printer:
    """All printing goes through this. `indent` is for the paragraphs of a card."""

    def __init__(self, console: "Console | None") -> None:
        rich = needed("rich.console", "printing a result needs rich, got none: pip install rich")
        self.console = console or rich.Console(highlight=False, _environ=environment())
        self.print = partial(self.console.print, highlight=False)
        self.is_unicode = self.console.encoding.lower().startswith("utf")
        self.indent = 0

    def blocks(self, blocks: Iterable[Block]) -> None:
        before: Block | None = None
        for block in blocks:
            if isinstance(block, Table) and not (isinstance(before, Heading) and before.level > 1):
                self.print()
            before = before if isinstance(block, Folded) else block
            match block:
                case Heading():
                    self.heading(block)
                case Paragraph():
                    self.line(block.text, _STYLES.get(block.tone, ""))
                case Bullets():
                    self.bullets(block)
                case Table():
                    self.table(block)
                case Code():
                    for line in block.text.rstrip("\n").splitlines():  # to be copied, so without added line breaks
                        self.print(self.text(line), soft_wrap=True)
                case Figure():
                    self.figure(block)
                case Folded():
                    self.blocks(block.blocks if block.in_terminal else ())

    def text(self, content: str, style: str = "") -> "Text":
        from rich.text import Text

        shown = visible(content)
        if not self.is_unicode:
            encoding = self.console.encoding
            shown = shown.replace("±", "+-").encode(encoding, "backslashreplace").decode(encoding)
        return Text(shown, style=style, overflow="fold")

    def line(self, content: str, style: str = "") -> None:
        from rich.padding import Padding

        self.print(Padding(self.text(content, style), (0, 0, 0, self.indent), expand=False))

    def heading(self, block: Heading) -> None:
        if block.level > 1:
            self.print()
        content = self.text(block.label, _STYLES.get(block.tone, ""))
        content.append("  " if block.label and block.text else "")
        content.append_text(self.text(block.text, "bold underline" if block.level == 2 else "bold"))
        content.append_text(self.text(f"  {block.about}" if block.about else ""))
        self.print(content)
        self.indent = 2 if block.level == 4 else 0

    def bullets(self, block: Bullets) -> None:
        from rich.table import Table as Grid

        for item in block.items:
            row = Grid.grid(padding=(0, 1, 0, 0), pad_edge=False)
            row.add_row(self.text("  -", "dim"), self.text(item, "dim"))
            self.print(row)

    def table(self, block: Table) -> None:
        from rich.table import Table as Grid

        self.indent = 0
        if block.title:
            self.line(block.title, "bold")
        grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
        for column in block.columns:
            side: Literal["left", "right"] = "right" if column in block.numbers else "left"
            grid.add_column(self.text(column), justify=side, overflow="fold")
        for title, rows in block.runs():
            if title:
                grid.add_row(self.text(title, "dim"))
            for row in rows:
                grid.add_row(*map(self.cell, row))
        self.print(grid)

    def cell(self, cell: str | Cell) -> "Text":
        if isinstance(cell, str):
            return self.text(cell)
        content = self.text(cell.text, _STYLES.get(cell.tone, ""))
        return content.append("\n").append_text(self.text(cell.note, "dim")) if cell.note else content

    def figure(self, block: Figure) -> None:
        bars = BARS if self.is_unicode else ASCII_BARS
        widest, lines = WIDEST, spark_lines(block, bars)
        while widest > NARROWEST and max(map(len, lines), default=0) > self.console.width:  # short rather than broken
            widest -= 4
            lines = spark_lines(block, bars, widest)
        if lines and block.spark:
            self.indent = 0
            self.print()
            self.line(block.spark, "bold")
            for line in lines:
                self.line(line)
