"""A document as Markdown, with tables as GitHub draws them; no text from a record can become markup."""

import re
from collections.abc import Iterable

from uncone.records.blocks import Block, Bullets, Cell, Code, Document, Figure, Folded, Heading, Table, Text
from uncone.records.text import COMMAND, visible
from uncone.report.spark import spark_lines

_MARKUP = re.compile(r"[\\`*_\[\]<>|#~$&!]")
_START = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$)")


def markdown_of(document: Document) -> str:
    """The picture of the rows and the headline numbers are left to the page."""
    return _joined((*document.blocks, *document.footer)) + "\n"


def _joined(blocks: Iterable[Block]) -> str:
    return "\n\n".join(part for block in blocks if (part := _block(block)))


def _text(text: str) -> str:
    return _START.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", visible(text)))


def _prose(text: str) -> str:
    parts = enumerate(COMMAND.split(visible(text)))
    return "".join(f"`{part}`" if i % 2 else _text(part) for i, part in parts)


def _block(block: Block) -> str:
    match block:
        case Heading():
            label = f"**{_text(block.label)}** " if block.label else ""
            about = f"\n\n{_text(block.about)}" if block.about else ""
            return f"{'#' * block.level} {label}{_prose(block.text)}".rstrip() + about
        case Text():
            return _prose(block.text)
        case Bullets():
            return "\n".join(f"- {_text(item)}" for item in block.items)
        case Table():
            return _table(block)
        case Code():
            return _fenced(block.text.rstrip("\n"))
        case Figure():
            lines = "\n".join(spark_lines(block))
            return f"**{_text(block.spark or block.title)}**\n\n{_fenced(lines)}" if lines else ""
        case Folded(in_terminal=True):
            return _joined(block.blocks)
        case Folded():
            return f"<details><summary>{_text(block.title)}</summary>\n\n{_joined(block.blocks)}\n\n</details>"
        case _:
            return ""


def _table(table: Table) -> str:
    rule = "|" + "|".join("---:" if column in table.numbers else "---" for column in table.columns) + "|"
    blank = ("",) * (len(table.columns) - 1)
    rows = [row for title, run in table.runs() for row in ([(title, *blank)] if title else []) + [*run]]
    head, *lines = (f"| {' | '.join(map(_cell, cells))} |" for cells in (table.columns, *rows))
    title = f"**{_text(table.title)}**\n\n" if table.title else ""
    return title + "\n".join((head, rule, *lines))


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return _text(cell)
    text = _text(cell.text)
    text = f"**{text}**" if cell.tone == "strong" and text.strip() else text
    return f"{text}<br>{_text(cell.note)}" if cell.note else text


def _fenced(text: str) -> str:
    """Code in a fence longer than any run of backticks in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    lines = "\n".join(map(visible, text.split("\n")))
    return f"{fence}text\n{lines}\n{fence}"
