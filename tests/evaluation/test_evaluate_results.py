"""The kept evaluations: they load, and what the document quotes is what they print."""

import json
import re
from pathlib import Path

import pytest

from uncone.evaluation.record import Evaluation, Interval, Selection

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments/repair_evaluation/results"
FILES = sorted(RESULTS.glob("all-MiniLM-L6-v2.*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kept_records_load_and_begin_as_they_are_printed(path: Path) -> None:
    record = (Selection if ".select_" in path.name else Evaluation).load(path)
    assert record.verdict in " ".join(path.with_suffix(".txt").read_text(encoding="utf-8").split())


def test_the_document_quotes_the_kept_results() -> None:
    page = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8").partition("## What it says of MiniLM")[2]
    quoted = "".join(re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)).splitlines()
    printed = {line for path in RESULTS.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()}
    assert len(quoted) > 30
    assert set(quoted) <= printed | {"..."}


def test_the_default_on_retrieval_is_to_leave_it() -> None:
    """A repair may be a default only if it surely costs less than 0.005 of nDCG@10; centring does not show that."""
    (path,) = RESULTS.glob("*.retrieval.json")
    found = Evaluation.load(path).differences["retrieval"]["scifact"]
    assert found["center"]["ndcg10"].low < -0.005
    assert found["center"]["ndcg10_inner_documents"].low >= -0.005


def _kept_own(kind: str) -> tuple[dict[str, dict[str, float | None]], dict[str, dict[str, Interval]]]:
    found = Evaluation.load(RESULTS / f"all-MiniLM-L6-v2.{kind}.json")
    return found.results["retrieval"]["documents"], found.differences["retrieval"]["documents"]


def _own_section() -> str:
    page = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    return page.partition("## Your own vectors\n")[2].partition("\n## ")[0]


def _cell(one: Interval) -> str:
    return f"{one.difference:+.4f} ({one.low:+.4f} to {one.high:+.4f})"


def test_the_table_of_own_vectors_is_the_kept_results() -> None:
    names = ("ndcg10", "recall10", "recall10_inner")
    numbers, changes = _kept_own("own_vectors")
    expected = [["none", *(f"{numbers['original'][name]:.4f}" for name in names)]]
    expected += [[f"`{repair}`", *(_cell(by[name]) for name in names)] for repair, by in changes.items()]
    section = _own_section()
    table = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert table[0] == ["repair", "nDCG@10, cosine", "recall@10, cosine", "recall@10, inner product"]
    assert table[1:] == expected
    of_the_test_split, changes = _kept_own("own_vectors_test")
    told = " ".join(section.split())
    assert numbers["original"]["n"] == 1109
    assert "All 1,109 queries, with 95% intervals of 10,000 resamples" in told
    assert of_the_test_split["original"]["n"] == 300
    assert f"With the 300 test queries alone its change of nDCG@10, {_cell(changes['center']['ndcg10'])}" in told


def test_the_price_of_own_vectors_is_the_kept_one() -> None:
    kept = json.loads((RESULTS / "own_vectors_size.json").read_text(encoding="utf-8"))
    told = " ".join(_own_section().split())
    took = {name: f"{one['processor_s']:.0f} seconds" for name, one in kept["commands"].items()}
    peak = {name: f"{one['peak_mib']:,} MiB" for name, one in kept["commands"].items()}
    assert f"With {kept['documents']:,} documents and {kept['queries']:,} queries of {kept['d']} numbers" in told
    of_all = f"{took['all repairs']} of one processor's time and at most {peak['all repairs']}"
    assert f"all repairs took {of_all} of" in told
    alone = {"center": "`--method center` alone took", "cluster_center": "`--method cluster_center` alone"}
    for name, words in (alone | {"auto": "the choice among the affine repairs"}).items():
        assert f"{words} {took[name]} and {peak[name]}" in told
