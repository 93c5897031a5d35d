"""The page: well-formed, complete, harmless whatever the record holds, and the same from saved JSON."""

import html
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.records_example import HOSTILE, make_diagnosis, make_empty, make_hostile, make_subject
from uncone.diagnosis.record import LABELS, LEVELS, Diagnosis, Subject, nearest_bin
from uncone.errors import InputError
from uncone.records.blocks import Figure, Heading
from uncone.records.parts import Finding, Groups
from uncone.records.text import number, typeset, visible
from uncone.report import to_html, write_html
from uncone.report.html import STILL

GOLD = Path(__file__).parent / "gold.html"
ALLOWED = re.findall(
    r"\w+",
    "html head meta link title style body header main section article footer nav details summary script canvas legend "
    "fieldset label input select option button i svg g circle path rect text desc clippath figure figcaption table "
    "caption thead tbody tr th td pre p h1 h2 h3 h4 h5 div span b strong a ul li br code bdi dl dt dd",
)
HIDDEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


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
    assert set(reader.tags) <= set(ALLOWED)
    assert page.count("<script>") <= 1
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    addresses = [value or "" for name, value in reader.attributes if name in ("href", "src", "action", "xlink:href")]
    assert all(address.startswith(("#s", "data:image/svg+xml,")) for address in addresses)
    return reader


def _assert_labelled(reader: _Reader) -> None:
    """Each id stands once, and what names an element by an id is there."""
    identifiers = [value for name, value in reader.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers))
    assert {
        part for name, value in reader.attributes if name == "aria-labelledby" for part in (value or "").split()
    } <= set(identifiers)


def test_page_is_the_gold() -> None:
    page = to_html(make_diagnosis())
    if os.environ.get("UNCONE_WRITE_GOLD") == "1":
        GOLD.write_text(page, encoding="utf-8")
    assert page == GOLD.read_text(encoding="utf-8"), "the page changed: look at it, then run with UNCONE_WRITE_GOLD=1"


def test_page_is_well_formed_and_policed() -> None:
    page = to_html(make_diagnosis())
    reader = _assert_harmless(page)
    assert f'content="{html.escape(STILL, quote=True)}; script-src ' in page
    assert "default-src 'none'" in STILL
    assert dict(reader.attributes)["lang"] == "en"
    assert 'name="viewport"' in page
    assert "<title>example-model · uncone diagnosis</title>" in page
    _assert_labelled(reader)
    assert not re.findall(r"<script[^>]* src|javascript:|@import|<iframe|<object|<link(?! rel=\"icon\")", page)
    assert all(url.startswith("#") for url in re.findall(r"url\(([^)]*)\)", page))
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}


def test_first_comes_the_verdict_then_three_numbers() -> None:
    text = _Reader(to_html(make_diagnosis())).text
    verdict = text.rindex("The input token table is severely degenerate")
    labels = ["Cosine of ids 5,000 to 5,999 to reserved rows", "Rogue dimensions", "Mean cosine"]
    places = [text.index(words, verdict) for words in (*labels, "Degenerate tail")]
    assert places == sorted(places)
    assert _labels(make_subject()) == labels


def _tiles(*findings: Finding, **changed: object) -> list[tuple[str, str]]:
    """The labels and colours of the three numbers; measured are mean cosine, IsoScore and effective rank."""
    subject = replace(make_subject(), findings=findings, **changed)  # type: ignore[arg-type]
    return [(gauge.label, gauge.tone) for gauge in subject.gauges().gauges]


def test_numbers_that_defects_rest_on_come_first_in_their_colour() -> None:
    drift = Finding("common_direction_drift", "warning", "s", measures=("mean_cosine", "mean_shift"), extent=0.3)
    rank = Finding("low_effective_rank", "severe", "s", measures=("effective_rank", "isoscore"), extent=0.9)
    uneven = Finding("norm_id_coupling", "structure", "s", measures=("isoscore", "effective_rank"))
    zero = Finding("zero_rows", "warning", "s", extent=0.005)
    note = Finding("zero_rows", "note", "s", extent=0.005)
    cosine, effective, iso = "Mean cosine", "Effective rank", "IsoScore"
    assert _tiles() == [(cosine, ""), (effective, ""), (iso, "")]
    assert _tiles(uneven) == [(cosine, ""), (effective, "structure"), (iso, "structure")]
    assert _tiles(drift) == [(cosine, "warning"), (effective, ""), (iso, "")]
    assert _tiles(drift, rank) == [(effective, "severe"), (cosine, "warning"), (iso, "severe")]
    assert _tiles(uneven, rank) == [(effective, "severe"), (cosine, ""), (iso, "severe")], "the worst colours"
    assert _tiles(zero, drift) == [("Zero rows, as a share of all", "warning"), (cosine, "warning"), (effective, "")]
    assert _tiles(note) == _tiles()
    gauge = replace(make_subject(), findings=(zero,)).gauges().gauges[0]
    assert (gauge.value, gauge.limits, gauge.judged) == (0.005, (0.0, 1.0), "Warning: zero rows")
    old = Finding("common_direction_drift", "warning", "s")  # of a file of an older version
    assert _tiles(old) == [(cosine, ""), (effective, ""), (iso, "")]


def test_the_caption_of_the_picture_says_what_was_found() -> None:
    def caption(*findings: Finding) -> str:
        blocks = replace(make_subject(), findings=findings).blocks()
        return next(b.caption for b in blocks if isinstance(b, Figure) and b.title == "The picture")

    drift, tail = (Finding(cause, "warning", "s") for cause in ("common_direction_drift", "degenerate_tail"))
    assert caption(drift, tail) == "Found in these rows: common direction drift and degenerate tail."
    assert caption(Finding("untrained", "structure", "s")) == "The rows look random."
    assert caption(Finding("untrained", "structure", "s"), drift).startswith("Found in these rows: common")
    none = Finding("no_defect", "healthy", "s")
    assert caption(none) == "No defect was found in these rows."
    assert caption(none, Finding("zero_rows", "note", "s")) == "No defect was found in these rows."
    assert caption(none, Finding("common_direction_of_the_head", "no_effect", "s")).endswith("changes no probability.")
    assert caption(Finding("not_measured", "note", "s")) == caption() == "Too little to judge."


def test_the_badge_is_the_worst_finding_in_words() -> None:
    for place, level in enumerate(LEVELS):
        subject = replace(make_subject(), findings=tuple(Finding("a", one, "s") for one in reversed(LEVELS[place:])))
        first, *_ = replace(make_diagnosis(), subjects=(subject,)).blocks()
        assert isinstance(first, Heading)
        assert (first.label, first.tone) == (LABELS[level], level)


def _labels(subject: Subject) -> list[str]:
    return [gauge.label for gauge in subject.gauges().gauges]


def test_headlines_without_groups_and_of_a_head() -> None:
    tiles = _tiles(without_effect=make_subject().measurements[:1])
    assert [label for label, _ in tiles] == ["Effective rank", "IsoScore", "Mean cosine"]
    plain = replace(make_subject(), groups=None, findings=())
    assert _labels(plain) == ["Mean cosine", "Effective rank", "IsoScore"]
    bare = replace(plain, measurements=make_subject().measurements[3:])
    assert _labels(bare) == ["TwoNN dimension", "Rogue dimensions"]


def test_the_nearest_bin_is_not_mostly_of_reserved_rows() -> None:
    groups = make_subject().groups
    assert groups is not None
    for reserved, by_name, start in ((0, True, 5000), (499, True, 5000), (500, True, 4000), (1000, False, 5000)):
        held = replace(groups.bins[5], reserved_rows=reserved)
        found = nearest_bin(replace(groups, bins=(*groups.bins[:5], held), reserved_by_name=by_name))
        assert found is not None
        assert found.start == start
    assert nearest_bin(Groups(1000, "", None, ())) is None
    assert nearest_bin(None) is None


def test_every_number_and_every_sentence_is_on_the_page() -> None:
    text = _Reader(to_html(make_diagnosis())).text
    for measurement in make_subject().measurements:
        for value in (measurement.value, measurement.reference):
            assert value is None or typeset(number(value, limits=measurement.range)) in text
        for words in (measurement.reason, measurement.definition, *measurement.warnings):
            assert words in text
    for finding in make_subject().findings:
        label = LABELS[finding.level].capitalize()
        for words in (label, finding.summary, *finding.evidence, finding.repair, finding.command):
            assert words in text
    told = ("2.50\u202f×\u202f10⁻⁵", "6,000", "(28 more)", "No text was given.", "2.13.0", "left out")
    for words in ("0.9996", "7.998", "<8", *told):
        assert words in text


def test_readings_of_the_gauge_have_their_own_table() -> None:
    page = to_html(make_diagnosis())
    assert page.count(">No effect on probabilities</summary>") == 1
    apart = page.index(">No effect on probabilities</summary>")
    assert page.index("0.613") > apart > page.index('id="s2"')
    head = page[page.index(">Measurements</h3>", page.index('id="s2"')) : apart]
    assert ", raw" not in head, "a head's own measurements are of the centred matrix"


def test_navigation_appears_with_several_subjects() -> None:
    diagnosis = make_diagnosis()
    assert '<a href="#s2">' in to_html(diagnosis)
    assert "<nav" not in to_html(replace(diagnosis, subjects=diagnosis.subjects[:1], notes=()))


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
    assert not HIDDEN.search(page)


def test_a_record_with_next_to_nothing_still_gives_a_page() -> None:
    assert "Nothing read" in _assert_harmless(to_html(Diagnosis("n", "Nothing read.", ()))).text
    text = _assert_harmless(to_html(Diagnosis("n", "Nothing.", (make_empty(),)))).text
    assert "No finding was drawn" in text
    assert "The picture" not in text


def test_write_html_writes_the_page_whole(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_html(make_diagnosis(), target)
    assert target.read_text(encoding="utf-8") == to_html(make_diagnosis())
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(InputError, match="expected a file to write"):
        write_html(make_diagnosis(), tmp_path)
