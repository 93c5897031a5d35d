"""A diagnosis is asked with brackets: the names that `check` takes, their details, and what is not there."""

import subprocess
import sys
from dataclasses import replace

import pytest

import uncone
from tests.fuzz.records import examples
from tests.report.records_example import HOSTILE, make_diagnosis, make_hostile, make_subject
from uncone.diagnosis.record import Diagnosis
from uncone.errors import InputError, UnknownName
from uncone.records.parts import Measurement

TWO = make_diagnosis()
ONE = replace(TWO, subjects=(make_subject("input"),))
TOKENS = Diagnosis.from_json(examples()["diagnosis"])


def test_a_name_gives_its_measurement() -> None:
    assert TWO["input.mean_cosine"] is TWO.subjects[0].measurement("mean_cosine")
    assert TWO["head.mean_cosine"] is TWO.subjects[1].measurement("mean_cosine")
    assert TWO["head.without_effect.mean_cosine"] is TWO.subjects[1].without_effect[0]
    assert TWO["input.two_nn"].value is None
    assert float(ONE["mean_cosine"]) == float(ONE["input.mean_cosine"]) == 0.0181
    assert isinstance(TOKENS["head.rare.cosine_to_reserved"], Measurement)
    assert TWO["input.rogue_dimensions.dimensions"] == [3, 1]
    assert TWO["input.rogue_dimensions.dimensions.0"] == 3
    assert ONE["rogue_dimensions.exact"] is True


@pytest.mark.parametrize("d", [TWO, ONE, TOKENS], ids=["two", "one", "tokens"])
def test_every_name_is_one_that_check_takes_and_is_offered(d: Diagnosis) -> None:
    names = d.keys()
    assert len(names) == len(set(names))
    assert {f"{m.name}" for s in d.subjects for m in s.measurements} <= {name.partition(".")[2] for name in names}
    for name in names:
        assert name in d
        one = d[name]
        assert name.endswith(f".{one.name}")
        if one.value is not None:
            (bar,) = uncone.check(d, max={name: 1e9}).bars
            assert (bar.name, bar.value) == (name, one.value)
    assert dict(d) == {name: d[name] for name in names}  # type: ignore[call-overload]
    offered = d._ipython_key_completions_()
    assert set(d.keys()) <= set(offered)
    for name in offered:
        assert name in d
    assert ("mean_cosine" in offered) == (len(d.subjects) == 1)
    assert "input.rogue_dimensions.dimensions" in offered


_NUMBER = "expected a number of this diagnosis, got 'input.mean_cosin': the nearest are input.mean_cosine"
_DETAIL = "expected a detail of input.rogue_dimensions, got 'nothing': choose from dimensions"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("input.mean_cosin", _NUMBER),
        ("mean_cosine", "the nearest are input.mean_cosine, head.mean_cosine"),
        ("input.mean_cosine.", "got 'input.mean_cosine.'"),
        ("input.rogue_dimensions.nothing", _DETAIL),
        ("input.rogue_dimensions.dimensions.2", "there are items 0 to 1"),
        ("", "got ''"),
    ],
)
def test_what_is_not_there_is_a_key_error_with_the_nearest_names(name: str, message: str) -> None:
    for kind in (KeyError, InputError, UnknownName):
        with pytest.raises(kind) as told:
            TWO[name]
        assert message in str(told.value)
        assert not str(told.value).startswith(("'", '"')), "a KeyError would quote it"
    assert name not in TWO


def test_a_diagnosis_is_no_sequence() -> None:
    with pytest.raises(UnknownName, match="expected a name such as 'mean_cosine', got 0"):
        TWO[0]
    with pytest.raises(TypeError, match="not iterable"):
        iter(TWO)  # type: ignore[call-overload]
    assert 3 not in TWO
    assert bool(TWO)
    with pytest.raises(KeyError, match="it has no measurements"):
        replace(TWO, subjects=())["a"]


def test_a_loop_over_a_diagnosis_ends_without_the_tests_type_checker() -> None:
    code = "import uncone\ntry:\n    list(uncone.Diagnosis('n', 'v', ()))\nexcept TypeError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "'Diagnosis' object is not iterable\n"


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_names_are_found_and_completed(text: str) -> None:
    hostile = make_hostile(text)
    for name in hostile.keys():  # noqa: SIM118 - a diagnosis is not iterable
        assert name in hostile
