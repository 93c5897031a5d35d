"""An evaluation as it is printed: marks, widths, and text that no terminal should get."""

import io
import re
from dataclasses import replace

from rich.console import Console

from uncone.evaluation.record import Evaluation, Interval, Price
from uncone.report import print_record


def _evaluation(*sets: str, name: str = "m") -> Evaluation:
    up, down, flat = Interval(1.5, 0.5, 2.5), Interval(-3.0, -4.0, -2.0), Interval(0.25, -1.0, 1.5)
    numbers = {"original": 70.0, "all_but_the_top_original_d100": 71.5, "whiten": 67.0, "center": 70.25}
    changes = {"all_but_the_top_original_d100": up, "whiten": down, "center": flat}
    return Evaluation(
        verdict="No repair helps.",
        name=name,
        task="sts",
        protocol="",
        results={
            "sts": {
                one: {
                    repair: {
                        "spearman_cosine": value,
                        "spearman_inner": value - 1 if repair != "center" else None,
                        "n": 1234,
                    }
                    for repair, value in numbers.items()
                }
                for one in sets
            }
        },
        differences={
            "sts": {one: {repair: {"spearman_cosine": change} for repair, change in changes.items()} for one in sets}
        },
        prices={one: {"whiten": Price(2.0, 0.001, 10, 100), "center": Price(0.5, 0.001, 10, 100)} for one in sets},
        notes=("a note",),
        intervals="Intervals: 95%.",
        provenance={"measure": "spearman_cosine"},
    )


def _printed(evaluation: Evaluation, width: int = 80) -> str:
    text = io.StringIO()
    print_record(evaluation, Console(file=text, width=width, highlight=False))
    return text.getvalue()


def test_one_set_shows_changes_and_intervals() -> None:
    lines = [line.split() for line in _printed(_evaluation("stsb")).splitlines()]
    assert lines[0] == ["No", "repair", "helps."]
    assert ["stsb", "1,234", "pairs"] in lines
    assert ["original", "70.00"] in lines
    assert ["all_but_the_top_original_d100", "71.50", "+1.50", "+0.50", "to", "+2.50", "+"] in lines
    assert ["whiten", "67.00", "-3.00", "-4.00", "to", "-2.00", "-"] in lines
    assert ["center", "70.25", "+0.25", "-1.00", "to", "+1.50"] in lines
    assert (
        "Price: whiten took 2 s to fit, the others at most 0.50 s; applying takes at most 10 microseconds"
        in " ".join(" ".join(line) for line in lines)
    )


def test_many_sets_fit_into_80_columns() -> None:
    printed = _printed(_evaluation("sts12", "sts13", "sts14", "sts15", "sts16", "stsb"))
    lines = printed.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    row = next(line.split() for line in lines if line.startswith("all_but_the_top_original_d100"))
    assert row == ["all_but_the_top_original_d100", *["71.5+"] * 6, "71.5"]
    assert ["whiten", *["67.0-"] * 6, "67.0"] in [line.split() for line in lines]
    assert ["n", *["1,234"] * 6] in [line.split() for line in lines]


def test_the_papers_protocol_shows_pearson_of_both_products() -> None:
    names = ("spearman_cosine", "pearson_cosine", "spearman_inner", "pearson_inner")
    numbers = {name: 60.0 + at for at, name in enumerate(names)}
    one = _evaluation("stsb")
    for protocol, first in (("paper", "pearson_cosine"), ("field", "spearman_cosine")):
        sets = {name: {"original": {**numbers, "n": 9}} for name in ("men", "rw")}
        found = replace(
            one, task="wordsim", protocol=protocol, results={"wordsim": sets}, provenance={"measure": first}
        )
        titles = [line.strip() for line in _printed(found).splitlines() if " x 100 of the " in line]
        kind, other = ("Pearson", "Spearman") if protocol == "paper" else ("Spearman", "Pearson")
        assert titles[0] == f"{kind} x 100 of the cosine"
        assert set(titles[1:]) == {f"{kind} x 100 of the inner product", f"{other} x 100 of the cosine"}


def test_text_of_the_record_is_never_markup_nor_control() -> None:
    evaluation = _evaluation("[red]set\x1b[31m")
    assert "\x1b" not in _printed(evaluation)
    assert "[red]set\\x1b[31m" in _printed(evaluation)


def test_an_interval_beyond_chance_does_not_end_at_a_printed_0() -> None:
    change = {"ndcg10": Interval(0.0006, 0.00002, 0.0017), "recall10": Interval(0.0, -0.00002, 0.00001)}
    numbers = {"ndcg10": 0.5, "recall10": 0.25, "n": 90}
    record = Evaluation(
        "v",
        "m",
        "retrieval",
        "",
        {"retrieval": {"s": {"original": numbers, "center": numbers}}},
        {"retrieval": {"s": {"center": change}}},
    )
    told = _printed(record)
    assert re.search(r"center +0\.5000 +\+0\.0006 +\+0\.00002 to \+0\.00170 +\+", told)
    assert re.search(r"center +0\.2500 +\+0\.0000 +-0\.0000 to \+0\.0000 *$", told, re.MULTILINE)
