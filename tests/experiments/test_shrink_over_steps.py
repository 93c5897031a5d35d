"""The paper's second figure from made-up answers, against sums by hand."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
Load = Callable[[str], Any]
SVG = "{http://www.w3.org/2000/svg}"
STEPS, GOLD = (10, 20, 30, 40), np.arange(60) % 3 != 0
"""Probes of a run of 40 steps, of which those after 28 are its last 30 %."""


def _look(shrink: Load, correct: Any, loss: float) -> dict[str, Any]:
    counts = {"tp": correct & GOLD, "fp": ~correct & ~GOLD, "fn": ~correct & GOLD, "tn": correct & ~GOLD}
    bits = shrink("training").bits(torch.from_numpy(correct))
    return {"correct": bits, "loss": loss, "confusion": {name: int(flags.sum()) for name, flags in counts.items()}}


def _group(shrink: Load, seeds: dict[str, int], task: str = "mrpc") -> Any:
    """Random answers, better from probe to probe, with more seeds of one arm than of another."""
    draw, arms = np.random.default_rng(5), dict[str, dict[int, Any]]()
    for arm, n in seeds.items():
        for seed in range(n):
            looks = [_look(shrink, draw.random(60) < 0.5 + step / 100, 1 / step + seed / 10) for step in STEPS]
            probes = [{"step": step, "judged": look} for step, look in zip(STEPS, looks, strict=True)]
            training = {"probes": probes, "last_steps": {"from_step": 29}}
            arms.setdefault(arm, {})[seed] = {"items": 60, **looks[-1], "training": training}
    return shrink("runs").Group(task, "all", arms, GOLD, None)


def _matthews(shrink: Load, look: dict[str, Any]) -> float:
    right = shrink("training").unpacked(look["correct"], 60).numpy()
    return float(np.corrcoef(np.where(right, GOLD, ~GOLD), GOLD)[0, 1])


def test_the_mean_of_looks_is_of_metrics_and_not_of_answers(shrink: Load) -> None:
    group = _group(shrink, {"none": 3, "selected": 2}, "cola")
    by_hand = [
        np.mean([_matthews(shrink, group.arms[arm][seed]["training"]["probes"][place]["judged"]) for place in (2, 3)])
        for arm in ("none", "selected")
        for seed in (0, 1)
    ]
    found = group.compared_over_last("none", "selected")["matthews"]
    assert found.value == pytest.approx((by_hand[2] + by_hand[3] - by_hand[0] - by_hand[1]) / 2)
    assert found.seeds == 2
    assert group.over_last("selected", "matthews") == pytest.approx(dict(enumerate(by_hand[2:])))
    assert group.over_last("none", "loss")[2] == pytest.approx(0.2 + (1 / 30 + 1 / 40) / 2)
    assert group.compared_over_last("none", "all") is None


def test_looks_that_agree_are_one_look(shrink: Load) -> None:
    scoring, draw = shrink("scoring"), np.random.default_rng(6)
    a, b = (draw.random((4, 60)) < share for share in (0.6, 0.8))
    once, often = scoring.compare(a, b, GOLD), scoring.compare(np.stack([a] * 3), np.stack([b] * 3), GOLD)
    for name in scoring.METRICS:
        one, other = once[name], often[name]
        assert (one.value, one.low, one.high, one.detectable) == pytest.approx(
            (other.value, other.low, other.high, other.detectable)
        )


def test_looks_that_do_not_agree_are_surer_than_one(shrink: Load) -> None:
    """Answers drawn anew at each of nine looks: their mean moves a third as far with seeds and items."""
    scoring, draw = shrink("scoring"), np.random.default_rng(7)
    a, b = (draw.random((9, 6, 60)) < 0.7 for _ in range(2))
    one, nine = scoring.compare(a[0], b[0], GOLD)["accuracy"], scoring.compare(a, b, GOLD)["accuracy"]
    assert nine.detectable < 0.6 * one.detectable


def test_what_paired_seeds_can_detect(shrink: Load) -> None:
    t = pytest.importorskip("scipy.stats").t(3)
    found = shrink("scoring").paired([0.1, 0.4, 0.2, 0.3], [0.2, 0.45, 0.4, 0.3])
    error = np.std([0.1, 0.05, 0.2, 0.0], ddof=1) / 2
    assert found.detectable == pytest.approx((t.ppf(0.975) + t.ppf(0.8)) * error)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(0.1, 0.2), (0.01, 0.3)], "confirmed"),
        ([(0.1, 0.2), (-0.1, 0.3)], "weakened: on mrpc only"),
        ([(0.1, 0.2), (-0.2, -0.1)], "weakened: on mrpc only"),
        ([(-0.2, -0.1), (-0.1, 0.3)], "contradicted (mrpc)"),
        ([(-0.2, -0.1), None], "contradicted (mrpc)"),
        ([(0.1, 0.2), None], "cannot be decided: fewer than two seeds of both arms on cola"),
        ([(-0.1, 0.2), (0.0, 0.3)], "cannot be decided at this size: .* at least 4.0 on mrpc, 4.0 on cola"),
    ],
)
def test_verdicts_of_two_tasks(shrink: Load, ends: list[tuple[float, float] | None], expected: str) -> None:
    scoring = shrink("scoring")
    results = {
        task: None if end is None else scoring.Difference(sum(end) / 2, *end, 0.04, 5)
        for task, end in zip(("mrpc", "cola"), ends, strict=True)
    }
    found = shrink("over_steps").verdict(results)
    assert re.fullmatch(expected.replace("(", r"\(").replace(")", r"\)"), found)


def test_a_seed_of_one_arm_decides_nothing(shrink: Load) -> None:
    one = shrink("scoring").Difference(0.3, None, None, None, 1)
    assert shrink("over_steps").verdict({"mrpc": one}).startswith("cannot be decided: fewer than two seeds")


def test_the_table_has_the_numbers_of_the_runs_and_a_row_for_what_is_missing(shrink: Load) -> None:
    group = _group(shrink, {"none": 3, "selected": 2})
    lines = shrink("over_steps").section([group]).split("\n")
    rows = {
        tuple(cells[1:4]): cells
        for cells in ([cell.strip() for cell in line.split("|")] for line in lines)
        if len(cells) == 10
    }
    row = rows["mrpc", "accuracy", "selected minus none"]
    right = {
        (arm, seed, place): 100 * (look["confusion"]["tp"] + look["confusion"]["tn"]) / 60
        for arm in ("none", "selected")
        for seed in (0, 1)
        for place, look in enumerate(one["judged"] for one in group.arms[arm][seed]["training"]["probes"])
    }
    mean = {
        arm: np.mean([right[arm, seed, place] for seed in (0, 1) for place in (2, 3)]) for arm in ("none", "selected")
    }
    end = {arm: np.mean([right[arm, seed, 3] for seed in (0, 1)]) for arm in ("none", "selected")}
    assert row[4] == "2 of 5"
    for levels, difference, expected in ((row[5], row[6], mean), (row[7], row[8], end)):
        assert levels == ", ".join(f"{arm} {value:.2f}" for arm, value in expected.items())
        assert difference.startswith(f"{expected['selected'] - expected['none']:+.2f} [")
    assert rows["mrpc", "loss", "selected minus none"][6].startswith("+0.000 [+0.000, +0.000]")
    missing = [key for key, cells in rows.items() if cells[5:9] == ["not run"] * 4]
    assert len(missing) == 2 * 3 + 3 * 2, "of mrpc what needs the arm all, and all of cola"


def test_the_report_of_files(shrink: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs over the steps make a section of the report; without any it says that they are not run."""
    kept, runs, tables = shrink("kept").Kept(tmp_path), shrink("runs"), shrink("tables")
    items = SimpleNamespace(labels=torch.from_numpy(GOLD).long())
    monkeypatch.setattr(runs, "load", lambda *_: SimpleNamespace(digest="d", evaluation=items))
    group = _group(shrink, {"none": 2, "selected": 2})
    how = {
        "rate": 1,
        "decay": 0,
        "steps": 40,
        "batch": 64,
        "warm_up": 0.1,
        "longest": 9,
        "precision": "fp32",
        "last": 0.3,
    }
    more = {
        "cpu_seconds": {"whole": 90},
        "made_by": {"commit": "abc", "torch": "2", "transformers": "5", "threads": "1"},
    }
    for arm, seeds in group.arms.items():
        for seed, run in seeds.items():
            asked = {"task": "mrpc", "arm": arm, "seed": seed, "examples": "all", "settings": how, "data": "d"}
            kept.save(f"over_steps/mrpc_all_{arm}_{seed:02d}", asked, run | more)
    text, pictures = tables.report(kept, tmp_path)
    assert [*pictures] == ["metric_mrpc_all.svg"]
    assert "](metric_mrpc_all.svg)" in text
    assert "| mrpc | accuracy | selected minus none | 2 of 5 | none " in text
    assert "| mrpc | all, judged over the steps | 15 | 4 | 90 | 0.28 |" in text
    assert "Commits abc;" in text
    assert "| unknown | mrpc accuracy " in text
    assert "cola matthews not run | cannot be decided" in text


def _points(path: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+) ([\d.-]+)", path.get("d", ""))]


def test_the_picture_shows_mean_and_deviation(shrink: Load) -> None:
    group = _group(shrink, {"none": 3, "selected": 1})
    tree = ElementTree.fromstring(shrink("curves").metric_curves(group, ("accuracy",)))
    paths = {path.get("class"): _points(path) for path in tree.iter(f"{SVG}path")}
    texts = [text for text in tree.iter(f"{SVG}text") if text.get("class") == "tick"]
    up = {float(t.text or ""): float(t.get("y", "")) - 3.5 for t in texts if t.get("text-anchor") == "end"}
    (low, bottom), (high, top) = min(up.items()), max(up.items())
    read = lambda y: low + (y - bottom) / (top - bottom) * (high - low)  # noqa: E731
    each = np.array(
        [
            [100 * shrink("runs").judged(one["judged"], "accuracy") for one in run["training"]["probes"]]
            for run in group.arms["none"].values()
        ]
    )
    mean, around = each.mean(0), each.std(0, ddof=1)
    assert [read(y) for _, y in paths["line arm0"][-4:]] == pytest.approx(mean, abs=0.2)
    band = [read(y) for _, y in paths["band arm0"]]
    assert band[:4] == pytest.approx(mean + around, abs=0.2)
    assert band[4:] == pytest.approx((mean - around)[::-1], abs=0.2)
    flat = [read(y) for _, y in paths["band arm1"]]
    assert flat[:4] == pytest.approx(flat[:3:-1]), "one seed has no band"
    names = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") == "name"]
    assert names == ["none, 3 seeds", "selected, 1 seed"]
