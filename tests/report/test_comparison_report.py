"""Reports of a comparison: complete, harmless whatever the records hold, and the same from saved JSON."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.printed import printed
from tests.report.records_example import HOSTILE, make_diagnosis, make_empty, make_groups, make_hostile, make_subject
from tests.report.test_html import HIDDEN, _assert_harmless, _assert_labelled
from uncone import compare, report
from uncone.comparison.record import Comparison
from uncone.diagnosis.record import Diagnosis, Subject
from uncone.records.blocks import Chart
from uncone.records.parts import Finding, Group, Groups, Measurement, Norms, Spectrum
from uncone.records.text import visible
from uncone.report.html import STILL
from uncone.report.plot import charts_of
from uncone.report.svg import draw

INTERVAL = (0.0175, 0.0187)


def make_other() -> Diagnosis:
    """The example, drifted: another mean cosine with an interval, drift for a tail, other norms and bins."""
    subject = make_subject("input")
    cosine = replace(subject.measurements[0], value=0.61, interval=(0.6, 0.62))
    isoscore = replace(subject.measurements[1], value=0.9997)
    drift = Finding("common_direction_drift", "severe", "It drifts.", measures=("mean_cosine",), extent=0.61)
    groups = make_groups()
    bins = tuple(replace(g, mean_cosine=0.5, cosine_to_reserved=None if g.start == 3000 else 0.6) for g in groups.bins)
    norms = Norms(0.8, 1.5, 2.0, (0.8, 1.4, 1.6, 2.0), (1000, 3000, 2000))
    falling = tuple(2.0 / (k + 1) for k in range(8))
    moved = replace(subject, norms=norms, spectrum=Spectrum((20.0, *falling[1:]), falling, ()))
    moved = replace(moved, findings=(*subject.findings[2:], drift), groups=replace(groups, bins=bins))
    moved = replace(moved, measurements=(cosine, isoscore, *subject.measurements[2:]))
    return Diagnosis("drifted", "It drifts.", (moved,), (), {"uncone": "0.1.1"})


def make_comparison(count: int = 2) -> Comparison:
    """The example, its drifted twin, and further copies of the first."""
    return compare([make_diagnosis(), make_other(), *[make_diagnosis()] * (count - 2)])


def _hostile(text: str) -> Diagnosis:
    """The hostile example with measures of different names."""
    hostile = make_hostile(text)
    (subject,) = hostile.subjects
    first, second = subject.measurements
    return replace(hostile, subjects=(replace(subject, measurements=(first, replace(second, name=f"{text}!"))),))


def test_the_terminal_has_verdict_values_differences_and_distances() -> None:
    text = printed(make_comparison())
    lines = text.splitlines()
    assert lines[0].startswith("MIXED")
    mixed = "drifted is mixed compared with example-model: common direction drift of the input token table new"
    assert mixed in " ".join(text.split())
    assert max(map(len, lines)) <= 80
    assert "cosine to reserved  A  ▁▁▂ ▄▆  -0.0500 to 0.450" in text
    assert "                    B  ███ ██  0.600 to 0.600" in text, "on the scale of both"
    wide = printed(make_comparison(), width=200)
    row = next(line for line in wide.splitlines() if line.startswith("Mean cosine"))
    cells = ["Mean cosine", "0.0181", "0.610", "+0.592", "↑ worse", "+0.0181", "+0.610"]
    assert re.split(r"\s{2,}", row.strip()) == cells
    below = wide.splitlines()[wide.splitlines().index(row) + 1]
    assert "+0.582 to +0.602" in below
    assert re.search(r"Degenerate tail +severe +- *\n +gone", wide)
    assert re.search(r"Common direction drift +- +severe *\n +new", wide)
    assert "- A, B: undefined: more than half of the rows have a duplicate [TwoNN dimension]" in wide
    assert re.search(r"B +drifted +1 defect worse, 1 better; 1 of 4 measures changed noticeably", wide)
    assert "Note: only in A, missing in B" in wide
    assert wide.count("measure  ") == 1, "what one side alone has is said, and not shown as a table"
    assert "made with different versions of uncone: 0.1.0 (A), 0.1.1 (B)" in wide
    assert "MOVER; Zou & Donner 2008" in wide


def test_more_than_two_have_marks() -> None:
    text = printed(make_comparison(6), width=120)
    row = next(line for line in text.splitlines() if line.startswith("Mean cosine"))
    assert re.split(r"\s{2,}", row.strip()) == ["Mean cosine", "0", "0.0181", "0.610 ↑", *["0.0181"] * 4]
    assert "Arrows: compared with A. No arrow: small, unclear, or under a caution. Worse and better are" in text


def test_the_page_is_complete_and_policed() -> None:
    comparison = make_comparison()
    page = report.to_html(comparison)
    reader = _assert_harmless(page)
    assert "<title>example-model and drifted · uncone comparison</title>" in page
    assert "<script" not in page
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src &#x27;none&#x27;" in page
    assert STILL.startswith("default-src 'none'")
    _assert_labelled(reader)
    words = (
        "+0.592",
        "+0.582 to +0.602",
        "0.9996",
        "Degenerate tail",
        "only in A, missing in B",
        "It drifts.",
        "0.1.1",
    )
    for shown in (comparison.verdict, *words, "undefined: more than half", "MOVER"):
        assert shown in reader.text
    verdict = page.index(comparison.verdict.replace("&", "&amp;"))
    assert verdict < page.index("Findings") < page.index("Spectra and norms")


@pytest.mark.parametrize("count", [2, 3, 6])
def test_every_diagnosis_has_its_colour_and_dashes(count: int) -> None:
    page = report.to_html(make_comparison(count))
    assert {int(k) for k in re.findall(r'class="line d(\d)"', page)} == set(range(count))
    dashes = dict(re.findall(r"\.line\.d(\d) \{[^}]*stroke-dasharray: ([^;]+);", page))
    colours = dict(re.findall(r"\.line\.d(\d) \{ stroke: ([^;]+);", page))
    assert len(set(dashes.values())) == 5, "the first is solid, the others have patterns of their own"
    assert len(set(colours.values())) == 6


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_strings_show_as_text(text: str) -> None:
    comparison = compare([_hostile(text), _hostile(text)])
    shown = printed(comparison, width=500)
    assert shown.count(visible(text)) >= 5
    assert not {"\u202e", "\x07", "\x1b", "\u200b"} & set(shown)
    assert printed(comparison, width=200, encoding="ascii").isascii()
    page = report.to_html(comparison)
    assert _assert_harmless(page).text.count(visible(text)) >= 10
    assert report.to_html(Comparison.from_json(comparison.to_json())) == page


@given(st.text(st.characters(codec=None, categories=None), max_size=30))
def test_any_string_is_harmless(text: str) -> None:
    page = report.to_html(compare([_hostile(text), _hostile(text + "x")]))
    _assert_harmless(page)
    assert not HIDDEN.search(page)


def test_records_with_next_to_nothing() -> None:
    empty = Diagnosis("n", "Nothing.", ())
    found = compare([empty, empty])
    assert "have no subject in common" in report.to_html(found)
    assert "have no subject in common" in printed(found)
    bare = make_empty()
    for other in (bare, make_subject()):
        found = compare([Diagnosis("n", "v", (bare,)), Diagnosis("m", "v", (other,))])
        _assert_harmless(report.to_html(found))
        assert "Pictures" not in report.to_html(found) or other is not bare
        assert printed(found)


number = st.floats(allow_nan=False, allow_infinity=False)
reading = st.none() | number
bins = st.tuples(st.integers(0, 10**12), st.integers(1, 10**9), reading, reading, reading)
side = st.fixed_dictionaries(
    dict.fromkeys(("value", "low", "high", "reference"), reading)
    | {
        "n": st.integers(-1, 10**15),
        "interval": st.none() | st.tuples(number, number),
        "spectrum": st.none() | st.tuples(*[st.lists(number, max_size=4)] * 3),
        "edges": st.lists(number, min_size=2, max_size=4).map(sorted),
        "counts": st.lists(st.integers(-3, 10**12), min_size=3, max_size=3),
        "bins": st.lists(bins, max_size=3),
    }
)


def _subject(of: dict[str, Any]) -> Subject:
    """A subject whose numbers are anything that a file can hold."""
    ends, n = (of["low"], of["high"]), of["n"]
    measured = Measurement("isoscore", of["value"], "r", ends, "higher", of["reference"], of["interval"], n, 8)
    bins = tuple(Group("g", start, start + size, 1, 0, a, None, b, c) for start, size, a, b, c in of["bins"])
    spectra = None if of["spectrum"] is None else Spectrum(*(tuple(values) for values in of["spectrum"]))
    edges = tuple(of["edges"])
    norms = Norms(edges[0], edges[0], edges[-1], edges, tuple(of["counts"][: len(edges) - 1]))
    return Subject("rows", "s", n, 8, "float32", (measured,), (), Groups(1000, "r", None, bins), spectra, norms, None)


@given(st.lists(side, min_size=2, max_size=3))
def test_any_numbers_give_a_page_and_lines(sides: list[dict[str, Any]]) -> None:
    found = compare([Diagnosis("n", "v", (_subject(of),)) for of in sides])
    page = report.to_html(found)
    ET.fromstring(page)
    assert not re.search(r'd="[^"]*(nan|inf)', page)
    assert printed(found)


def _drawn(comparison: Comparison, name: str) -> str:
    chart = charts_of(comparison.blocks())[name]
    assert isinstance(chart, Chart)
    return draw(chart, "u")


def test_norms_are_shares_of_the_rows() -> None:
    """Twice as many rows with the same norms draw the same outline."""
    one = Norms(1.0, 1.5, 2.0, (1.0, 1.5, 2.0), (10, 30))
    two = replace(one, counts=(20, 60))
    found = compare([Diagnosis("n", "v", (replace(make_subject(), norms=norms),)) for norms in (one, two)])
    paths = re.findall(r'class="line d\d" d="([^"]+)"', _drawn(found, "norms"))
    assert len(paths) == 2
    assert paths[0] == paths[1]


def test_spectra_leave_out_what_is_rounding() -> None:
    spectrum = Spectrum((1.0, 0.1, 1e-12, 0.0, -1e-12), (1.0, 0.5), (0.6, 0.4))
    found = compare([Diagnosis("n", "v", (replace(make_subject(), spectrum=spectrum),))] * 2)
    raw, centred = _drawn(found, "spectrum"), _drawn(found, "spectrum centred")
    dots = {side: re.findall(rf'class="dots bin {side}" d="([^"]+)"', raw) for side in ("d0", "d1")}
    assert len(dots["d0"]) == 2, "two eigenvalues are dots, and what is rounding is left out"
    assert dots["d0"] == dots["d1"]
    assert "line d" not in raw + centred
    assert "bin even" in centred
    assert "bin even" not in raw
