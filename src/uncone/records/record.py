"""What every result can do: be saved and loaded, become a table, a picture or a document."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from uncone import atomic
from uncone.errors import InputError, UnsupportedModel, expect, needed
from uncone.questions import QUESTIONS
from uncone.records.blocks import Blocks, Document, Gauges, Heading, Text
from uncone.records.brief import brief
from uncone.records.layout import shown
from uncone.records.rebuild import build_record, parsed, read_text, schema_of
from uncone.records.tables import tables_of
from uncone.records.text import headline, visible
from uncone.roles import Path_

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Record:
    """The base of every result: a subclass is a frozen dataclass with its `blocks`. `KIND`, `SCHEMA` and `HOW` follow
    from its name, unless it sets them."""

    KIND: ClassVar[str] = "result"  # in words
    SCHEMA: ClassVar[str] = ""
    HOW: ClassVar[str] = "the command that made it with --json F"
    READING: ClassVar[str] = ""  # how to read the numbers, in one paragraph below them

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # otherwise a dataclass writes one with every field
            cls.__repr__ = brief  # type: ignore[method-assign]
        words = re.sub(r"(?<!^)([A-Z])", r" \1", cls.__name__).lower()
        command = next((of[2] for of in QUESTIONS.values() if of[1].endswith(f".{cls.__name__}")), "")
        cls.KIND = vars(cls).get("KIND", words)
        cls.SCHEMA = vars(cls).get("SCHEMA", f"uncone.{words.replace(' ', '_')}/1")
        if command and "HOW" not in vars(cls):
            cls.HOW = f"uncone {command} --json F"

    @property
    def schema(self) -> str:
        return self.SCHEMA

    def __str__(self) -> str:
        blocks = self.blocks()
        verdict = [visible(block.text) for block in blocks if isinstance(block, Heading)][:1]
        gauges = (gauge for block in blocks if isinstance(block, Gauges) for gauge in block.gauges)
        numbers = (headline(one.label, one.value, one.reason, one.reference, one.limits) for one in gauges)
        return "\n".join([*verdict, *numbers])

    def blocks(self) -> Blocks:
        """What to show, starting with the verdict (a heading of level 1)."""
        raise NotImplementedError(f"{type(self).__name__} has no blocks")

    def to_rows(self) -> list[dict[str, Any]]:
        """The rows of a table: by default one row, of the fields that are numbers or texts."""
        plain = (str, int, float, bool, type(None))
        fields = dataclasses.asdict(self)  # type: ignore[call-overload]
        return [{name: value for name, value in fields.items() if isinstance(value, plain)}]

    @property
    def title(self) -> str:
        return str(getattr(self, "name", ""))

    def document(self) -> Document:
        footer = shown(Text(self.READING, "quiet"), Text(f"Record: {self.SCHEMA}", "quiet"))
        return Document(self.title, self.KIND, self.blocks(), footer)

    def to_json(self) -> str:
        """This record as strict JSON. InputError: a number is not finite."""
        try:
            return json.dumps(self, allow_nan=False, separators=(",", ":"), default=_fields) + "\n"
        except ValueError as error:
            where, value = next(_not_finite(self, self.KIND), (self.KIND, error))
            why = f"got {value} at {where}, which JSON cannot hold: print the result, or write its page"
            raise InputError(f"expected finite numbers in a {self.KIND}, {why}") from error

    def save(self, path: Path_) -> None:
        """Write `to_json()` to `path`, atomically."""
        atomic.write_text(path, self.to_json())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the text of `to_json`. InputError: not JSON, another schema, or a missing, unknown or wrong field."""
        data = parsed(text, what=cls.KIND, how=cls.HOW)
        schema = schema_of(data)
        way = f"write it again with `{cls.HOW}`"
        expect(schema == cls.SCHEMA, f"a {cls.KIND} of schema {cls.SCHEMA!r}, got {schema!r}: {way}")
        return build_record(cls, data, cls.KIND)

    @classmethod
    def load(cls, path: Path_) -> Self:
        try:
            return cls.from_json(read_text(path, cls.HOW))
        except InputError as error:  # names the file, which may be one of several
            raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error

    def to_frame(self, part: str = "") -> "DataFrame":
        """`to_rows` as a pandas DataFrame, or the `part` of this record with this name.

        A part is a list in the record, such as the "findings", "groups", "bins" or "layers" of a diagnosis. `tables()`
        returns the parts as plain rows. UnsupportedModel: pandas is not installed. InputError: no part has this name;
        the message lists all names."""
        if not part:
            return frame_of(self.to_rows())
        tables = self.tables()
        have = f"the name of a part of this {self.KIND} ({', '.join(tables)})"
        expect(
            part in tables, f"{have if tables else 'no name of a part'}, got {part!r}: leave it out for the readings"
        )
        return frame_of(tables[part])

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of every part that `to_frame` accepts, by part name. Empty parts are left out."""
        return tables_of(self)

    def plot(self, name: str = "", *, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw a chart with matplotlib (extra `[plot]`) on `ax` or new axes, and return the figure and the axes.

        `name` is "spectrum", "norms", "bins", "cone", for a head "head spectrum" and so on; by default the first chart.
        InputError: no chart has this name; the message lists all names."""
        from uncone.report.plot import charts_of, draw

        charts = charts_of(self.blocks())
        expect(bool(charts), f"a result with charts, got a {self.KIND}, which has none: use to_frame()")
        chosen, have = name or next(iter(charts)), f"of a chart of this {self.KIND} ({', '.join(charts)})"
        expect(chosen in charts, f"the name {have}, got {name!r}: give one of these")
        return draw(charts[chosen], ax, centered=chosen.endswith("centred"))

    def _repr_html_(self) -> str:
        from uncone.report.html import to_notebook

        return to_notebook(self.document())


def _not_finite(value: Any, where: str) -> Iterator[tuple[str, float]]:
    value = _fields(value) if dataclasses.is_dataclass(value) else value
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _not_finite(item, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _not_finite(item, f"{where}[{place}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield where, value


def _fields(record: Any) -> dict[str, Any]:
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return fields | {"schema": record.SCHEMA} if isinstance(record, Record) else fields


def frame_of(rows: list[dict[str, Any]]) -> "DataFrame":
    pandas = needed("pandas", "expected pandas for a table, got none: pip install pandas", UnsupportedModel)
    return pandas.DataFrame(rows)


def made_with(versions: Mapping[str, str]) -> str:
    named = ", ".join(map(" ".join, versions.items()))
    return f"Made with {named}." if named else ""
