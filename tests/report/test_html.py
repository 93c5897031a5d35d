"""The page: well-formed, complete, harmless whatever the record holds, and the same from saved JSON."""

import html
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.records_example import (
    HOSTILE,
    make_diagnosis,
    make_findings,
    make_hostile,
    make_measurements,
    make_subject,
)
from uncone.errors import InputError
from uncone.records import Diagnosis, Groups, Subject
from uncone.records.diagnosis import tail_bin
from uncone.records.text import number, typeset, visible
from uncone.report import to_html, write_html
from uncone.report.html import STILL

GOLD = Path(__file__).parent / "gold.html"
ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "link",
        "title",
        "style",
        "body",
        "header",
        "main",
        "section",
        "article",
        "footer",
        "nav",
    ),
    *("svg", "g", "circle", "path", "rect", "text", "desc", "clippath", "figure", "figcaption"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "pre"),
    *(
        "p",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "div",
        "span",
        "b",
        "strong",
        "a",
        "ul",
        "li",
        "br",
        "code",
        "bdi",
        "dl",
        "dt",
        "dd",
    ),
    *("details", "summary"),
    *("script", "canvas", "fieldset", "legend", "label", "input", "select", "option", "button", "i"),
}


class _Reader(HTMLParser):
    """Collects the elements, their attributes and all text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def _assert_harmless(page: str) -> _Reader:
    """The page is XML, and has no element, attribute or address beyond what the report itself writes."""
    ET.fromstring(page)  # every element closed, every character allowed
    reader = _Reader(page)
    assert set(reader.tags) <= ALLOWED
    assert page.count("<script>") <= 1
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    addresses = [
        value or "" for name, value in reader.attributes if name in ("href", "src", "action", "xlink:href")
    ]
    assert all(address.startswith(("#s", "data:image/svg+xml,")) for address in addresses)
    return reader


def test_page_is_the_gold() -> None:
    page = to_html(make_diagnosis())
    if os.environ.get("UNCONE_WRITE_GOLD") == "1":
        GOLD.write_text(page, encoding="utf-8")
    assert page == GOLD.read_text(encoding="utf-8"), (
        "the page changed: look at it, then run with UNCONE_WRITE_GOLD=1"
    )


def test_page_is_well_formed_and_policed() -> None:
    page = to_html(make_diagnosis())
    reader = _assert_harmless(page)
    attributes = dict(reader.attributes)
    assert f'content="{html.escape(STILL, quote=True)}; script-src ' in page
    assert "default-src 'none'" in STILL
    assert attributes["lang"] == "en"
    assert 'name="viewport"' in page
    assert "<title>example-model · uncone diagnosis</title>" in page
    identifiers = [value for name, value in reader.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers))
    labelled = [
        part
        for name, value in reader.attributes
        if name == "aria-labelledby"
        for part in (value or "").split()
    ]
    assert set(labelled) <= set(identifiers)


def test_first_comes_the_verdict_then_three_numbers() -> None:
    text = _Reader(to_html(make_diagnosis())).text
    verdict = text.rindex("The input token table looks healthy as a whole")
    places = [
        text.index(words, verdict)
        for words in ("Mean cosine", "IsoScore", "Cosine of the tail to reserved rows", "Input token table")
    ]
    assert places == sorted(places)
    assert _labels(make_subject()) == [
        "Mean cosine",
        "IsoScore",
        "Cosine of the tail to reserved rows",
    ]


def _labels(subject: Subject) -> list[str]:
    return [gauge.label for gauge in subject.gauges().gauges]


def test_headline_without_groups_is_the_effective_rank() -> None:
    plain = replace(make_subject(), groups=None)
    assert _labels(plain) == ["Mean cosine", "IsoScore", "Effective rank"]
    bare = replace(plain, measurements=make_measurements()[3:])
    assert _labels(bare) == ["TwoNN dimension", "Rogue dimensions"]


def test_tail_bin_is_the_nearest_of_the_last_third_without_reserved_rows() -> None:
    groups = make_subject().groups
    assert groups is not None
    found = tail_bin(groups)
    assert found is not None
    assert found.start == 5000
    held = replace(groups, bins=(*groups.bins[:5], replace(groups.bins[5], reserved_rows=1)))
    nearest = tail_bin(held)
    assert nearest is not None
    assert nearest.start == 4000
    assert tail_bin(Groups(1000, "", None, ())) is None


def test_every_number_and_every_sentence_is_on_the_page() -> None:
    text = _Reader(to_html(make_diagnosis())).text
    for measurement in make_measurements():
        for value in (measurement.value, measurement.reference):
            assert value is None or typeset(number(value, limits=measurement.range)) in text
        for words in (measurement.reason, measurement.definition, *measurement.warnings):
            assert words in text
    for finding in make_findings():
        for words in (finding.level.capitalize(), finding.summary, *finding.evidence, finding.repair):
            assert words in text
    for words in (
        "0.9996",
        "7.998",
        "<8",
        "2.50\u202f×\u202f10⁻⁵",
        "6,000",
        "(28 more)",
        "No text was given.",
        "2.13.0",
        "left out",
    ):
        assert words in text


def test_findings_come_worst_first() -> None:
    text = _Reader(to_html(make_diagnosis())).text
    places = [
        text.index(finding.summary)
        for finding in sorted(make_findings(), key=lambda f: "swnh".index(f.level[0]))
    ]
    assert places == sorted(places)


def test_readings_of_the_gauge_have_their_own_table() -> None:
    page = to_html(make_diagnosis())
    assert page.count(">No effect on probabilities</h3>") == 1
    apart = page.index(">No effect on probabilities</h3>")
    assert page.index("0.613") > apart > page.index('id="s2"')
    head = page[page.index(">Measurements</h3>", page.index('id="s2"')) : apart]
    assert ", raw" not in head, "a head's own measurements are of the centred matrix"


def test_navigation_appears_with_several_subjects() -> None:
    diagnosis = make_diagnosis()
    assert '<a href="#s2">' in to_html(diagnosis)
    assert "<nav" not in to_html(replace(diagnosis, subjects=diagnosis.subjects[:1], notes=()))


def test_json_gives_the_same_page() -> None:
    diagnosis = make_diagnosis()
    assert to_html(Diagnosis.from_json(diagnosis.to_json())) == to_html(diagnosis)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_strings_show_as_text(text: str) -> None:
    diagnosis = make_hostile(text)
    reader = _assert_harmless(to_html(diagnosis))
    assert reader.text.count(visible(text)) >= 20
    assert reader.tags.count("script") == 2, "the code, and the numbers of one subject"
    assert "img" not in reader.tags
    assert to_html(Diagnosis.from_json(diagnosis.to_json())) == to_html(diagnosis)


@given(st.text(st.characters(codec=None, categories=None), max_size=30))
def test_any_string_is_harmless(text: str) -> None:
    page = to_html(make_hostile(text))
    _assert_harmless(page)
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]", page
    )


def test_a_record_with_next_to_nothing_still_gives_a_page() -> None:
    assert "Nothing read" in _assert_harmless(to_html(Diagnosis("n", "Nothing read.", ()))).text
    empty = replace(
        make_subject(),
        measurements=(),
        findings=(),
        groups=None,
        spectrum=None,
        norms=None,
        picture=None,
        notes=(),
        n=0,
    )
    text = _assert_harmless(to_html(Diagnosis("n", "Nothing.", (empty,)))).text
    assert "No finding was drawn" in text
    assert "The cone" not in text


def test_page_is_self_contained() -> None:
    page = to_html(make_diagnosis())
    assert not re.findall(
        r"<script[^>]* src|javascript:|@import|<iframe|<object|<link(?! rel=\"icon\")", page
    )
    urls = re.findall(r"url\(([^)]*)\)", page)
    assert all(url.startswith("#") for url in urls)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}


def test_write_html_writes_the_page_whole(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_html(make_diagnosis(), target)
    assert target.read_text(encoding="utf-8") == to_html(make_diagnosis())
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(InputError, match="expected a file to write"):
        write_html(make_diagnosis(), tmp_path)
    with pytest.raises(InputError, match="give a folder that exists"):
        write_html(make_diagnosis(), tmp_path / "none" / "report.html")


def test_importing_the_report_loads_neither_rich_nor_tensors() -> None:
    code = "import sys, uncone.report; print([m for m in ('rich', 'torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
