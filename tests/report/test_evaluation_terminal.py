"""An evaluation as it is printed: marks, widths, and text that no terminal should get."""

import re
from dataclasses import replace

from tests.report.printed import printed
from uncone.evaluation.record import Evaluation, Interval, Price


def _evaluation(*sets: str, name: str = "m") -> Evaluation:
    up, down, flat = Interval(1.5, 0.5, 2.5), Interval(-3.0, -4.0, -2.0), Interval(0.25, -1.0, 1.5)
    numbers = {"original": 70.0, "all_but_the_top_original_d100": 71.5, "whiten": 67.0, "center": 70.25}
    inner = {repair: None if repair == "center" else value - 1 for repair, value in numbers.items()}
    scores = {r: {"spearman_cosine": value, "spearman_inner": inner[r], "n": 1234} for r, value in numbers.items()}
    changes = {"all_but_the_top_original_d100": up, "whiten": down, "center": flat}
    differences = {repair: {"spearman_cosine": change} for repair, change in changes.items()}
    prices = {"whiten": Price(2.0, 0.001, 10, 100), "center": Price(0.5, 0.001, 10, 100)}
    each = ({"sts": dict.fromkeys(sets, of)} for of in (scores, differences))
    made = Evaluation("No repair helps.", name, "sts", "", *each, dict.fromkeys(sets, prices), ("a note",))
    return replace(made, intervals="Intervals: 95%.", provenance={"measure": "spearman_cosine"})


def test_one_set_shows_changes_and_intervals() -> None:
    lines = [line.split() for line in printed(_evaluation("stsb")).splitlines()]
    assert lines[0] == ["No", "repair", "helps."]
    assert ["stsb", "1,234", "pairs"] in lines
    assert ["original", "70.00"] in lines
    assert ["all_but_the_top_original_d100", "71.50", "+1.50", "+0.50", "to", "+2.50", "+"] in lines
    assert ["whiten", "67.00", "-3.00", "-4.00", "to", "-2.00", "-"] in lines
    assert ["center", "70.25", "+0.25", "-1.00", "to", "+1.50"] in lines
    price = "Price: whiten took 2 s to fit, the others at most 0.50 s; applying takes at most 10 microseconds"
    assert price in " ".join(" ".join(line) for line in lines)


def test_many_sets_fit_into_80_columns() -> None:
    lines = printed(_evaluation("sts12", "sts13", "sts14", "sts15", "sts16", "stsb")).splitlines()
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
        found = replace(one, task="wordsim", protocol=protocol, results={"wordsim": sets})
        shown = printed(replace(found, provenance={"measure": first}))
        titles = [line.strip() for line in shown.splitlines() if " x 100 of the " in line]
        kind, other = ("Pearson", "Spearman") if protocol == "paper" else ("Spearman", "Pearson")
        assert titles[0] == f"{kind} x 100 of the cosine"
        assert set(titles[1:]) == {f"{kind} x 100 of the inner product", f"{other} x 100 of the cosine"}


def test_text_of_the_record_is_never_markup_nor_control() -> None:
    evaluation = _evaluation("[red]set\x1b[31m")
    assert "\x1b" not in printed(evaluation)
    assert "[red]set\\x1b[31m" in printed(evaluation)


def test_an_interval_beyond_chance_does_not_end_at_a_printed_0() -> None:
    change = {"ndcg10": Interval(0.0006, 0.00002, 0.0017), "recall10": Interval(0.0, -0.00002, 0.00001)}
    numbers = {"ndcg10": 0.5, "recall10": 0.25, "n": 90}
    results = {"retrieval": {"s": {"original": numbers, "center": numbers}}}
    told = printed(Evaluation("v", "m", "retrieval", "", results, {"retrieval": {"s": {"center": change}}}))
    assert re.search(r"center +0\.5000 +\+0\.0006 +\+0\.00002 to \+0\.00170 +\+", told)
    assert re.search(r"center +0\.2500 +\+0\.0000 +-0\.0000 to \+0\.0000 *$", told, re.MULTILINE)
