"""Every result has a terminal view, a page, Markdown and a notebook view; a new one brings blocks and nothing more."""

import html
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.report.curves_example import make_curves
from tests.report.printed import printed
from tests.report.records_example import HOSTILE, make_diagnosis, make_hostile
from tests.report.test_comparison_report import make_comparison
from tests.report.test_evaluation_terminal import _evaluation
from tests.report.test_html import _assert_harmless
from tests.report.test_repair_terminal import HEAD, REPAIRED, SELECTION, TOKENS
from uncone import calibrate, check, measures, report, unreachable_tokens
from uncone.comparison.bars.record import Bar, Check
from uncone.errors import InputError
from uncone.records import blocks
from uncone.records.blocks import Block, Bullets, Cell, Code, Document, Figure, Folded, Heading, Intervals, Table, Text
from uncone.records.load import load_record
from uncone.records.parts import Measurement
from uncone.records.record import Record
from uncone.records.text import visible
from uncone.records.tokens import Estimate, FrequencyGroup, FrequencyGroups
from uncone.report.html import to_page
from uncone.report.markdown import markdown_of
from uncone.report.plot import charts_of


@dataclass(frozen=True)
class Weather(Record):
    """A record of another package: blocks, and nothing more."""

    KIND: ClassVar[str] = "forecast"
    SCHEMA: ClassVar[str] = "example.weather/1"
    HOW: ClassVar[str] = "weather --json F"

    name: str
    degrees: float
    words: str = "fair"
    schema: str = SCHEMA

    def blocks(self) -> tuple[Block, ...]:
        heights = (4.0, None, self.degrees)
        curve = blocks.Curve(self.words, (1.0, 2.0, 3.0), heights, dots=True, tips=(self.words,) * 3)
        shade = blocks.Shade((1.0, 3.0), (3.0, 6.0), (5.0, 9.0))
        marks = (blocks.Mark(2.0, label="today"), blocks.Mark(1.0, "y"))
        days = blocks.Chart("days", "Days", "day", "degrees", (curve,), marks=marks, spark="degrees", shades=(shade,))
        days = replace(days, edges=(0.0, 1.0, 3.0), bars=(2.0, 5.0))
        towns = Intervals("towns", "Towns", "degrees", ((self.words, 1.0, 0.5, 2.0),))
        strong, token = Cell("12", self.words, "strong"), Cell(self.words, tone="token")
        rows = ((self.words, strong), (token, Cell("-3", tone="better")))
        return (
            Heading(f"It will be {self.words}.", 1, "NOTE", "note"),
            blocks.Gauges((blocks.Gauge("Degrees", self.degrees, limits=(-50.0, 50.0)),)),
            Heading("Here", 2, about=self.words),
            Heading(self.words, 4, "WARNING", "warning"),
            Text(self.words),
            Bullets((self.words,)),
            Text(self.words, "advice"),
            Figure("This week", (days, towns), self.words, (("raw", self.words),), spark="This week:"),
            Heading("Numbers"),
            Table(("town", "degrees"), rows, ("degrees",), self.words),
            Folded(self.words, (Text(self.words, "quiet"), Code(f"print(1)\n{self.words}"))),
        )


def test_a_new_record_has_every_view_from_its_blocks(tmp_path: Path) -> None:
    record = Weather("Bergen", 7.5)
    shown = printed(record)
    assert shown.startswith("NOTE  It will be fair.\n")
    assert "degrees             ▅ █  4 to 7.50" in shown
    assert "print(1)" not in shown, "what a page folds away is left out"
    page = report.to_html(record)
    assert "<title>Bergen · uncone forecast</title>" in page
    assert "print(1)" in page
    text = report.to_markdown(record)
    assert text.startswith("# **NOTE** It will be fair.")
    assert "| fair | **12**<br>fair |" in text
    assert "```text\nprint(1)\nfair\n```" in text
    assert record._repr_html_().startswith("<iframe sandbox")
    report.write_html(record, tmp_path / "a.html")
    report.write_markdown(record, tmp_path / "a.md")
    assert (tmp_path / "a.html").read_text() == page
    assert (tmp_path / "a.md").read_text() == text
    record.save(tmp_path / "a.json")
    assert Weather.load(tmp_path / "a.json") == record
    with pytest.raises(InputError, match="expected a record whose schema is one of"):
        load_record(tmp_path / "a.json")


@pytest.mark.parametrize("words", HOSTILE, ids=ascii)
def test_hostile_text_is_text_in_every_view(words: str) -> None:
    record = Weather(words, 7.5, words)
    assert _assert_harmless(report.to_html(record)).text.count(visible(words)) >= 10
    for encoding in ("utf-8", "ascii"):
        assert not {"\x1b", "\u202e", "\x07"} & set(printed(record, 400, encoding))
    text = report.to_markdown(record)
    outside = text[: text.rindex("`", 0, text.index("print(1)"))]
    assert not {"\x1b", "\u202e", "\x07"} & set(text + report.to_markdown(make_hostile(words)))
    assert "<img" not in outside.replace("\\<", "")
    assert "<script" not in outside.replace("\\<", "")


def test_markdown_escapes_what_would_be_markup() -> None:
    text = report.to_markdown(Weather("n", 1.0, "a|b *c* [d](e) `f` <g> & $h$"))
    assert "a\\|b \\*c\\* \\[d\\](e) \\`f\\` \\<g\\> \\& \\$h\\$" in text
    assert report.to_markdown(Weather("n", 1.0, "- x")).count("\n- \\- x") == 1
    assert "````text\nprint(1)\n```\n````" in report.to_markdown(Weather("n", 1.0, "```"))


def _records() -> list[Record]:
    """All but a calibration, which a test of its own makes."""
    evaluated = [_evaluation("stsb"), _evaluation("sts12", "sts13"), SELECTION, REPAIRED, HEAD, TOKENS, make_curves()]
    diagnosis = make_diagnosis()
    checked = check(diagnosis, max={"input.mean_cosine": 0.01})
    return [diagnosis, make_comparison(), make_comparison(3), checked, *evaluated]


@pytest.mark.parametrize("record", _records(), ids=lambda record: record.KIND)
def test_every_result_has_every_view_and_a_table(record: Record, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    first = " ".join(visible(next(block.text for block in record.blocks() if isinstance(block, Heading))).split())
    assert first in " ".join(printed(record, 1000).split())
    page = report.to_html(record)
    ET.fromstring(page)
    assert f"uncone {record.KIND}" in page
    assert "![" not in report.to_markdown(record)
    assert len(record.to_frame()) >= 1
    record.save(tmp_path / "r.json")
    again = load_record(tmp_path / "r.json")
    assert again.to_json() == record.to_json()
    assert report.to_html(again) == page


def test_parts_of_a_diagnosis_are_tables_too() -> None:
    pytest.importorskip("pandas")
    d = make_diagnosis()
    assert list(d.to_frame()["measure"]) == [row["measure"] for row in d.to_rows()]
    findings = d.to_frame("findings")
    assert list(findings["cause"]) == [f.cause for s in d.subjects for f in s.findings]
    assert list(findings["subject"]) == [s.name for s in d.subjects for _ in s.findings]
    bins = [(s.name, b.start, b.mean_cosine) for s in d.subjects if s.groups for b in s.groups.bins]
    assert [(row["subject"], row["start"], row["mean_cosine"]) for row in d.tables()["bins"]] == bins
    group = FrequencyGroup("rare", 10, None, Estimate(0.2, (0.1, 0.3)), Estimate(1.0), Estimate(None), Estimate(None))
    groups = FrequencyGroups("id", "the last 20%", 0.95, (group,), ())
    (row,) = (
        replace(d, subjects=(replace(d.subjects[0], frequency_groups=groups),)).to_frame("groups").to_dict("records")
    )
    assert (row["subject"], row["name"], row["mean_cosine.value"], row["mean_cosine.interval"]) == (
        ("input", "rare", 0.2, (0.1, 0.3))
    )
    assert all(len(rows) == len(d.to_frame(name)) for name, rows in d.tables().items())
    assert "raw" not in d.to_frame("subjects"), "coordinates of the picture are no column"
    with pytest.raises(
        InputError, match=r"a part of this diagnosis \(subjects, .*findings.*\), got 'layrs': leave it out"
    ):
        d.to_frame("layrs")
    with pytest.raises(InputError, match=r"expected no name of a part, got 'bins': leave it out"):
        Weather("n", 7.5).to_frame("bins")


def test_of_parts_of_one_name_the_nearer_to_the_record_has_it() -> None:
    """A comparison's findings are what became of them; those of each side say which."""
    found = make_comparison()
    changes = [(s.name, f.cause) for s in found.subjects for f in s.findings]
    assert [(row["subject"], row["cause"]) for row in found.tables()["findings"]] == changes
    sides = [(s.name, k) for s in found.subjects for k, side in enumerate(s.sides) if side for _ in side.findings]
    assert [(row["subject"], row["side"]) for row in found.tables()["sides.findings"]] == sides


def test_a_calibration_has_every_view_and_a_table() -> None:
    pytest.importorskip("pandas")
    calibration = calibrate(np.random.default_rng(0).normal(size=(200, 8)), scores=[0.5])
    assert "To paste" in printed(calibration)
    assert "def false_match_rate" in report.to_markdown(calibration)
    _assert_harmless(report.to_html(calibration))
    assert list(calibration.to_frame()["wanted"]) == [one.wanted for one in calibration.thresholds]


def _plots() -> list[tuple[Record, str]]:
    names = ("", "cone", "cone centred", "bins", "bins norm", "spectrum", "norms", "head spectrum")
    of = {make_diagnosis: names, make_comparison: ("", "spectrum", "norms", "bins cosine")}
    drawn = [(record, name) for record, names in ((make(), names) for make, names in of.items()) for name in names]
    return [*drawn, (_evaluation("stsb"), ""), (SELECTION, "differences")]


@pytest.mark.parametrize(
    ("record", "name"), _plots(), ids=lambda value: value if isinstance(value, str) else value.KIND
)
def test_plot_draws_on_given_axes(record: Record, name: str) -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib.figure import Figure

    figure = Figure()
    ax = figure.subplots()
    drawn, axes = record.plot(name, ax=ax)
    assert drawn is figure
    assert axes is ax
    assert ax.get_xlabel()
    assert ax.lines or ax.collections or ax.patches
    figure.savefig(io.BytesIO(), format="svg")


def test_plot_draws_the_numbers_of_the_record() -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    figure, ax = Weather("n", 7.5).plot()
    line: Any = ax.lines[0]
    assert list(line.get_xdata()) == [1.0, 2.0, 3.0]
    assert line.get_ydata()[2] == 7.5
    (shade,) = ax.collections
    assert shade.get_paths()[0].get_extents().bounds == (1.0, 3.0, 2.0, 6.0)
    pyplot.close(figure)
    with pytest.raises(InputError, match=r"of this forecast \(days, towns\), got 'moon'"):
        Weather("n", 7.5).plot("moon")
    with pytest.raises(InputError, match="got a measures, which has none: use to_frame"):
        measures().plot()
    spectrum = make_diagnosis().subjects[0].spectrum
    assert spectrum is not None
    figure, ax = make_diagnosis().plot("spectrum")
    assert tuple(ax.lines[0].get_ydata()) == spectrum.raw
    assert ax.get_xscale() == ax.get_yscale() == "log"
    pyplot.close(figure)


def _changes(record: Record) -> dict[str, tuple[float, float, float]]:
    """The rows of the chart `changes`, in the page and in the plot too: where each dot is, and its line."""
    (chart,) = charts_of(record.blocks()).values()
    assert isinstance(chart, Intervals)
    assert chart.title in report.to_html(record)
    assert all(name in report.to_html(record) for name, *_ in chart.rows)
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib.figure import Figure

    _, ax = record.plot(ax=Figure().subplots())
    assert list(ax.containers[0][0].get_xdata()) == [value for _, value, _, _ in chart.rows]
    return {name: (value, low, high) for name, value, low, high in chart.rows}


def test_a_repair_is_drawn_less_what_is_isotropic_and_an_edit_of_a_head_as_shares_of_before() -> None:
    cosines = [Measurement("mean_cosine", value, reference=0.0) for value in (0.6, -0.1)]
    before, after = zip(cosines, [Measurement("isoscore", value, reference=0.9) for value in (0.4, 0.8)], strict=True)
    changes = _changes(replace(REPAIRED, before=before, after=after))
    assert changes["Mean cosine"] == (-0.1, -0.1, 0.6)
    assert changes["IsoScore"] == pytest.approx((-0.1, -0.5, -0.1))
    assert not charts_of(REPAIRED.blocks()), "what is undefined after it has no dot"
    changes = _changes(HEAD)
    assert changes["int8, one scale"] == (2.0, 1.0, 2.0)
    assert changes["mean norm"] == (0.75, 0.75, 1.0)
    assert changes["norm of the mean row"] == (0.0, 0.0, 1.0)


def test_an_edit_of_tokens_is_drawn_as_norms_beside_those_of_the_other_rows() -> None:
    assert not charts_of(TOKENS.blocks()), "norms that were not finite have no line to start from"
    tensors = (replace(TOKENS.tensors[0], mean_norm_before=0.5),)
    assert _changes(replace(TOKENS, tensors=tensors)) == {"table": (0.95, 0.25, 0.95)}


def test_a_check_is_drawn_as_distances_to_the_bars() -> None:
    small = (Bar("a", 4.0, "max", 5.0, True), Bar("b", 0.4, "min", 0.5, False), Bar("c", 0.0, "max", 0.0, True))
    changes = _changes(Check("model", False, (*small, Bar("d", 1e308, "max", -1e308, False))))
    assert changes["a"] == pytest.approx((-0.2, -0.2, 0.0))
    assert changes["b"] == pytest.approx((0.2, 0.0, 0.2))
    assert changes["c"] == (0.0, 0.0, 0.0)
    assert changes["d"] == (2.0, 0.0, 2.0)


ROWS = (("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"))
GROUPED = Table(("name", "n"), ROWS, ("n",), groups=(("First", 2), ("Second", 1)), grouped_by="kind")


def _document(*blocks: Block) -> Document:
    return Document("d", "test", blocks)


def test_groups_of_rows_have_their_titles_in_every_view() -> None:
    assert GROUPED.runs() == [("First", (("a", "1"), ("b", "2"))), ("Second", (("c", "3"),)), ("", (("d", "4"),))]
    page = to_page(_document(GROUPED))
    ET.fromstring(page)
    (table,) = re.findall("<table.*?</table>", page, re.DOTALL)
    assert table.count("<tbody>") == 3
    assert '<th scope="col">kind</th><th scope="col">name</th>' in table
    assert re.findall(r'<tr class="more">.*?<th scope="row">(\w)</th>', table) == ["b"]
    assert '<summary>First <span class="muted">1 more</span></summary>' in table
    assert '<th scope="rowgroup">Second</th>' in table
    assert " ".join(printed(_document(GROUPED)).split()) == "name n First a 1 b 2 Second c 3 d 4"
    rows = ["| First |  |", "| a | 1 |", "| b | 2 |", "| Second |  |", "| c | 3 |", "| d | 4 |"]
    assert markdown_of(_document(GROUPED)).splitlines()[2:] == rows


def test_what_a_page_folds_a_terminal_may_keep() -> None:
    for kept in (False, True):
        document = _document(Folded("More", (Text("within"),), in_terminal=kept))
        assert ("within" in printed(document)) == kept
        assert ("<details>" in markdown_of(document)) != kept
        assert "<details><summary>More</summary>" in to_page(document)


@pytest.mark.parametrize("block", [Text, lambda text: Heading(text, 1)], ids=["text", "verdict"])
def test_a_command_is_code_to_copy(block: Any) -> None:
    document = _document(block("Run `uncone check A --max <b>` or `rm *` & see."))
    page = to_page(document)
    assert '<code class="command">uncone check A --max &lt;b&gt;</code> or `rm *` &amp; see.' in page
    assert page.count('class="command"') == 1
    assert "script-src 'sha256-" in html.unescape(page)
    assert "Run `uncone check A --max <b>` or \\`rm \\*\\` \\& see." in markdown_of(document)
    assert "<script" not in to_page(document, live=False)


def test_a_command_in_a_bullet_or_a_cell_is_not_offered_to_copy() -> None:
    hostile = "`uncone x; curl evil`"  # a token may be called so
    blocks = (Bullets((hostile,)), Table(("t",), ((Cell(hostile, tone="token"),), (hostile,))))
    assert 'class="command"' not in to_page(_document(*blocks))
    assert "<script" not in to_page(_document(*blocks))


def test_what_a_function_returns_of_a_record_is_shown_too() -> None:
    found = unreachable_tokens(np.vstack([np.eye(4), np.full((1, 4), 0.1)]))
    assert found.verdict in " ".join(printed(found).split())
    assert html.escape(found.verdict) in report.to_html(found)
    assert found.verdict in report.to_markdown(found)
    with pytest.raises(InputError, match="a part of one that has blocks, got _Blocks: print"):
        report.to_html(_Blocks())


class _Blocks:
    def blocks(self) -> tuple[Block, ...]:
        return ()
