"""Write the tables of fields in the documents from the records: `python docs/fields.py`.

The meaning of a field is the comment beside it, or above it where it is longer.
"""

import ast
import dataclasses
import inspect
import re
import types
import typing
from pathlib import Path
from typing import Any

from tests.every_part import BY_NAME

PAGES = sorted(Path(__file__).parent.glob("*.md"))
SECTION = re.compile(r"^### `(\w+)`\n.*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_ROWS = re.compile(r"^\| field \| type \| meaning \|\n\|---\|---\|---\|\n(?:^\| `.*\|\n)+", re.MULTILINE)
_WORDS = {str: "string", float: "number", int: "integer", bool: "boolean", object: "object", Any: "any"}


def meanings(cls: type) -> dict[str, str]:
    """The comment of each field."""
    lines = inspect.getsource(cls).split("\n")
    fields = [node for node in ast.parse("\n".join(lines)).body[0].body if isinstance(node, ast.AnnAssign)]  # type: ignore[attr-defined]
    found = {}
    for node in fields:
        beside = lines[node.end_lineno - 1][node.end_col_offset :].strip()
        above, at = list[str](), node.lineno - 2
        while not beside and lines[at].strip().startswith("#"):
            above, at = [lines[at].strip(), *above], at - 1
        found[node.target.id] = " ".join(line.lstrip("# ") for line in ([beside] if beside else above))
    return found


def words(kind: Any) -> str:
    """A type in words, as JSON has it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        some = [words(one) for one in inner if one is not type(None)]
        return " or ".join(some).removesuffix("?") + "?" * (type(None) in inner)
    if origin is typing.Literal:
        return "string"
    if origin is tuple:
        many = _several(words(inner[0]))
        return f"list of {many}" if inner[-1] is Ellipsis else f"{len(inner)} {many.removesuffix('?')}"
    if origin is not None:
        value = words(inner[1]) if len(inner) > 1 else "any"
        return "object" if value.startswith(("any", "object", "list")) else f"object of {_several(value)}"
    return _WORDS.get(kind) or f"`{kind.__name__}`"


def _several(one: str) -> str:
    """The plural; a class stays as it is."""
    optional, one = "?" * one.endswith("?"), one.removesuffix("?")
    if one.startswith("list"):
        one = f"lists{one.removeprefix('list')}"
    return (one if one.startswith(("`", "lists")) or one.endswith("s") else f"{one}s") + optional


def table(cls: type) -> str:
    """The rows of a record's fields."""
    hints, said = typing.get_type_hints(cls), meanings(cls)
    rows = [
        f"| `{field.name}` | {words(hints[field.name])} | {said[field.name]} |".replace("|  |", "| |")
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
    ]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows]) + "\n"


def written(text: str) -> str:
    """A page with its tables made anew."""

    def section(match: re.Match[str]) -> str:
        cls = BY_NAME.get(match[1])
        return match[0] if cls is None else _ROWS.sub(lambda _: table(cls), match[0], count=1)

    return SECTION.sub(section, text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
