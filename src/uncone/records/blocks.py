"""The blocks that make up a report. Renderers work from blocks alone and never see a record."""

from itertools import islice, pairwise
from math import sqrt
from typing import Literal

from uncone.records.brief import part
from uncone.records.parts import Level, Picture

_NEITHER = ("structure", "no_effect")
Tone = Literal["", Level, "better", "worse", "little", "strong", "quiet", "lead", "caution", "advice", "token", "code"]
"""For the colour and weight of a text; the words alone carry the meaning."""


@part
class Heading:
    """Level 1 is the verdict, 2 a part of the result, 3 a section, 4 a card."""

    text: str
    level: Literal[1, 2, 3, 4] = 3
    label: str = ""  # a word before the text (`SEVERE`), in the colour of `tone`
    tone: Tone = ""
    about: str = ""  # describes the part


@part
class Text:
    text: str
    tone: Tone = ""


@part
class Bullets:
    items: tuple[str, ...]
    tone: Tone = ""


@part
class Cell:
    text: str
    note: str = ""  # muted, below the text
    tone: Tone = ""


Row = tuple[str | Cell, ...]


@part
class Table:
    """The first cell of a row names it. A page folds away all but the first row of each group."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    numbers: tuple[str, ...] = ()  # the right-aligned columns
    title: str = ""
    groups: tuple[tuple[str, int], ...] = ()  # runs of rows: the title of each, and its number of rows
    grouped_by: str = ""  # what the titles are
    in_brief: bool = False  # it is the answer, which `--brief` prints too

    def runs(self) -> list[tuple[str, tuple[Row, ...]]]:
        """The rows of each group with its title; rows of no group come last, without a title."""
        rest = iter(self.rows)
        runs = [(title, tuple(islice(rest, length))) for title, length in self.groups]
        return [(title, rows) for title, rows in (*runs, ("", tuple(rest))) if rows]


@part
class Code:
    text: str  # to copy, line by line as it is


@part
class Curve:
    """A line through points in the order of `x`; None in `y` breaks the line."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    style: str = "raw"  # the name of its colour and dashes
    dots: bool = False  # whether every point is marked
    tips: tuple[str, ...] = ()  # what each point is
    marked: tuple[int, ...] = ()  # indices of points that are marked differently
    line: bool = True  # whether to draw the line, or only dots


@part
class Mark:
    """A dashed line at a value of one axis; at a value of x it may end at `top`."""

    at: float
    axis: Literal["x", "y"] = "x"
    label: str = ""
    top: float | None = None


@part
class Shade:
    """The area between two lines over `x`, drawn behind the curves, where values are expected."""

    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@part
class Chart:
    name: str  # for `Record.plot`
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...] = ()
    edges: tuple[float, ...] = ()  # edges of the bars, one more than bars
    bars: tuple[float, ...] = ()
    marks: tuple[Mark, ...] = ()
    bands: tuple[tuple[float, float], ...] = ()  # shaded ranges of x
    shades: tuple[Shade, ...] = ()
    log_x: bool = False
    log_y: bool = False
    x_limits: tuple[float, float] | None = None  # the ends of the horizontal axis, by default the ends of the data
    caption: str = ""
    spark: str = ""  # labels the line of bars in a terminal, which leaves out charts without a label


@part
class Intervals:
    """Rows of a name, a value, and the ends of its interval, next to the line at `origin`."""

    name: str
    title: str
    x_label: str
    rows: tuple[tuple[str, float, float, float], ...]
    origin: float = 0.0
    caption: str = ""


@part
class Cloud:
    name: str
    title: str
    picture: Picture
    shares: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # of the directions, raw and centred


@part
class HeatMap:
    """Numbers as shades, darker for greater numbers. Neighbouring cells meet halfway."""

    name: str
    title: str
    x_label: str
    y_label: str
    value_label: str
    x: tuple[float, ...]  # ascending, like `y`
    y: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]  # one row per item of `y`, bottom first; None stays blank
    log_x: bool = False
    log_y: bool = False
    caption: str = ""
    spark: str = ""

    def edges(self, places: tuple[float, ...], *, log: bool) -> tuple[float, ...]:
        """The edges of the cells at `places`: halfway between neighbours, and at the first and last place."""
        if len(places) == 1:
            half = max(0.5, abs(places[0]) / 1000)
            return (places[0] / 2, places[0] * 2) if log else (places[0] - half, places[0] + half)
        return places[0], *(sqrt(a) * sqrt(b) if log else (a + b) / 2 for a, b in pairwise(places)), places[-1]

    def limits(self) -> tuple[float, float]:
        known = [value for row in self.values for value in row if value is not None]
        return (min(known), max(known)) if known else (0.0, 1.0)


@part
class Gauge:
    label: str
    value: float | None
    reason: str = ""
    reference: float | None = None  # the value of an isotropic cloud
    limits: tuple[float | None, float | None] = (None, None)
    better: str = ""
    about: str = ""  # what the value was measured on
    judged: str = ""  # the finding that rests on this value, in the colour of `tone`
    tone: Tone = ""


@part
class Gauges:
    """The headline numbers. A terminal leaves them out, because its tables have them."""

    gauges: tuple[Gauge, ...]


@part
class Figure:
    title: str
    charts: tuple[Chart | Intervals | HeatMap | Cloud, ...]
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()  # the name of each style of curve
    spark: str = ""  # the heading of the charts in a terminal


@part
class Folded:
    """A page folds this away under its title; a terminal leaves it out unless it is `in_terminal`."""

    title: str
    blocks: tuple["Block", ...]
    in_terminal: bool = False


Block = Heading | Text | Bullets | Table | Code | Gauges | Figure | Folded
Blocks = tuple[Block, ...]


@part
class Document:
    name: str
    kind: str
    blocks: Blocks
    footer: Blocks = ()

    def brief(self) -> "Document":
        """The verdict, the findings with their first evidence, what to do, and tables `in_brief`. Other tables, pictures,
        sections and findings that are neither good nor bad are left out."""
        kept, left_out = list[Block](), False
        for block in self.blocks:
            if isinstance(block, Heading):
                left_out = block.level == 3 or block.tone in _NEITHER or block.text == "Notes"
                if block.level == 2 and kept and isinstance(kept[-1], Heading) and kept[-1].level == 2:
                    kept.pop()  # nothing followed it
            is_kept = isinstance(block, Heading | Text | Code) and not left_out
            if is_kept or (isinstance(block, Table) and block.in_brief):
                kept.append(block)
            elif not left_out and isinstance(block, Bullets):
                kept.append(Bullets(block.items[:1], block.tone))
        if kept and isinstance(kept[-1], Heading) and kept[-1].level == 2:
            kept.pop()
        return Document(self.name, self.kind, tuple(kept))
