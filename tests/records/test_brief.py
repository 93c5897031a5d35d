"""A record at a prompt: `repr` fits on a screen whatever is in it, and `print` gives the verdict."""

import dataclasses
import json
import random
import textwrap
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.every_part import BY_NAME
from tests.every_part import KINDS as _KINDS
from tests.fuzz.records import examples
from tests.fuzz.trees import mutant
from tests.report.records_example import HOSTILE, make_diagnosis, make_hostile, make_subject
from tests.report.test_views import Weather
from uncone.diagnosis.record import Diagnosis
from uncone.errors import InputError, UndefinedMeasure
from uncone.records.brief import LINES, WIDTH, brief, folded
from uncone.records.parts import Measurement
from uncone.records.record import Record

KINDS = {kind.SCHEMA: kind for kind in _KINDS}
_ALL = set(BY_NAME.values())


def _parts(value: Any) -> Iterator[Any]:
    """The value and every record in it."""
    if dataclasses.is_dataclass(value):
        yield value
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _parts(item)


def _fits(text: str) -> None:
    lines = text.split("\n")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    assert not [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]


def test_the_records_and_all_their_parts_are_shown_so() -> None:
    assert len(_ALL) > 40
    assert {cls for cls in _ALL if cls.__repr__ is not brief} == set()


@pytest.mark.parametrize("kind", examples())
def test_every_record_and_every_part_of_it_fits_on_a_screen(kind: str) -> None:
    tree = json.loads(examples()[kind])
    record = KINDS[tree["schema"]].from_json(examples()[kind])
    parts = list(_parts(record))
    assert parts[0] is record
    for part in parts:
        _fits(repr(part))
        assert repr(part).startswith(f"{type(part).__name__}(")
    for seed in range(40):
        damaged = json.dumps(mutant(tree, random.Random(f"{kind} {seed}"), times=3))
        with suppress(InputError, RecursionError):
            _fits(repr(KINDS[tree["schema"]].from_json(damaged)))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=60,
)


@given(details=st.dictionaries(st.text(), values), name=st.text(), value=st.floats() | st.none())
def test_any_details_fit(details: dict[str, Any], name: str, value: float | None) -> None:
    _fits(repr(Measurement(name, value, details=details, warnings=(name,) * 50)))


@given(st.lists(st.text(alphabet="x", max_size=30)), st.integers(20, 94))
def test_parts_that_are_left_out_are_counted(parts: list[str], room: int) -> None:
    shown = folded(parts, ends=("[", "]"), room=room, total=len(parts))
    assert len(shown) <= max(room, len(f"[… {len(parts):,} in all]"))
    if f"… {len(parts)} in all" not in shown:
        assert shown == f"[{', '.join(parts)}]"


def test_numbers_of_any_size_and_depth_fit() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep, {"a": deep}]
    for value in (10**5000, -(10**400), [10**5000] * 9, deep, {str(i): i for i in range(10**5)}, object()):
        _fits(repr(Measurement("m", 1.0, details={"x": value})))


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_text_is_visible(text: str) -> None:
    hostile = make_hostile(text)
    for part in _parts(hostile):
        _fits(repr(part))
    for line in str(hostile).split("\n"):
        assert line.isprintable()
    _fits(repr(Weather(text, 1.0, text)))


def test_a_diagnosis_says_what_it_is() -> None:
    d = make_diagnosis()
    assert repr(d) == textwrap.dedent("""\
        Diagnosis(
            name='example-model',
            verdict='The input token table is severely degenerate: its tail is degenerate.',
            subjects=[input, head],
            notes=('No text was given.',),
            versions={'uncone': '0.1.0', 'torch': '2.13.0'},
        )""")
    assert repr(replace(d, verdict="Fine.", notes=(), versions={})) == (
        "Diagnosis(name='example-model', verdict='Fine.', subjects=[input, head])"
    )
    assert "    picture=Picture(…)," in repr(make_subject()).split("\n")
    assert repr(Measurement("m", 0.1)) == "Measurement(name='m', value=0.1)", "what is as usual is left out"


def test_a_diagnosis_that_is_printed_gives_its_verdict_and_headline_numbers() -> None:
    verdict, *numbers = str(make_diagnosis()).split("\n")
    assert verdict == make_diagnosis().verdict
    assert numbers == [
        "Cosine of ids 5,000 to 5,999 to reserved rows 0.450 (isotropic 0)",
        "Rogue dimensions 2.50e-5 (isotropic 0.125)",
        "Mean cosine 0.0181 (isotropic 0)",
    ]
    undefined = replace(make_subject(), groups=None, measurements=(Measurement("isoscore", None, "one\nrow"),))
    assert str(replace(make_diagnosis(), subjects=(undefined,))).endswith("\nIsoScore undefined: one\\nrow")


@pytest.mark.parametrize("kind", examples())
def test_every_record_that_is_printed_begins_with_its_verdict(kind: str) -> None:
    record = KINDS[json.loads(examples()[kind])["schema"]].from_json(examples()[kind])
    assert str(record).split("\n")[0]
    assert len(str(record).split("\n")) <= 4


def test_a_record_of_ones_own_has_both() -> None:
    assert repr(Weather("Bergen", 7.5)) == "Weather(name='Bergen', degrees=7.5)"
    assert str(Weather("Bergen", 7.5)) == "It will be fair.\nDegrees 7.50"

    @dataclasses.dataclass(frozen=True)
    class Own(Record):
        schema: str = "own/1"

        def __repr__(self) -> str:
            return "mine"

    assert repr(Own()) == "mine"


def test_a_diagnosis_of_many_rows_stays_short() -> None:
    d = uncone.diagnose([[float(i % 7), float(i % 5), 1.0] for i in range(3000)])
    assert isinstance(d, Diagnosis)
    for part in _parts(d):
        _fits(repr(part))


def test_a_measurement_is_printed_in_one_line_and_formatted_and_rounded_as_its_value() -> None:
    reading = Measurement("isoscore", 0.99996, range=(0.0, 1.0), reference=0.98)
    assert str(reading) == f"{reading}" == "isoscore 0.99996 (isotropic 0.980)"
    assert str(Measurement("m", 2.0)) == f"{Measurement('m', 2.0)}" == "m 2"
    assert str(Measurement("m", None, "too\nfew")) == "m undefined: too\\nfew"
    assert str(Measurement("rankme", 1.0000002, range=(1.0000001, 8.0))) == "rankme >1"
    reading = Measurement("isoscore", 0.123456, range=(0.0, 1.0))
    assert (f"{reading:.3f}", f"{reading:>8.1%}", format(reading, "g")) == ("0.123", "   12.3%", "0.123456")
    assert (round(reading, 2), round(reading), type(round(reading))) == (0.12, 0, int)
    undefined = Measurement("isoscore", None, "too few")
    assert f"{undefined}" == "isoscore undefined: too few"
    with pytest.raises(UndefinedMeasure, match="isoscore is undefined: too few"):
        f"{undefined:.2f}"
    with pytest.raises(UndefinedMeasure, match="isoscore is undefined: too few"):
        round(undefined, 2)
