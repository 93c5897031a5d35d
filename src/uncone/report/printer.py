"""The one way to the terminal: text is made visible, encodable and free of markup before it gets there."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from uncone.records.text import count, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_WIDEST_LINE = 40
_LEAST_WIDTH, _MOST_WIDTH = 20, 10_000


class Printer:
    """The one way to the console, by default the standard output: text is made visible, encodable and free of markup before it gets there."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console

        self.console = console = console or Console(highlight=False, _environ=environment())
        self.is_unicode = console.encoding.lower().startswith("utf")
        self.bars = _BARS if self.is_unicode else _ASCII_BARS

    def text(self, content: str, style: str = "") -> "Text":
        """`content` as it may be printed."""
        from rich.text import Text

        shown = visible(content)
        if not self.is_unicode:
            shown = shown.encode(self.console.encoding, "backslashreplace").decode(self.console.encoding)
        return Text(shown, style=style, overflow="fold")

    def gap(self) -> None:
        """An empty line."""
        self.console.print()

    def line(self, content: str, style: str = "", indent: int = 0) -> None:
        """A paragraph."""
        from rich.padding import Padding

        self.console.print(
            Padding(self.text(content, style), (0, 0, 0, indent), expand=False), highlight=False
        )

    def code(self, content: str) -> None:
        """A line as it is, without breaks of ours: what is copied from a terminal has to stay code."""
        self.console.print(self.text(content), highlight=False, soft_wrap=True)

    def heading(self, strong: str, style: str, rest: str, rest_style: str) -> None:
        """Two texts on one line."""
        content = self.text("")
        content.append_text(self.text(strong, style)).append("  ").append_text(self.text(rest, rest_style))
        self.console.print(content, highlight=False)

    def bullet(self, content: str) -> None:
        """One item of a list."""
        from rich.table import Table

        row = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
        row.add_row(self.text("  -", "dim"), self.text(content, "dim"))
        self.console.print(row)

    def table(
        self,
        columns: Sequence[str],
        to_the_right: Sequence[str],
        rows: Sequence[Sequence[str]],
        styles: Mapping[str, str] | None = None,
    ) -> None:
        """A table without lines; `styles` holds the style of a column, by its heading, or of a cell, by its whole text."""
        from rich.table import Table

        given = {"value": "bold"} | dict(styles or {})
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
        for column in columns:
            table.add_column(
                self.text(column), justify="right" if column in to_the_right else "left", overflow="fold"
            )
        for row in rows:
            cells = zip(columns, row, strict=True)
            table.add_row(
                *(self.text(cell, given.get(cell, given.get(column, ""))) for column, cell in cells)
            )
        self.console.print(table)


def environment() -> dict[str, str]:
    """The environment variables, without a COLUMNS that is no width for lines."""
    kept = dict(os.environ)
    try:
        is_usable = _LEAST_WIDTH <= int(kept.get("COLUMNS", _LEAST_WIDTH)) <= _MOST_WIDTH
    except ValueError:
        is_usable = False
    if not is_usable:
        del kept["COLUMNS"]
    return kept


def whole(value: int) -> str:
    """A whole number as a terminal prints it: 30,522."""
    return count(value, separator=",")


def sparkline(
    values: Sequence[float | None], bars: str = _BARS, limits: tuple[float, float] | None = None
) -> str:
    """The values as one line of bars, lowest to highest; neighbours are averaged to fit 40 characters, gaps stay blank.

    `limits` are the ends of the scale, so that several lines can share one; by default the lowest and the highest bar.
    """
    stride = math.ceil(len(values) / _WIDEST_LINE) if values else 1
    means = [_mean(values[start : start + stride]) for start in range(0, len(values), stride)]
    known = [mean for mean in means if mean is not None]
    if not known:
        return " " * len(means)
    low, high = limits or (min(known), max(known))
    width, top = high - low, len(bars) - 1
    heights = (None if mean is None else round((mean - low) / width * top) if width else 0 for mean in means)
    return "".join(" " if height is None else bars[min(max(height, 0), top)] for height in heights)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
