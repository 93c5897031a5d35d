"""Are the figures of the README and of the page on pre-training those of the kept results?"""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

import uncone

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
PYTHIA = ROOT / "../shared/data/pythia/pythia_evals_v1.csv"


def _kept(name: str) -> Any:
    return json.loads((ROOT / "experiments" / name).read_text(encoding="utf-8"))


def _rows(name: str) -> list[dict[str, str]]:
    """The rows of every table of arms in a page of the bench, with the heading over each."""
    rows, columns, heading = list[dict[str, str]](), list[str](), ""
    for line in (ROOT / "experiments/rare_tokens/results" / name).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| arm | rate |"):
            columns = cells
        elif columns and line.startswith("| ") and len(cells) == len(columns):
            rows.append({"heading": heading} | dict(zip(columns, cells, strict=True)))
        elif not line:
            columns = []
    return rows


def test_of_smollm2() -> None:
    kept = _kept("real_models/results/smollm2.json")
    before, after = kept["readings"]["partition_isotropy"][0], kept["I(W) centred"]
    assert f"I(W) of SmolLM2 rises from {before:.3f} to {after:.2f} without the mean row" in README
    assert f"the loss rises by {kept['input centred']['without']['mean row']['divergence']:.2f} nats" in README


def test_of_published_models() -> None:
    kept = _kept("known_runs/results/results.json")

    def told(one: dict[str, float]) -> str:
        return f"{one['tau']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})"

    rate = kept["runs"]["correlation_with_the_learning_rate"]["head isotropy"]
    assert f"In {kept['runs']['runs']} published models" in README
    assert f"tau-b {rate['tau']:.2f}, 95%: {rate['low']:.2f} to {rate['high']:.2f})" in README
    over, fixed = (kept[name]["all"]["head isotropy"] for name in ("over_learning_rates", "at_fixed_learning_rate"))
    small, large = (kept["by_size"][f"{m} M, over learning rates"]["head isotropy"]["tau"] for m in (16, 221))
    assert f"{told(over)} over learning rates, but {small:+.2f} at 16 M and {large:+.2f} at 221 M" in README
    assert f"and {told(fixed)} over remedies at one rate" in README
    chosen, median = (kept["chosen_by_reading"][name] for name in ("head isotropy", "the median run"))
    assert f"is worse than the median in {sum(chosen[m] > median[m] for m in median)} of {len(median)} sizes" in README


def test_of_the_gate_and_the_optimiser() -> None:
    shares, settings = list[float](), 0
    for name in ("core.md", "v16k-d128.md", "v16k-d256.md"):
        rows = _rows(name)
        for heading in dict.fromkeys(row["heading"] for row in rows):
            of = {row["arm"]: row for row in rows if row["heading"] == heading}
            if {"AdamW, beta2 .95", "AdamW, beta2 .999", "AGG"} <= set(of):
                rare = {arm: float(of[arm]["rare"].replace(",", "")) for arm in of if of[arm]["rare"] not in ("", "-")}
                settings += 1
                assert rare["AdamW, beta2 .999"] < rare["AdamW, beta2 .95"], heading
                assert rare["AdamW, beta2 .999"] < rare["AGG"], heading
                assert float(of["AdamW, beta2 .999"]["loss"]) < float(of["AdamW, beta2 .95"]["loss"]), heading
                if heading == rows[0]["heading"]:
                    shares.append(rare["AGG"] / rare["AdamW, beta2 .95"])
    assert 0.2 < shares[0] < 0.3, "about a quarter"
    assert all(0.7 < share < 0.9 for share in shares[1:]), "four fifths"
    assert settings == 5
    assert "to about a quarter in the smallest model and to four fifths in two larger ones" in README
    assert "lowers it further, at a lower loss, in all five settings of language models tried" in README


def test_of_the_page_on_pre_training() -> None:
    page = " ".join((ROOT / "docs/pretraining.md").read_text(encoding="utf-8").split())
    first = {
        (name, row["arm"]): row for name in ("core.md", "v16k-d128.md", "v16k-d256.md") for row in _rows(name)[::-1]
    }
    (plain, long, column), many = (
        [first["core.md", arm] for arm in ("AdamW, beta2 .95", "AdamW, beta2 .999", "second moment a column")],
        {row["arm"]: row for row in _rows("core.md") if row["heading"] == "Untied, 4,096 targets a step"},
    )

    def gain(row: dict[str, str]) -> float:
        return -float(row["less plain"].split()[0])

    larger = sorted(gain(first[name, "AdamW, beta2 .999"]) for name in ("v16k-d128.md", "v16k-d256.md"))
    for sentence, numbers in {
        r"the mean cosine of the head from (\S+) to (\S+), at": (float(plain["cosine"]), float(long["cosine"])),
        r"at a total loss that is (\S+) nats lower \((\S+) and (\S+) in two larger models": (gain(long), *larger),
        r"\(mean cosine (\S+)\), the loss falls by (\S+) nats": (float(column["cosine"]), gain(column)),
        r"the loss rises by (\S+) \(one seed": (-gain(many["second moment a column"]),),
        r"is a fifth \((\S+) nats, one seed": (gain(many["AdamW, beta2 .999"]),),
    }.items():
        found = re.search(sentence, page)
        assert found, sentence
        assert [float(one) for one in found.groups()] == pytest.approx(numbers, abs=0.0051), sentence
    rates = [row["rate"].removeprefix("0") for row in (plain, long, column)]
    assert f"{rates[0]} with beta2 .95, {rates[1]} with .999 and {rates[2]} with one second moment" in page
    rare = [float(row["rare"].replace(",", "")) for row in (plain, long, column)]
    assert 0.18 < rare[1] / rare[0] < 0.22, "about a fifth"
    assert 0.36 < rare[2] / rare[0] < 0.44, "about two fifths"


def test_of_a_search() -> None:
    (row,) = re.findall(
        r"\| `center` \| (-0\.\d+ \(.*?\)) \|", (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    )
    change, low, high = re.findall(r"0\.\d+", row)
    assert f"takes {change} ({high} to {low}) from nDCG@10" in README


def test_of_late_declines() -> None:
    if not PYTHIA.exists():
        pytest.skip("the evaluations of Pythia are not beside the project")
    with PYTHIA.open(newline="") as file:
        rows = [
            r for r in csv.DictReader(file) if (r["task"], r["metric"], r["shots"]) == ("lambada_openai", "acc", "0")
        ]
    found = uncone.judge_curves(rows)
    fell = [curve for curve in found.curves if curve.declined_alone]
    assert ([curve.model for curve in fell], len(found.curves)) == (["pythia-70m"], 16)
    assert f"(70M, P {fell[0].p_alone:.3f} judged alone)" in README
    assert f"it is not significant (P {fell[0].p_holm:.3f})" in README
    runs = (ROOT / "experiments/saturation/RUNS.md").read_text(encoding="utf-8")
    assert "60 runs. The loss turned in 0 of 60." in runs
    assert "No head of too low a rank made a loss turn in 60 training runs" in README
