"""A heat map in every view: shades, blanks, tips, and text that stays text."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tests.report.printed import printed
from tests.report.records_example import HOSTILE
from tests.report.test_html import _assert_harmless
from uncone.records.blocks import Document, Figure, HeatMap
from uncone.records.text import visible
from uncone.report import plot
from uncone.report.html import to_page
from uncone.report.markdown import markdown_of

_NUMBERS = ((1.0, 1.0, 1.0), (0.5, None, 0.0))
MAP = HeatMap("profiles", "Parts", "step", "rank", "share", (0.0, 10.0, 30.0), (1.0, 4.0), _NUMBERS, spark="spectrum")
MAP = replace(MAP, caption="Dark is much.")


def _document(chart: HeatMap) -> Document:
    return Document("d", "test", (Figure(chart.title, (chart,), spark="Over training:"),))


def test_neighbours_meet_halfway() -> None:
    assert MAP.edges(MAP.x, log=False) == (0.0, 5.0, 20.0, 30.0)
    assert MAP.edges(MAP.y, log=True) == (1.0, 2.0, 4.0)
    assert MAP.edges((7.0,), log=False) == (6.5, 7.5)
    assert MAP.limits() == (0.0, 1.0)
    assert replace(MAP, values=((None,) * 3,) * 2).limits() == (0.0, 1.0)


def test_the_page_has_a_shade_for_each_number_and_none_for_a_blank() -> None:
    (drawn,) = re.findall('<svg class="chart".*?</svg>', to_page(_document(MAP)), re.DOTALL)
    ET.fromstring(drawn)
    cells = {
        opacity: d.count("M")
        for d, opacity in re.findall(r'class="heat" d="([^"]*)" fill-opacity="([\d.]+)"', drawn)
        if len(d) > 28 or " 4h" not in d
    }
    assert sum(cells.values()) == 5, "six cells of which one is blank"
    assert cells["1.00"] == 3
    tips = re.findall(r'class="column"[^>]*><title>(.*?)</title>', drawn)
    assert tips == ["step 0; 1: 1, 4: 0.500", "step 10; 1: 1", "step 30; 1: 1, 4: 0"]


def test_thousands_of_cells_take_few_bytes() -> None:
    x, y = tuple(map(float, range(150))), tuple(map(float, range(1, 25)))
    large = replace(MAP, x=x, y=y, values=tuple(tuple((i * j) % 7 / 7 for i in range(150)) for j in range(24)))
    assert len(to_page(_document(large))) - len(to_page(_document(MAP))) < 150_000


def test_a_terminal_and_markdown_have_shades() -> None:
    shown = printed(_document(MAP), 200)
    assert "spectrum                 4  ▓ ░\n" in shown
    assert "                         1  ███\n" in shown
    assert "░ 0 to █ 1" in shown
    assert "*" in printed(_document(MAP), 200, "ascii")
    assert "███" in markdown_of(_document(MAP))
    assert "█" not in printed(_document(replace(MAP, spark="")), 200)


def test_a_map_without_places_or_differences_is_drawn() -> None:
    ET.fromstring(to_page(_document(replace(MAP, x=(), values=((), ())))))
    even = replace(MAP, x=(5.0,), y=(1.0,), values=((2.0,),), log_y=True)
    ET.fromstring(to_page(_document(replace(even, y=(1.0, 2.0), values=((2.0,), (2.0,))))))


@pytest.mark.parametrize("words", HOSTILE, ids=ascii)
def test_hostile_text_in_a_map_is_text(words: str) -> None:
    hostile = HeatMap("m", words, words, words, words, MAP.x, MAP.y, MAP.values, caption=words, spark=words)
    assert visible(words) in _assert_harmless(to_page(_document(hostile))).text
    assert not {"\x1b", "\u202e", "\x07"} & set(printed(_document(hostile), 200))


def test_matplotlib_draws_the_numbers() -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib.figure import Figure as Drawing

    _, ax = plot.draw(replace(MAP, log_y=True), Drawing().subplots())
    (mesh,) = ax.collections
    assert mesh.get_array().tolist() == [[1.0, 1.0, 1.0], [0.5, None, 0.0]]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_yscale()) == ("step", "rank", "log")
    assert plot.charts_of(_document(MAP).blocks) == {"profiles": MAP}
