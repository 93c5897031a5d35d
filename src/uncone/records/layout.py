"""How records put blocks together. Empty blocks are left out."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Literal

from uncone.records.blocks import Block, Blocks, Figure, Folded, Heading, Intervals, Row, Table, Text

SMALLEST_DRAWN, LARGEST_DRAWN = 1e-290, 1e290  # beyond these, sums and quotients leave the range of a float


def shown(*blocks: Block | Iterable[Block]) -> Blocks:
    """The blocks, alone or in groups, without the empty blocks (no text, rows or charts)."""
    flat = chain.from_iterable((block,) if isinstance(block, Block) else block for block in blocks)
    content = ("text", "items", "rows", "gauges", "charts", "blocks")
    return tuple(b for b in flat if isinstance(b, Heading) or any(getattr(b, name, ()) for name in content))


def section(title: str, *blocks: Block | Iterable[Block], level: Literal[2, 3] = 3) -> Blocks:
    kept = shown(*blocks)
    return (Heading(title, level), *kept) if kept else ()


def folded(blocks: Blocks) -> Blocks:
    heading = blocks[0] if blocks else None
    return (Folded(heading.text, blocks, in_terminal=True),) if isinstance(heading, Heading) else blocks


def beneath(title: str, blocks: Iterable[Block]) -> Iterable[Block]:
    """The blocks of a record as a part of another record, starting with its verdict."""
    for block in blocks:
        if isinstance(block, Heading) and block.level == 1:
            yield from (Heading(title, 3), Text(block.text, "lead"))
        else:
            yield replace(block, level=3) if isinstance(block, Heading) else block


def numbers(columns: tuple[str, ...], rows: Iterable[Row]) -> Table:
    """A table of numbers, except for its first column."""
    return Table(columns, tuple(rows), columns[1:])


def caution(text: str) -> Text:
    return Text(f"Caution: {text}" if text else "")


def named(blocks: Iterable[Block], prefix: str) -> Iterable[Block]:
    """The blocks, with `prefix` before the names of their charts, which must differ between matrices."""
    for block in blocks:
        if prefix and isinstance(block, Figure):
            block = replace(block, charts=tuple(replace(c, name=f"{prefix} {c.name}") for c in block.charts))
        yield block


def moved(
    title: str, x_label: str, rows: Iterable[tuple[str, float, float]], caption: str, origin: float = 0.0
) -> Figure:
    """The chart `changes` of rows (name, before, after): a line from each `before` to a dot at `after`."""
    there = (row for row in rows if max(map(abs, row[1:])) < LARGEST_DRAWN)
    drawn = tuple((name, after, min(before, after), max(before, after)) for name, before, after in there)
    return Figure(title, (Intervals("changes", title, x_label, drawn, origin, caption),) if drawn else ())
