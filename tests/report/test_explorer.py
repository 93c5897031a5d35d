"""The picture to explore: its numbers are those of the record, and nothing in it can become markup."""

import base64
import hashlib
import json
import math
import re
import struct
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.records_example import HOSTILE, coordinates, make_diagnosis, make_hostile, make_picture
from uncone.diagnosis.record import Diagnosis
from uncone.records.parts import Picture
from uncone.records.text import shortened
from uncone.report import to_html
from uncone.report.cone import beyond, outside
from uncone.report.explorer import explorer
from uncone.report.html import STILL

SHARES = ((0.8, 0.9), (0.75, 1.0))


class _Scripts(HTMLParser):
    """The script elements of a page, as a browser's parser cuts them: (type, text)."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str | None, str]] = []
        self._open: str | None = None
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self._inside = True
            self.found.append((dict(attrs).get("type"), ""))
            assert "src" not in dict(attrs)

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1] = (self.found[-1][0], self.found[-1][1] + data)


def _data(picture: Picture) -> dict[str, Any]:
    ((kind, text),) = _Scripts(explorer(picture, SHARES, "u")).found
    assert kind == "application/json"
    found: dict[str, Any] = json.loads(text)
    return found


def _shades(picture: Picture, name: str) -> list[int]:
    return list(base64.b64decode(_data(picture)["shades"][name]))


def _with_norms(picture: Picture, norms: list[int]) -> Picture:
    return replace(picture, norms=base64.b64encode(struct.pack(f"<{len(norms)}H", *norms)).decode(), norm_scale=0.01)


@pytest.mark.parametrize("name", ["cone.js", "copy.js"])
def test_the_script_is_short_and_calls_for_nothing(name: str) -> None:
    code = resources.files("uncone.report").joinpath(name).read_text(encoding="utf-8")
    assert code.isascii()
    assert len(code.splitlines()) <= 300
    assert max(map(len, code.splitlines())) <= 160
    assert code.startswith('"use strict";')
    markup = ("</script", "<!--", "]]>", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write")
    runs = ("eval(", "Function(", "setTimeout(", "import(")
    asks = ("fetch", "XMLHttp", "WebSocket", "sendBeacon", "http", "localStorage", "cookie", "window.open", "location")
    assert [word for word in (*markup, *runs, *asks) if word in code] == []


def test_the_policy_lets_this_script_run_and_no_other() -> None:
    page = to_html(make_diagnosis())
    codes = [text for kind, text in _Scripts(page).found if kind is None]
    assert len(codes) == 1
    digest = base64.b64encode(hashlib.sha256(codes[0].encode()).digest()).decode()
    assert f'content="{STILL.replace(chr(39), "&#x27;")}; script-src &#x27;sha256-{digest}&#x27;"' in page
    assert "unsafe-inline" not in page.partition("script-src")[2].partition('"')[0]
    assert page.index("Content-Security-Policy") < page.index("<script")


def test_a_page_without_a_picture_has_no_script() -> None:
    for subjects in ((), (replace(make_diagnosis().subjects[0], picture=None, findings=()),)):
        page = to_html(Diagnosis("n", "Nothing.", subjects))
        assert "<script" not in page
        assert "script-src" not in page


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_tokens_stay_inside_the_data(text: str) -> None:
    (code, _), (kind, numbers) = _Scripts(to_html(make_hostile(text))).found
    assert (code, kind) == (None, "application/json")
    data = json.loads(numbers)
    assert set(data["labels"]) == {None, shortened(text, 80)}
    assert data["names"] == [shortened(name, 80) for name in (text, text + " reserved", text + "!")]


@given(st.lists(st.text(st.characters(codec=None, categories=None), max_size=20), min_size=3, max_size=3))
@settings(deadline=None, max_examples=50)
def test_any_token_reads_the_same_and_cannot_end_the_element(texts: list[str]) -> None:
    (_, text), *others = _Scripts(explorer(make_picture(3, labels=tuple(texts)), ((), ()), "u")).found
    assert not others
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text)["labels"] == [shortened(label, 80) for label in texts]


def test_the_numbers_are_those_of_the_record() -> None:
    picture = replace(_with_norms(make_picture(), list(range(60))), total=99, counts=tuple(range(60)))
    picture = replace(picture, ids=tuple(range(7, 127, 2)))
    data = _data(picture)
    assert list(accumulate(data["steps"])) == list(picture.ids)
    assert data["labels"] == list(picture.labels)
    assert data["groups"] == list(picture.groups)
    assert data["counts"] == list(picture.counts or ())
    assert (data["raw"], data["centered"], data["norms"]) == (picture.raw, picture.centered, picture.norms)
    assert data["units"] == {"raw": picture.raw_scale, "centered": picture.centered_scale, "norm": 0.01}
    assert (data["total"], data["names"]) == (99, list(picture.group_names))
    for mode in ("raw", "centered"):
        for axis, values in enumerate(zip(*picture.coordinates(centered=mode == "centered"), strict=True)):
            frame = {name: values[axis] for name, values in data["frames"][mode].items()}
            assert frame["low"] == min(0, min(values))
            assert frame["high"] == max(0, max(values))
            assert frame["middle"] == pytest.approx((frame["low"] + frame["high"]) / 2)
            assert frame["mean"] == pytest.approx(sum(values) / 60)


def test_rows_without_tokens_have_no_list_of_labels() -> None:
    plain = make_picture(labels=(None,) * 60)
    assert _data(plain)["labels"] is None
    assert "Find a row" in explorer(plain, ((), ()), "u")
    shades = _shades(plain, "group")
    order = [shades[plain.groups.index(group)] for group in range(3)]
    assert order == [0, 5, 4], "the reserved group is drawn last, and the largest first"


def test_ids_are_coloured_evenly() -> None:
    picture = replace(make_picture(16), ids=tuple(range(100, 1700, 100)))
    assert _shades(picture, "id") == list(range(1, 17))
    assert "100</span><span>850</span>" in explorer(picture, ((), ()), "u")
    assert set(_shades(replace(make_picture(2), ids=(5, 5)), "id")) == {1}


def test_norms_are_coloured_between_their_percentiles() -> None:
    norms = [100] * 5 + list(range(100, 1100)) + [60000] * 2
    shades = _shades(_with_norms(make_picture(len(norms)), norms), "norm")
    assert shades[:5] == [1] * 5
    assert shades[-2:] == [16, 16]
    assert shades[505] in (8, 9)
    page = explorer(_with_norms(make_picture(len(norms)), norms), ((), ()), "u")
    assert "linear from the 1st to the 99th percentile" in page
    assert 'value="norm"' not in explorer(_with_norms(make_picture(3), [7, 7, 7]), ((), ()), "u")


def test_frequencies_are_coloured_by_their_logarithm_and_never_by_a_stand_in() -> None:
    picture = replace(make_picture(4), counts=(0, 1, 10, 1024))
    assert _shades(picture, "count") == [0, 1, 6, 16]
    page = explorer(picture, ((), ()), "u")
    assert "Occurrences, logarithmic; grey: none" in page
    assert "<span>1</span><span>32</span><span>1,024</span>" in page
    for counts in (None, (0,) * 5):
        plain = replace(make_picture(5), counts=counts)
        assert "frequency" not in explorer(plain, ((), ()), "u")
        assert "count" not in _data(plain)["shades"]


def test_a_known_cone_has_its_rim() -> None:
    tilt, far = math.radians(20), 3.0
    along, across = far * math.cos(tilt), far * math.sin(tilt)
    around = [math.tau * k / 40 for k in range(40)]
    raw, scale = coordinates([(along, across * math.cos(t), across * math.sin(t)) for t in around])
    picture = replace(make_picture(40), raw=raw, raw_scale=scale)
    plane, space = _data(picture)["rims"]["raw"]
    assert len(space) == 49
    for x, y, z in space:
        assert x == pytest.approx(far, rel=1e-3), "the cone ends where the farthest row may lie"
        assert math.atan2(math.hypot(y, z), x) == pytest.approx(tilt, rel=1e-3)
    edges = [math.atan2(y, x) for x, y, _ in plane]
    assert min(edges) == pytest.approx(-max(edges), abs=1e-3)
    assert max(edges) <= tilt + 1e-3
    assert "within ±20° of one direction here" in explorer(picture, ((), ()), "u")


def test_a_round_cloud_has_no_cone() -> None:
    zeros = base64.b64encode(bytes(6 * 60)).decode()
    assert _data(replace(make_picture(), raw=zeros, raw_scale=1.0))["rims"] == {"raw": [[], []], "centered": [[], []]}


def test_each_view_says_how_much_it_shows_and_a_sample_that_it_is_one() -> None:
    page = explorer(make_picture(), SHARES, "u")
    raw, centred = "hold 80% of the rows’ squared length", "hold 75% of the rows’ variance"
    for view, words in (("raw2", raw), ("raw3", "hold 90%"), ("centered2", centred)):
        assert words in page.partition(f'data-note="{view}"')[2].partition("</p>")[0]
    assert "directions hold" not in explorer(make_picture(), ((), ()), "u")
    whole = explorer(make_picture(), (SHARES[0], (1 - 1e-9, 1.0)), "u")
    assert "two directions hold &lt;100% of the rows’ variance" in whole, "rounded to a whole that it did not reach"
    assert "all 60 rows" in explorer(make_picture(), ((), ()), "u")
    assert "60 of 128,256 rows, a sample" in explorer(replace(make_picture(), total=128_256), ((), ()), "u")


@pytest.mark.slow
def test_the_page_of_the_packaged_model_is_small(of_minilm: Diagnosis) -> None:
    picture = of_minilm.subjects[0].picture
    assert picture is not None
    counts = tuple(10_000_000 // (1 + i) for i in picture.ids)
    counted = replace(of_minilm, subjects=(replace(of_minilm.subjects[0], picture=replace(picture, counts=counts)),))
    assert len(picture.ids) == 30_522
    assert len(to_html(counted).encode()) <= 3e6


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 9e289])
def test_extreme_scales_give_finite_numbers(scale: float) -> None:
    picture = _with_norms(make_picture(60), list(range(60)))
    data = _data(replace(picture, raw_scale=scale, centered_scale=scale, norm_scale=scale))
    numbers = [x for mode in ("raw", "centered") for rim in data["rims"][mode] for point in rim for x in point]
    assert all(map(math.isfinite, [*numbers, *data["frames"]["raw"]["mean"]]))


def test_one_row_far_away_leaves_the_others_their_room_and_is_counted() -> None:
    even = [(math.cos(k), math.sin(k), 0.0) for k in range(100)]
    assert beyond(even) == []
    assert beyond([*even, (3.0, 0.0, 0.0)]) == [], "a third of the picture is room enough"
    assert beyond([*even[:50], (90.0, 0.0, 0.0), *even[50:]]) == [50]
    assert beyond([*even, (90.0, 0.0, 0.0), (0.0, 80.0, 0.0)]) == [], "two of a hundred are no single row"
    assert beyond([(x + 50, y, z) for x, y, z in (*even, (9.0, 0.0, 0.0))]) == [], "the origin needs more room"
    assert beyond([(1.0, 1.0, 1.0)] * 50) == []
    assert outside(0) == ""
    assert outside(1) == " 1 distant row is outside."
    shown = " 2 distant rows are outside (“Whole picture” shows them)."
    assert outside(2, " (“Whole picture” shows {})") == shown
