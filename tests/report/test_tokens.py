"""Groups and under-trained tokens as a page and a terminal show them."""

import re
from dataclasses import replace

import pytest

from uncone.diagnosis.findings import find_under_trained
from uncone.diagnosis.record import Diagnosis
from uncone.records.tokens import Difference, Estimate, FrequencyGroup, FrequencyGroups, UnderTrained, UnderTrainedToken
from uncone.report import to_html

from .printed import printed
from .records_example import HOSTILE, make_diagnosis, make_subject


def _group(name: str, value: float, n: int, occurrences: int | None) -> FrequencyGroup:
    around = Estimate(value, (value - 0.01, value + 0.01))
    none = Estimate(None) if name == "reserved" else around
    return FrequencyGroup(name, n, occurrences, around, Estimate(1.25), none, around, 12.5, 0.0064)


def make_groups(*, by: str = "count", name: str = "frequent") -> FrequencyGroups:
    occurrences = 1000 if by == "count" else None
    of = ((name, 0.01, 1800), ("rare", 0.2, 1200), ("reserved", 0.8, 20))
    groups = tuple(_group(*group, occurrences) for group in of)
    difference = Difference("rare", name, "mean_cosine", Estimate(0.19, (0.17, 0.21)))
    return FrequencyGroups("count" if by == "count" else "id", "the first 30%", 0.95, groups, (difference,))


def make_under_trained(
    *, token: str | None = "Ġdavidjl", found: int = 60, count: int | None = 3, note: str = ""
) -> UnderTrained:
    numbers = (0.1, 1e-20, 1e-17, 0.44, 0.9, None)
    tokens = tuple(UnderTrainedToken(i, token, *numbers, count, expected=i >= 30) for i in range(35))
    counts = (0.01, 5000, "20 reserved rows", 20, 19)
    null = (1.0, 0.1, 0.5)
    return UnderTrained(found, "", "cosine", "cosine distance", *counts, *null, tokens, (note,) * bool(note))


def _page(groups: FrequencyGroups | None = None, found: UnderTrained | None = None) -> str:
    """The part of the page between the pictures and the measurements."""
    page = to_html(_diagnosis(groups, found))
    return page[page.index("<figcaption") : page.index(">Measurements</h3>")]


def _diagnosis(groups: FrequencyGroups | None = None, found: UnderTrained | None = None) -> Diagnosis:
    subject = replace(make_subject(), frequency_groups=groups, under_trained=found)
    return replace(make_diagnosis(), subjects=(subject,))


class TestPage:
    def test_nothing_is_shown_where_there_is_nothing(self) -> None:
        assert "Frequent and rare" not in _page()
        assert "Under-trained" not in to_html(make_diagnosis())

    def test_groups(self) -> None:
        page = _page(make_groups())
        assert "Frequent and rare tokens" in page
        assert "Groups by count" in page
        assert "occurrences" in page
        assert "occurrences" not in _page(make_groups(by="id"))
        assert re.search(r'<th scope="row">rare</th>.*?0\.200<span class="under">± 0\.010</span>', page)
        assert "12.5 sd" in page
        assert "p &lt;= 0.0064" in page
        assert "Rare minus frequent" in page
        assert '<td class="n">-</td>' in page  # the reserved rows have no cosine to themselves

    def test_under_trained_tokens(self) -> None:
        page = _page(None, make_under_trained())
        assert "Of 20 rows known to be unused, 19 look untrained too." in page
        assert page.count("Ġdavidjl") == 35
        assert "The next 20 of 60" in page
        assert "the first 5 of 20" in page
        assert page.count('scope="col" class="n">count') == 3
        assert 'class="n">count' not in _page(None, make_under_trained(count=None))
        assert '<th scope="row">-</th>' in _page(None, make_under_trained(token=None))
        assert "no control" in _page(None, make_under_trained(note="no control"))

    @pytest.mark.parametrize("text", HOSTILE)
    def test_hostile_words_stay_words_here_and_in_a_terminal(self, text: str) -> None:
        groups = replace(make_groups(name=text), definition=text)
        found = replace(make_under_trained(token=text, note=text), definition=text, reference=text)
        page = to_html(_diagnosis(groups, found))
        assert not [words for words in ("<script>document", "<img", "\u202e") if words in page]
        page.encode("utf-8")
        for encoding in ("utf-8", "ascii"):
            assert not {"\x1b", "\u202e"} & set(printed(_diagnosis(groups, found), encoding=encoding))


class TestTerminal:
    def test_it_fits_80_columns(self) -> None:
        shown = printed(_diagnosis(make_groups(), make_under_trained()))
        assert max(len(line) for line in shown.splitlines()) <= 80
        words = " ".join(shown.split())
        assert "Groups by count: the first 30%. Mean cosines to the reserved rows" in words
        assert "Below each value is its 95% interval (±)." in words
        assert re.search(r"rare +1,200 +0\.200 +0\.200 +0\.200 +1\.25", shown)
        assert re.search(r"± 0\.010 +± 0\.010 +± 0\.010", shown)
        assert "60 of 5,000 rows look untrained, at a false-discovery rate of 1%" in words
        assert "50 more. The page and the record list the first 30." in shown
        assert "Of 20 rows known to be unused, 19 look untrained too" in words

    def test_without_a_result_the_reason_is_given(self) -> None:
        found = UnderTrained(None, "nothing to compare <with>")
        assert "Not tested here: nothing to compare <with>." in printed(_diagnosis(None, found))
        assert "Not tested here: nothing to compare &lt;with&gt;." in _page(None, found)


def test_shares_are_not_rounded_to_all_or_none() -> None:
    groups, found = replace(make_groups(), confidence=0.999), replace(make_under_trained(), rate=0.001)
    subject = replace(make_subject(), frequency_groups=groups, under_trained=found)
    (finding,) = find_under_trained(found, tail_is_named=False)
    assert "at a false-discovery rate of 0.1%" in finding.evidence[0]
    assert "intervals of 99.9%" in subject.token_measurements()[0].definition
    assert "Below each value is its 99.9% interval" in _page(groups)
    assert "its 99.9% interval" in " ".join(printed(_diagnosis(groups)).split())
