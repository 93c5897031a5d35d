"""The kept simulations behind the tables of claims: within their levels, and a small part of each again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import load_script

pytest.importorskip("scipy")
Load = Callable[[str], Any]
ROOT = Path(__file__).parents[2] / "experiments"
MOST = 0.06  # upper limit of a false alarm


def _kept(path: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / path).read_text())


def _upper(script: Any, one: dict[str, Any], share: float) -> float:
    return script.upper(round(share * one["sims"]), one["sims"])


def test_laws_of_counts() -> None:
    script, kept = load_script(ROOT / "token_frequency/rivals.py"), _kept("token_frequency/results/rivals.json")
    for one in kept:
        wrong = one["no"] if one["law"] in script.ZIPF else one["closely"] + one["roughly"]
        assert _upper(script, one, wrong) <= MOST, one
    for law, answer in (("ranks, exponent 1", "roughly"), ("log-normal, deviation 1", "no")):
        known = next(one for one in kept if (one["law"], one["ranks"]) == (law, 2000))
        assert script.cell(law, 2000, 15)[answer] == pytest.approx(known[answer], abs=0.15)
        assert known[answer] >= 0.8


def test_gaps_of_single_runs(saturation: Load) -> None:
    script, kept = saturation("law_gaps"), _kept("saturation/results/law_gaps.json")
    assert {one["design"] for one in kept} == set(script.DESIGNS)
    for one in kept:
        if one["off"] == "none off":
            assert one["any_upper"] <= MOST, one
            assert one["mean_off"] <= MOST, one
    name = script.DESIGNS[0]
    again = {(one["off"], one["deviations"]): one for one in script.cells(name, 12)}
    for one in kept:
        if one["design"] == name:
            assert again[one["off"], one["deviations"]]["any_named"] == pytest.approx(one["any_named"], abs=0.35)


def test_turns_and_pushes() -> None:
    script, kept = load_script(ROOT / "token_frequency/reasons.py"), _kept("token_frequency/results/reasons.json")
    for one in kept:
        if one["truth"] not in ("turn", "1.5 times"):
            assert one["said"] <= 0.06, one
    for one in kept:
        if one["sentence"] == "turn" and one["n"] == 4000:
            said = sum(script.turned(one["truth"], 4000, seed) for seed in range(20)) / 20
            assert said == pytest.approx(one["said"], abs=0.2)
