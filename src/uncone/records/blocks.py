"""What a result has to show, as blocks: renderers know these and no record."""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import sqrt
from typing import Literal

from uncone.records.parts import Picture

Tone = Literal[
    "",
    "severe",
    "warning",
    "note",
    "healthy",
    "structure",
    "no_effect",
    "better",
    "worse",
    "little",
    "strong",
    "quiet",
    "lead",
    "caution",
    "advice",
    "token",
    "code",
]
"""What a text is, for its colour and weight; the words alone carry the meaning."""


@dataclass(frozen=True)
class Heading:
    """A heading: level 1 is the verdict, 2 a part of the result, 3 a section, 4 a card.

    `label` is a word before the text (`SEVERE`) in the colour of `tone`; `about` describes the part.
    """

    text: str
    level: Literal[1, 2, 3, 4] = 3
    label: str = ""
    tone: Tone = ""
    about: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]
    tone: Tone = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than a text: `note` stands below it, quieter."""

    text: str
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of a row its name. `numbers` are the headings of columns set to the right.

    `groups` are runs of rows, each with its title and its length, and `grouped_by` says what the titles are.
    A page folds away all but the first row of each.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    numbers: tuple[str, ...] = ()
    title: str = ""
    groups: tuple[tuple[str, int], ...] = ()
    grouped_by: str = ""

    def runs(self) -> list[tuple[str, tuple[tuple[str | Cell, ...], ...]]]:
        """The rows of each group with its title; without groups all rows, without a title."""
        ends = tuple(accumulate(length for _, length in self.groups))
        starts, titles = (0, *ends), (*(title for title, _ in self.groups), "")
        runs = [(title, self.rows[a:b]) for title, a, b in zip(titles, starts, (*ends, None), strict=True)]
        return [(title, rows) for title, rows in runs if rows]


@dataclass(frozen=True)
class Code:
    """Text to copy, line by line as it is."""

    text: str


@dataclass(frozen=True)
class Curve:
    """A line through points in the order of `x`; None in `y` breaks it. `style` names its colour and dashes.

    With `dots` every point is marked, those at `marked` in another way, and `tips` says what each is. Without `line`
    there are dots alone.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    style: str = "raw"
    dots: bool = False
    tips: tuple[str, ...] = ()
    marked: tuple[int, ...] = ()
    line: bool = True


@dataclass(frozen=True)
class Mark:
    """A dashed line at a value of one axis, with a label; at a value of x it may end at `top`."""

    at: float
    axis: Literal["x", "y"] = "x"
    label: str = ""
    top: float | None = None


@dataclass(frozen=True)
class Shade:
    """What lies between two lines over `x`, shaded behind the curves: where values are expected."""

    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """A drawing with two axes. `bars` stand on `edges` (one more than bars); `bands` of x and `shades` are shaded.

    `name` is for `Record.plot`; `spark` labels its line of bars in a terminal, which leaves out charts that
    have none. The horizontal axis ends at `x_limits`, or where the drawing ends.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...] = ()
    edges: tuple[float, ...] = ()
    bars: tuple[float, ...] = ()
    marks: tuple[Mark, ...] = ()
    bands: tuple[tuple[float, float], ...] = ()
    shades: tuple[Shade, ...] = ()
    log_x: bool = False
    log_y: bool = False
    x_limits: tuple[float, float] | None = None
    caption: str = ""
    spark: str = ""


@dataclass(frozen=True)
class Intervals:
    """One line a row: its name, a value, and the ends of its interval, beside the line at `origin`."""

    name: str
    title: str
    x_label: str
    rows: tuple[tuple[str, float, float, float], ...]
    origin: float = 0.0
    caption: str = ""


@dataclass(frozen=True)
class Cloud:
    """Rows on their first singular directions, to explore; `shares` of the directions, raw and centred."""

    name: str
    title: str
    picture: Picture
    shares: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())


@dataclass(frozen=True)
class HeatMap:
    """Numbers as shades, from light for the least to dark for the greatest; None stays blank.

    `values` has a row for each of `y`, from below, and in it a number for each of `x`, both ascending. Neighbours
    meet halfway. `name` and `spark` are as of a `Chart`.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    value_label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]
    log_x: bool = False
    log_y: bool = False
    caption: str = ""
    spark: str = ""

    def edges(self, places: tuple[float, ...], *, log: bool) -> tuple[float, ...]:
        """Where the cells at `places` end: halfway to their neighbours, at the first and at the last place."""
        if len(places) == 1:
            half = max(0.5, abs(places[0]) / 1000)
            return (places[0] / 2, places[0] * 2) if log else (places[0] - half, places[0] + half)
        middles = (sqrt(a) * sqrt(b) if log else (a + b) / 2 for a, b in pairwise(places))
        return places[0], *middles, places[-1]

    def limits(self) -> tuple[float, float]:
        """The least and the greatest number; (0, 1) where there is none."""
        known = [value for row in self.values for value in row if value is not None]
        return (min(known), max(known)) if known else (0.0, 1.0)


@dataclass(frozen=True)
class Gauge:
    """One headline number, its isotropic `reference`, the ends of its range, and what it was read from.

    `judged` is the finding that rests on it, in the colour of `tone`; empty where none does.
    """

    label: str
    value: float | None
    reason: str = ""
    reference: float | None = None
    limits: tuple[float | None, float | None] = (None, None)
    better: str = ""
    about: str = ""
    judged: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class Gauges:
    """The headline numbers; a terminal, which has them in a table, leaves them out."""

    gauges: tuple[Gauge, ...]


@dataclass(frozen=True)
class Figure:
    """Charts side by side. `spark` is their heading in a terminal; `legend` names styles of curves."""

    title: str
    charts: tuple[Chart | Intervals | HeatMap | Cloud, ...]
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    spark: str = ""


@dataclass(frozen=True)
class Folded:
    """What a page folds away under a title, and a terminal leaves out unless it is `in_terminal`."""

    title: str
    blocks: tuple["Block", ...]
    in_terminal: bool = False


Block = Heading | Text | Bullets | Table | Code | Gauges | Figure | Folded


@dataclass(frozen=True)
class Document:
    """A result to show: its name, its kind (`diagnosis`), its blocks from the verdict on, and its footer."""

    name: str
    kind: str
    blocks: tuple[Block, ...]
    footer: tuple[Block, ...] = ()
