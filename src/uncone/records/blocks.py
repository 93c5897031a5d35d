"""What a result has to show, as blocks: renderers know these and no record."""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import sqrt
from typing import Literal

from uncone.records.parts import Level, Picture

Tone = Literal["", Level, "better", "worse", "little", "strong", "quiet", "lead", "caution", "advice", "token", "code"]
"""What a text is, for its colour and weight; the words alone carry the meaning."""


@dataclass(frozen=True)
class Heading:
    """A heading: level 1 is the verdict, 2 a part of the result, 3 a section, 4 a card."""

    text: str
    level: Literal[1, 2, 3, 4] = 3
    label: str = ""  # a word before the text (`SEVERE`), in the colour of `tone`
    tone: Tone = ""
    about: str = ""  # describes the part


@dataclass(frozen=True)
class Text:
    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Bullets:
    items: tuple[str, ...]
    tone: Tone = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than a text."""

    text: str
    note: str = ""  # below it, quieter
    tone: Tone = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of a row its name. A page folds away all but the first row of each group."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    numbers: tuple[str, ...] = ()  # the columns that are set to the right
    title: str = ""
    groups: tuple[tuple[str, int], ...] = ()  # runs of rows: the title of each, and how many they are
    grouped_by: str = ""  # what the titles are

    def runs(self) -> list[tuple[str, tuple[tuple[str | Cell, ...], ...]]]:
        """The rows of each group with its title; without groups all rows, without a title."""
        ends = tuple(accumulate(length for _, length in self.groups))
        starts, titles = (0, *ends), (*(title for title, _ in self.groups), "")
        runs = [(title, self.rows[a:b]) for title, a, b in zip(titles, starts, (*ends, None), strict=True)]
        return [(title, rows) for title, rows in runs if rows]


@dataclass(frozen=True)
class Code:
    text: str  # to copy, line by line as it is


@dataclass(frozen=True)
class Curve:
    """A line through points in the order of `x`; None in `y` breaks it."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    style: str = "raw"  # names its colour and dashes
    dots: bool = False  # whether every point is marked
    tips: tuple[str, ...] = ()  # what each point is
    marked: tuple[int, ...] = ()  # the places of points that are marked in another way
    line: bool = True  # without it there are dots alone


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
    """A drawing with two axes."""

    name: str  # for `Record.plot`
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...] = ()
    edges: tuple[float, ...] = ()  # of the bars, one more than bars
    bars: tuple[float, ...] = ()
    marks: tuple[Mark, ...] = ()
    bands: tuple[tuple[float, float], ...] = ()  # of x, shaded
    shades: tuple[Shade, ...] = ()
    log_x: bool = False
    log_y: bool = False
    x_limits: tuple[float, float] | None = None  # the ends of the horizontal axis, by default those of the drawing
    caption: str = ""
    spark: str = ""  # labels the line of bars in a terminal, which leaves out charts without one


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
    """Rows on their first singular directions, to explore."""

    name: str
    title: str
    picture: Picture
    shares: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # of the directions, raw and centred


@dataclass(frozen=True)
class HeatMap:
    """Numbers as shades, from light for the least to dark for the greatest. Neighbours meet halfway."""

    name: str
    title: str
    x_label: str
    y_label: str
    value_label: str
    x: tuple[float, ...]  # ascending, as `y`
    y: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]  # a row for each of `y`, from below; None stays blank
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
    label: str
    value: float | None
    reason: str = ""
    reference: float | None = None  # of an isotropic cloud
    limits: tuple[float | None, float | None] = (None, None)
    better: str = ""
    about: str = ""  # what it was read from
    judged: str = ""  # the finding that rests on it, in the colour of `tone`
    tone: Tone = ""


@dataclass(frozen=True)
class Gauges:
    """The headline numbers; a terminal, which has them in a table, leaves them out."""

    gauges: tuple[Gauge, ...]


@dataclass(frozen=True)
class Figure:
    """Charts side by side."""

    title: str
    charts: tuple[Chart | Intervals | HeatMap | Cloud, ...]
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()  # names of styles of curves
    spark: str = ""  # their heading in a terminal


@dataclass(frozen=True)
class Folded:
    """What a page folds away under a title, and a terminal leaves out unless it is `in_terminal`."""

    title: str
    blocks: tuple["Block", ...]
    in_terminal: bool = False


Block = Heading | Text | Bullets | Table | Code | Gauges | Figure | Folded


@dataclass(frozen=True)
class Document:
    """A result to show."""

    name: str
    kind: str
    blocks: tuple[Block, ...]
    footer: tuple[Block, ...] = ()
