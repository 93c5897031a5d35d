"""Words and numbers: nothing hidden gets through, and no number claims a limit it missed."""

import math
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from uncone.records.text import better, count, number, shortened, signed, span, title, typeset, visible

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
anything = st.text(st.characters(codec=None, categories=None))
values = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)


@given(anything, st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_visible_leaves_nothing_hidden_and_keeps_printable_ascii(text: str, printable: str) -> None:
    shown = visible(text)
    assert not BIDI & set(shown)
    assert not [c for c in shown if unicodedata.category(c) in HIDDEN]
    assert visible(shown) == shown
    shown.encode("utf-8")
    assert visible(printable) == printable


def test_visible_escapes() -> None:
    shown = {"a\nb\tc\r\0": "a\\nb\\tc\\r\\0", "\x1b[31m\x7f\x85": "\\x1b[31m\\x7f\\x85"}
    shown |= {"\u202eevil\u2069": "\\u202eevil\\u2069", "a\u200bb\ufeff\u00ad": "a\\u200bb\\ufeff\\xad"}
    shown |= {"\ud800 \ue000 \u2028 \ufffe": "\\ud800 \\ue000 \\u2028 \\ufffe"}
    shown |= {"\U000e0041\U000e0100\ufe0f\u3164": "\\U000e0041\\U000e0100\\ufe0f\\u3164"}
    shown |= {"Ġthe ▁é שלום 你好 🙂": "Ġthe ▁é שלום 你好 🙂"}
    assert {text: visible(text) for text in shown} == shown


def test_shortened_says_that_something_was_left_out() -> None:
    assert shortened("a" * 40) == "a" * 40
    assert shortened("a" * 41) == "a" * 39 + "…"
    assert len(shortened("\u202e" * 1000)) == 40


def test_number_by_hand() -> None:
    by_hand = {0.0: "0", 1.0: "1", -1.0: "-1", 0.0181: "0.0181", 0.5: "0.500", -0.046: "-0.0460", 272.7: "273"}
    by_hand |= {9.996: "10.0", 99.96: "100", 1234.56: "1,235", 30522.0: "30,522", 0.000123: "1.23e-4", 1.5e9: "1.50e9"}
    by_hand |= {0.9996: "0.9996", 1.0004: "1.0004", -0.99999: "-0.99999", 0.99999999: "<1", 1.00000001: ">1"}
    by_hand |= {-0.99999999: ">-1", math.nan: "nan", math.inf: "inf"}
    assert {value: number(value) for value in by_hand} == by_hand
    assert number(-0.0) == "0"


def test_number_stays_off_the_limits_of_its_range() -> None:
    assert number(383.7, limits=(1, 384)) == "383.7"
    assert number(383.9999999, limits=(1, 384)) == "<384"
    assert number(384.0, limits=(1, 384)) == "384"
    assert number(1234.9999999, limits=(None, 1235)) == "<1,235"


@given(values, values, values)
def test_number_never_reaches_a_limit_it_missed(value: float, low: float, high: float) -> None:
    shown = number(value, limits=(low, high)).replace(",", "")
    for limit in (low, high, 1.0, -1.0):
        if value != limit and not shown.startswith(("<", ">")):
            assert (float(shown) < limit) == (value < limit)


@given(values)
def test_number_is_near_its_value(value: float) -> None:
    shown = number(value).replace(",", "")
    if shown.startswith(("<", ">")):
        assert math.isclose(value, float(shown[1:]), rel_tol=1e-5)
        assert (value < float(shown[1:])) == shown.startswith("<")
    else:
        assert math.isclose(value, float(shown), rel_tol=0.005)
    assert len(shown) <= 12


@given(st.integers())
def test_count_keeps_every_digit(value: int) -> None:
    assert int(count(value).replace(",", "")) == value


def test_numbers_signs_and_limits() -> None:
    assert [signed(value) for value in (0.25, -0.25, 0.0)] == ["+0.250", "-0.250", "0"]
    shown = [number(value, limits=(0, 1)) for value in (0.0181, 0.9996, 0.99999999, 1.0)]
    assert shown == ["0.0181", "0.9996", "<1", "1"]


def test_typeset() -> None:
    powers = {"-1,234 to 5.6e-7": "\u22121,234 to 5.6\u202f×\u202f10⁻⁷", "1e-10": "10⁻¹⁰", "<1": "<1"}
    powers |= {"-0.046": "\u22120.046", "-1.23e-4": "\u22121.23\u202f×\u202f10⁻⁴"}
    words = {"pca-8 of layer-1, 2e3x": "pca-8 of layer-1, 2e3x"}
    words |= {"1,234,567 rows to -3, and 12,3": "1,234,567 rows to \u22123, and 12,3"}
    assert {text: typeset(text) for text in powers | words} == powers | words


def test_title() -> None:
    shown = {"mean_cosine": "Mean cosine", "isoscore": "IsoScore", "isoscore_debiased": "IsoScore, debiased", "": ""}
    shown |= {"raw": "Raw", "_raw": "Raw", "stable_rank_centered": "Stable rank, centred", "a\nb": "A\\nb"}
    shown |= {"persistent_entropy_nats": "Persistent entropy (nats)", "A cause in words": "A cause in words"}
    assert {name: title(name) for name in shown} == shown


def test_span_and_better_in_words() -> None:
    ends = {(0.0, 1.0): "0 to 1", (None, None): "unbounded", (0.0, None): "at least 0", (None, -1.0): "at most -1"}
    assert {limits: span(limits) for limits in ends} == ends
    assert better("higher") == "higher is better"
    assert better("neither") == "neither end is better"
