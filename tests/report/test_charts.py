"""Charts: well-formed, with a name and a description, and true to the record."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.records_example import make_groups, make_picture, make_subject
from uncone.records.blocks import Chart, Curve, Figure, Intervals, Shade
from uncone.records.charts import bin_charts, norms_chart, norms_compared, spectrum_chart
from uncone.records.parts import Groups, Norms, Spectrum
from uncone.report.cone import MOST_POINTS, cone_panels, group_classes, legends, sample, wedge
from uncone.report.spark import spark_lines
from uncone.report.svg import Axis, draw, limits

SVG = "{http://www.w3.org/2000/svg}"
Drawing = tuple[str, str, str]  # title, drawing and caption


def _drawn(chart: Chart) -> Drawing:
    return chart.title, draw(chart, "u"), chart.caption


def _charts() -> list[Drawing]:
    subject: Any = make_subject()
    shapes = (spectrum_chart(subject.spectrum), norms_chart(subject.norms))
    charts = [*bin_charts([("bins", "bins", subject.groups.bins)]), *(chart for chart in shapes if chart is not None)]
    rows = (("center", 0.1, -0.1, 0.3), ("whiten", -0.5, -0.6, -0.4))
    changes = Intervals("c", "Changes", "change", rows, caption="A caption.")
    intervals = (changes.title, draw(changes, "i"), changes.caption)
    return [*cone_panels(subject.picture, "c"), *map(_drawn, charts), intervals]


def test_every_chart_is_accessible_xml() -> None:
    bins = ["Cosine to reserved rows", "Cosine within the bin", "Norm"]
    titles = ["As stored", "Mean row subtracted", *bins, "Spectrum", "Norms", "Changes"]
    assert [title for title, _, _ in _charts()] == titles
    for title, svg, _ in _charts():
        root = ET.fromstring(svg)
        assert (root.tag, root.get("role")) == (SVG + "svg", "img"), title
        names = {element.get("id"): element.text for element in root if element.tag in (SVG + "title", SVG + "desc")}
        assert list(names) == (root.get("aria-labelledby") or "").split(), title
        assert all(names.values()), title
        words = " ".join(element.text or "" for element in root.iter(SVG + "text"))
        assert re.search(r"[a-z]{2,}", words), f"{title}: no axis label"
        assert not re.findall(r"nan|inf\b|<script", svg), title


@given(st.lists(st.integers(0, 3), max_size=400), st.integers(8, 100))
def test_sample_is_bounded_sorted_and_keeps_small_groups(groups: list[int], most: int) -> None:
    chosen = sample(groups, 4, most)
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= most
    for group in range(4):
        size, kept = groups.count(group), sum(groups[i] == group for i in chosen)
        assert kept >= min(size, most // 8)
    if len(groups) <= most:
        assert chosen == list(range(len(groups)))


def test_a_large_picture_is_drawn_in_part_and_says_so() -> None:
    picture = make_picture(32768, labels=(None,) * 32768)
    entries = legends(picture)
    drawn = sum(entry.drawn for entry in entries)
    assert MOST_POINTS - 10 <= drawn <= MOST_POINTS
    assert sum(entry.pictured for entry in entries) == 32768
    for _, svg, _ in cone_panels(picture, "c"):
        assert svg.count("h.01") == drawn


def test_the_reserved_rows_have_their_colour_and_the_largest_group_is_quiet() -> None:
    assert group_classes(make_picture()) == ["g0", "g1", "g2"]
    assert group_classes(replace(make_picture(), group_names=("a", "b", "Reserved"))) == ["g0", "g2", "g1"]


def test_wedge_of_a_known_cone() -> None:
    found = wedge([(math.cos(0.5 + t), math.sin(0.5 + t)) for t in (-0.2, -0.1, 0.0, 0.1, 0.2)])
    assert found is not None
    assert found == pytest.approx((0.5, 0.2))
    assert wedge([(1.0, 0.0), (-1.0, 0.1), (0.0, 1.0), (0.0, -1.0)]) is None
    assert wedge([(0.0, 0.0)]) is None


def test_the_cone_is_shaded_only_where_there_is_one() -> None:
    (_, raw, caption), (_, centered, without) = cone_panels(make_picture(shift=5.0), "c")
    assert 'class="cone"' in raw
    assert "95%" in caption
    assert 'class="cone"' not in centered
    assert "no cone narrower than 180° holds 95% of the rows" in without


def test_raw_rows_point_to_the_right_whatever_the_sign_of_the_direction() -> None:
    left, right = (cone_panels(make_picture(shift=shift), "c")[0][1] for shift in (-5.0, 5.0))
    at = [re.search(r'class="origin" d="M([\d.]+)', svg) for svg in (left, right)]
    assert all(match is not None and float(match.group(1)) < 80 for match in at)


def test_bins_show_their_values_and_mark_the_reserved() -> None:
    _, cosine, caption = _drawn(bin_charts([("bins", "bins", make_groups().bins)])[0])
    assert cosine.count('class="band"') == 1
    assert cosine.count("dots bin reserved") == 1
    assert cosine.count('class="line bins"') == 2  # the bin without a reading breaks the line
    assert "0.450" in caption
    assert "ids 5,000 to 5,999: 0.450" in cosine


def test_bins_without_reserved_rows_have_no_such_panel() -> None:
    plain = Groups(1000, "", None, tuple(replace(group, cosine_to_reserved=None) for group in make_groups().bins))
    assert [chart.title for chart in bin_charts([("bins", "bins", plain.bins)])] == ["Cosine within the bin", "Norm"]
    assert bin_charts([("bins", "bins", ())]) == []


def test_spectrum_leaves_out_rounding_and_says_so() -> None:
    chart = spectrum_chart(Spectrum((4.0, 1.0, 1e-14, 0.0), (1.0, 0.9, 0.0, -1e-18), (1.0, 0.9, 0.8, 0.7)))
    assert chart is not None
    assert "Not drawn: 4 values" in chart.caption
    assert "4 times" in chart.caption
    assert spectrum_chart(Spectrum((), (), ())) is None
    assert spectrum_chart(Spectrum((1.0,), (1.0,), (1.0,))) is None


def test_bars_show_density_so_that_a_wide_bin_does_not_look_full() -> None:
    chart = norms_chart(Norms(0.0, 1.0, 8.0, (0.0, 4.0, 5.0, 6.0, 8.0), (100, 100, 100, 0)))
    assert chart is not None
    path = re.search(r'class="bars" d="([^"]+)"', draw(chart, "n"))
    assert path is not None
    bottom_to_top = [(float(a), float(b)) for a, b in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", path.group(1))]
    heights = [bottom - top for bottom, top in bottom_to_top]
    assert len(heights) == 3
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.02)


def _of_unit_rows(bins: int = 60) -> Norms:
    low, high = 1 - 6e-8, 1 + 6e-8
    edges = tuple(low + (high - low) * at / bins for at in range(bins + 1))
    return Norms(low, 1 - 1e-8, high, edges, (10,) * bins)


def test_unit_rows_have_one_bar_and_ticks_that_differ() -> None:
    chart = norms_chart(_of_unit_rows())
    assert chart is not None
    assert chart.bars == pytest.approx((600,))
    assert chart.edges == pytest.approx((0.99995, 1.00005), abs=1e-6)
    ticks = _ticks(draw(chart, "n"), "middle")
    assert len(set(ticks)) == len(ticks) > 2
    assert all(0.9 < float(tick) < 1.1 for tick in ticks)
    assert chart.caption == "600 rows, norms from 0.9999999 to 1.0000001, mean 0.99999999."


def test_unit_rows_beside_others_are_no_higher_than_all_of_them() -> None:
    raw = Norms(1.0, 1.5, 2.0, tuple(1 + at / 60 for at in range(61)), (10,) * 60)
    chart = norms_compared([("A", "a", raw), ("B", "b", _of_unit_rows())])
    assert chart is not None
    assert chart.y_label == "% of rows per 0.017 of norm"
    first, second = chart.curves
    assert first.y[1] == pytest.approx(100 / 60)
    assert max(y for y in second.y if y is not None) == pytest.approx(100)
    assert chart.caption == "Mean norm: A 1.50; B 0.99999999."


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ((0.9011, 0.9012, 0.9013), "▁▁▁  0.901 to 0.901"),
        ((1 - 3e-8, 1 - 2e-8, 1 - 1e-8), "▁▁▁  0.99999997 to 0.99999999"),
        ((0.9, 0.96, 1.0), "▁▅█  0.900 to 1"),
    ],
)
def test_a_curve_within_what_is_printed_is_flat(values: tuple[float, ...], line: str) -> None:
    (told,) = spark_lines(Figure("f", (_chart(values, spark="v"),)))
    assert told.endswith(f" {line}")


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(3, 8))
def test_linear_ticks_are_few_sorted_and_inside(low: float, width: float, most: int) -> None:
    ticks = Axis(low, low + width, 0.0, 100.0).ticks(most)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= most + 1
    slack = 1e-6 * width
    assert all(low - slack <= tick <= low + width + slack for tick in ticks)


@given(st.floats(1e-9, 1e6), st.floats(1.5, 1e12))
def test_log_ticks_are_inside(low: float, factor: float) -> None:
    ticks = Axis(low, low * factor, 0.0, 100.0, is_log=True).ticks(5)
    assert all(0.99 * low <= tick <= 1.01 * low * factor for tick in ticks)


def _chart(values: tuple[float | None, ...], **fields: object) -> Chart:
    """A line through `values` at the places 0, 1, 2, ..."""
    places = tuple(map(float, range(len(values))))
    return Chart("c", "C", "x", "y", (Curve("v", places, values),), **fields)  # type: ignore[arg-type]


def _ticks(svg: str, side: str) -> list[str]:
    """The numbers at the vertical axis (`end`) or at the horizontal one (`middle`)."""
    ticks = (text for text in ET.fromstring(svg).iter(f"{SVG}text") if text.get("class") == "tick")
    return [tick.text or "" for tick in ticks if tick.get("text-anchor") == side]


@pytest.mark.parametrize(("points", "is_line"), [(1, False), (2, False), (4, False), (5, True), (60, True)])
def test_four_points_or_fewer_are_dots(points: int, is_line: bool) -> None:
    values = tuple(1.0 + place for place in range(points))
    for gaps in ((), (None,) * 9):  # points without a value do not make a line
        drawn = draw(_chart((*values, *gaps)), "c")
        assert ('class="line' in drawn) == is_line
        assert drawn.count("dots bin") == (0 if is_line else points)
    steps = Curve("v", (0.0, 0.0, 1.0, 1.0), (0.0, 2.0, 2.0, 0.0))
    assert 'class="line' in draw(Chart("c", "C", "x", "y", (steps,)), "c")


FROM_ZERO = [(0.5, 1.0, 0.7), (0.74, 1.0, 0.9), (-1.0, -0.5, -0.7)]
BROKEN = [(0.76, 1.0, 0.9), (-1.0, -0.9, -0.95)]


@pytest.mark.parametrize("values", [*FROM_ZERO, *BROKEN, (-0.5, 1.0, 0.7)])
def test_an_axis_begins_at_zero_or_is_seen_to_be_broken(values: tuple[float, ...]) -> None:
    drawn, is_broken = draw(_chart(values), "c"), values in BROKEN
    assert (0.0 in limits(_chart(values))[1]) == (values in FROM_ZERO)
    assert ('class="broken"' in drawn) == is_broken
    assert ("A broken axis does not begin at 0" in drawn) == is_broken
    assert ("0" in _ticks(drawn, "end")) != is_broken


def test_no_break_is_drawn_on_logarithms_or_ids() -> None:
    far = Curve("v", (1000.0, 1001.0), (0.0, 1.0))
    assert 'class="broken"' in draw(Chart("c", "C", "x", "y", (far,)), "c")
    assert 'class="broken"' not in draw(Chart("c", "C", "row id", "y", (far,), x_limits=(1000.0, 1001.0)), "c")
    assert 'class="broken"' not in draw(_chart((98.0, 99.0, 100.0), log_y=True), "c")


def test_norms_are_read_from_zero_and_equal_ones_have_no_histogram() -> None:
    assert norms_chart(Norms(1.0, 1.0, 1.0, (1.0, 1.0), (5,))) is None
    assert norms_chart(Norms(0.0, 0.0, 0.0, (), ())) is None
    chart = norms_chart(Norms(0.4, 0.7, 1.0, (0.4, 0.6, 0.8, 1.0), (1, 2, 3)))
    assert chart is not None
    assert limits(chart)[0] == (0.0, 1.0)
    assert _ticks(draw(chart, "c"), "middle")[0] == "0"


def test_a_shade_lies_between_its_lines_and_within_the_axes() -> None:
    shade = Shade((1.0, 10.0, 100.0), (1.0, 2.0, 2.5), (3.0, 4.0, 9.0))
    chart = Chart("c", "C", "x", "y", (Curve("a", (1.0, 10.0), (2.0, 3.0)),), shades=(shade,), log_x=True)
    (x_low, x_high), (y_low, y_high) = limits(chart)
    assert (x_low, x_high) == (1.0, 100.0)
    assert y_low <= 1.0
    assert y_high >= 9.0
    band = next(one for one in ET.fromstring(draw(chart, "u")).iter(SVG + "path") if one.get("class") == "band")
    points = [tuple(map(float, at.split())) for at in (band.get("d") or "").strip("MZ").split("L")]
    across, down = zip(*points, strict=True)
    assert across == tuple(reversed(across))
    assert down[0] < down[-1], "first along the upper line, then back along the lower one"
    assert down[2] == min(down)


def test_dots_without_a_line() -> None:
    values = tuple(map(float, range(9)))
    curves = [Curve("a", values, values, dots=True, tips=("t",) * 9, line=line) for line in (True, False)]
    with_line, without = (draw(Chart("c", "C", "x", "y", (curve,)), "u") for curve in curves)
    assert 'class="line raw"' in with_line
    assert 'class="line raw"' not in without
    assert with_line.count("h.01") == without.count("h.01") == 9


def test_a_long_label_does_not_touch_its_line() -> None:
    charts = tuple(_chart((1.0, 2.0), spark=label) for label in ("cosine to special tokens", "mean norm"))
    long, short = spark_lines(Figure("f", charts))
    assert long.startswith("cosine to special tokens ▁█  ")
    assert short.index("▁") == long.index("▁")
