"""Every kind of record at the ends of what its fields can hold: drawn in every view, or refused with a message."""

import dataclasses
import io
import math
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from functools import partial
from html import unescape
from typing import Any

import pytest

from tests.every_part import BY_NAME, KINDS, parts
from tests.report.every_record import Maker
from tests.report.printed import printed
from tests.report.records_example import HOSTILE, make_picture
from tests.report.test_html import _assert_harmless
from uncone import report
from uncone.errors import InputError
from uncone.records.blocks import Block, Chart, Cloud, Curve, Figure, Heading, HeatMap, Intervals, Mark, Shade, Text
from uncone.records.brief import LINES
from uncone.records.record import Record
from uncone.records.text import visible
from uncone.report import plot, spark, svg
from uncone.report.drawable import AnyChart
from uncone.report.plot import charts_of

_ALONE = ("0", "-0", "1e-308", "5e-324", "1e308", "-1e308", "0.37", "-3")
EXTREMES: dict[str, tuple[float, ...]] = {number: (float(number),) for number in _ALONE} | {
    "some 0": (0.5, 0.0, 0.7, 0.3, 0.2),
    "both ends": (1e308, -1e308),
    "neighbours": (1.0, 1 + 2e-16),
    "far": (1e15, 1e15 + 0.125),
    "above 0": (0.0, 1e-308, 1e308, 0.5, 3.0, 1e-300),
    "mixed": (0.0, 1e-308, -1e308, 0.5, 1e308, 3.0, -2.5, 5e-324, 1e-300),
}
_USUAL = ("0", "1e-308", "1e308", "0.37", "-3", "some 0", "mixed")
_NO_NUMBER = re.compile(r'="[^"]*(?<![a-z])(?:nan|inf)(?![a-z])[^"]*"')
_DEFECT = "drawing it failed"
_LONGEST_COORDINATE = re.compile(r'\b(?:d|x|y|width|height)="[^"]*\d{7}')


def test_every_part_of_every_record_is_made() -> None:
    maker = Maker((0.5, 0.25, 0.75))
    for kind in (*KINDS, parts.Measures):
        maker.make(kind)
    assert {one for one in BY_NAME.values() if dataclasses.is_dataclass(one)} <= maker.made


def _made(kind: type[Record], **options: Any) -> Record | None:
    """None where the record refuses what it would be made of."""
    try:
        record: Record = Maker(**options).make(kind)
    except InputError:
        return None
    return record


def _assert_shown(record: Record) -> None:
    page = report.to_html(record)
    assert not _NO_NUMBER.findall(page)
    assert not _LONGEST_COORDINATE.findall(page)
    for shown in (page, printed(record, 100), report.to_markdown(record)):
        assert _DEFECT not in shown
    assert len(repr(record).splitlines()) <= LINES
    assert str(record)
    assert record.to_rows() is not None
    try:
        again = type(record).from_json(record.to_json())
    except InputError:  # a number of a table without a type may not be written, but said
        return
    assert again.to_json() == record.to_json()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_extreme_numbers_are_drawn_or_refused(kind: type[Record]) -> None:
    made = [
        _made(kind, floats=EXTREMES[name], length=length, sparse=name == "-3")
        for name, length in (*((name, 2) for name in _USUAL), ("mixed", 1), ("0", 1))
    ]
    shown = [record for record in made if record is not None]
    for record in shown:
        _assert_shown(record)
    assert len(shown) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_extreme_numbers_of_any_mixture_and_length(kind: type[Record]) -> None:
    rng = random.Random(kind.__name__)
    every = [value for floats in EXTREMES.values() for value in floats]
    mixtures = [*EXTREMES.values(), *(tuple(rng.choices(every, k=rng.randint(2, 12))) for _ in range(12))]
    for floats in mixtures:
        for length in (0, 1, 3):
            integers, sparse = rng.choice(((1, 2, 5), (0,), (0, 1, 2**62, 7))), rng.random() < 0.3
            record = _made(kind, floats=floats, integers=integers, length=length, sparse=sparse)
            if record is not None:
                _assert_shown(record)


WORDS = (*HOSTILE, "x" * 3000, "]]>\x1b[2J\r\n\x9b31m", "\\frac{$x_1^$ {", "_hidden", "")


@pytest.mark.parametrize("first", [0, 5, 9])
def test_hostile_words_in_every_field_of_every_record_stay_words(first: int) -> None:
    for kind in KINDS:
        record = _made(kind, floats=(0.5, 0.25, 0.75), words=WORDS[first:] + WORDS[:first], length=2)
        assert record is not None
        _assert_harmless(report.to_html(record))
        shown = [printed(record, 200, encoding) for encoding in ("utf-8", "ascii")]
        for text in (*shown, report.to_markdown(record), repr(record), str(record)):
            assert visible(text.replace("\n", "")) == text.replace("\n", "")
        assert type(record).from_json(record.to_json()).to_json() == record.to_json()


# Charts: a value that an axis has no place for, one that has none at all, and a drawing that fails.

_X = (1.0, 2.0, 3.0, 4.0)
_ZEROS = Curve("a", _X, (4.0, 0.0, None, -1e-9), dots=True, tips=("t",) * 4)
ZEROS = Chart("c", "Spectrum", "rank", "eigenvalue", (_ZEROS,), log_x=True, log_y=True, spark="eigenvalue")
ZEROS = replace(ZEROS, caption="A caption.")
NOTHING = replace(ZEROS, title="Nothing", curves=(Curve("a", _X, (0.0, None, 0.0, -1.0)),))
_LEFT = "Not drawn: 2 values of 0 or less, which a logarithmic axis cannot show."
_WHY = "Nothing cannot be drawn: it has only 3 values of 0 or less, which a logarithmic axis cannot show."


@dataclass(frozen=True)
class Drawn(Record):
    """A record of charts alone."""

    charts: tuple[Any, ...] = ()

    def blocks(self) -> tuple[Block, ...]:
        return Heading("The verdict.", 1), Figure("Charts", self.charts, spark="Charts:"), Text("The rest.")


def _views(*charts: AnyChart) -> tuple[str, str, str, str]:
    """The terminal's, the page's, the notebook's and the Markdown's."""
    record = Drawn(charts)
    page = report.to_html(record)
    ET.fromstring(page)
    shown = (printed(record, 100), page, unescape(record._repr_html_()), report.to_markdown(record))
    assert all("The verdict." in view and "The rest." in view for view in shown)
    return shown


def test_zeros_on_a_logarithmic_axis_are_left_out_and_said() -> None:
    terminal, page, *others = _views(ZEROS)
    assert all(_LEFT in view for view in (terminal, page, *others))
    assert "A caption. Not drawn" in page
    assert page.count("h.01") == 1, "the one value that there is"
    assert "eigenvalue          ▁     4 to 4" in terminal


def test_a_chart_without_a_value_on_its_axes_is_a_sentence_beside_the_others() -> None:
    for view in _views(NOTHING, ZEROS):
        assert _WHY in view
        assert _LEFT in view
    terminal, *_ = _views(replace(NOTHING, spark=""))
    assert _WHY not in terminal, "a terminal leaves out a chart without a line"


_FAR = "1 value beyond what an axis can show"
_map = partial(HeatMap, "h", "H", "x", "y", "v", spark="h")


@pytest.mark.parametrize(
    ("chart", "why"),
    [
        (replace(ZEROS, curves=(Curve("a", (0.0, -1.0), (1.0, 2.0)),)), "2 values of 0 or less"),
        (replace(ZEROS, curves=(Curve("a", (1.0,), (1e308,)),)), _FAR),
        (replace(ZEROS, curves=(Curve("a", (1.0,), (math.nan,)),)), _FAR),
        (replace(ZEROS, curves=()), "it has no values"),
        (_map((0.0, 1.0), (1.0,), ((math.inf, None),)), _FAR),
        (_map((2.0, 1.0), (1.0,), ((0.5, 0.5),)), "the values of its axis do not increase"),
        (_map((), (), ()), "it has no values"),
    ],
    ids=range(7),
)
def test_why_a_chart_cannot_be_drawn(chart: AnyChart, why: str) -> None:
    assert all(f"cannot be drawn: {'it has only ' * why[0].isdigit()}{why}" in view for view in _views(chart))


def test_intervals_and_clouds_beyond_any_axis_are_sentences() -> None:
    rows = Intervals("i", "I", "x", (("a", 1.0, 0.5, 2.0), ("b", 1e308, -1e308, 1.0)))
    assert "Not drawn: 1 value beyond what an axis can show." in _views(rows)[1]
    assert "I cannot be drawn: it has only 1 value" in _views(replace(rows, rows=rows.rows[1:]))[1]
    cloud = Cloud("c", "C", replace(make_picture(), raw_scale=1e-300))
    assert "C cannot be drawn: its coordinates are beyond what an axis can show." in _views(cloud)[1]


def test_a_drawing_that_fails_costs_nothing_but_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("math domain error")

    whole = replace(ZEROS, title="Whole", curves=(Curve("a", _X, (4.0, 1.0, 1.0, 1.0)),))
    for place, name in ((svg, "axes"), (spark, "sparkline")):
        monkeypatch.setattr(place, name, fail)
    for view in _views(whole):
        assert "Whole cannot be drawn: drawing it failed (ValueError: math domain error)." in view


@pytest.mark.parametrize("low", [-1e308, 0.0, 1e307, 1e308 * 0.999])
def test_ticks_of_the_largest_floats(low: float) -> None:
    ticks = svg.Axis(low, 1e308, 0.0, 100.0).ticks(5)
    assert all(math.isfinite(tick) for tick in ticks)
    assert 2 <= len(ticks) <= 12


@pytest.mark.parametrize("value", [1e-290, 1e-9, 1.0, 7.0, 1e290])
@pytest.mark.parametrize("log", [False, True])
def test_one_point_is_drawn_within_the_axes(value: float, log: bool) -> None:
    chart = Chart("c", "C", "x", "y", (Curve("a", (value,), (value,), dots=True),), log_x=log, log_y=log)
    (place,) = re.findall(r'class="dots[^"]*" d="M([\d.]+) ([\d.]+)h', svg.draw(chart, "u"))
    assert 46 <= float(place[0]) <= 388
    assert 26 <= float(place[1]) <= 196


def test_marks_and_bands_beyond_the_axis_are_not_drawn_beside_it() -> None:
    curve, marks = Curve("a", (1.0, 2.0), (1.0, 2.0)), (Mark(1e200, label="far"), Mark(1.5, label="near"))
    chart = Chart("c", "C", "x", "y", (curve,), marks=marks, bands=((0.0, 1e200),), x_limits=(1.0, 2.0))
    drawing = svg.draw(chart, "u")
    assert "near" in drawing
    assert "far" not in drawing
    assert 'class="band" x="46.0" y="26.0" width="342.0"' in drawing


def test_matplotlib_draws_what_it_can_and_says_the_rest() -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib.figure import Figure as Canvas

    far = HeatMap("h", "H", "x", "y", "v", (1.0, 2.0), (1.0,), ((1e308, 0.5),))
    cloud = Cloud("c", "C", replace(make_picture(), raw_scale=1e-300))
    shades = (Shade((1.0, 2.0), (0.0, 1.0), (1.0, 2.0)),)
    shade = replace(ZEROS, title="$x_1^$ {", shades=shades, curves=(_ZEROS, Curve("_b", (0.0, 1.0), (1.0, 2.0))))
    left = {ZEROS: _LEFT, far: "Not drawn: 1 value", shade: "Not drawn: 3 values"}
    for chart, said in (left | {NOTHING: _WHY, cloud: "C cannot be drawn"}).items():
        figure = Canvas()
        _, ax = plot.draw(chart, figure.subplots())
        figure.savefig(io.BytesIO(), format="svg")
        assert said in " ".join([ax.get_title(), *(text.get_text() for text in ax.texts)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_matplotlib_draws_every_chart_of_every_record(kind: type[Record]) -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib.figure import Figure as Canvas

    drawn = set[str]()  # charts that differ in words alone are drawn once, but for hostile ones
    extremes = [{"floats": floats} for floats in EXTREMES.values()]
    for way in [*extremes, {"floats": (0.5, 0.25), "words": WORDS[8:]}]:
        record = _made(kind, length=2, **way)
        for chart in () if record is None else charts_of(record.blocks()).values():
            shape = repr(chart) if "words" in way else re.sub(r"'[^']*'|\"[^\"]*\"", "", repr(chart))
            if shape in drawn:
                continue
            drawn.add(shape)
            figure = Canvas()
            _, ax = plot.draw(chart, figure.subplots())
            assert not any("drawing it failed" in text.get_text() for text in ax.texts)
            figure.savefig(io.BytesIO(), format="svg")
