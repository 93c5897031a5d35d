"""A collection of vectors is judged by what its users see: scores of pairs, and rows by name."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import uncone
from uncone.diagnosis.advice import Advice
from uncone.diagnosis.collection import COPIED_SHARE, HUB, HUB_SHARE, named_rows
from uncone.diagnosis.findings import find
from uncone.diagnosis.record import Diagnosis, Subject
from uncone.measure.cosine import random_scores
from uncone.records.blocks import Heading
from uncone.records.parts import Finding, Measurement, NearDuplicates, OddRows, RandomScores
from uncone.rows import as_rows

from ..planted import drifted, write_model

E5 = (Path(__file__).parent / "../../../shared/data/vectors/e5-small-scifact/documents.npy").resolve()
FINE = [
    Measurement(name, even, reference=even, n=1000, d=64)
    for name, even in (("isoscore", 1.0), ("effective_rank", 64.0))
]
SCORES = RandomScores(0.81, 0.8635, 499_500, 1000)


def cloud(n: int = 600, d: int = 32, seed: int = 0) -> np.ndarray:
    """Unit rows of a falling spectrum, without a defect."""
    x = np.random.default_rng(seed).standard_normal((n, d)) * np.logspace(0, -0.5, d)
    return (x / np.linalg.norm(x, axis=1)[:, None]).astype(np.float32)


def planted() -> np.ndarray:
    """Row 7 again at 100 and 101, an empty text's vector 20 times, two zero rows, and 8 near-duplicates."""
    x, draw = cloud(), np.random.default_rng(1)
    x[[100, 101]] = x[7]
    x[201:220] = x[200]
    x[[300, 301]] = 0
    x[400:408] = x[50:58] + 0.01 * draw.standard_normal((8, 32)).astype(np.float32)
    return x


def found(*measurements: Measurement, **more: Any) -> dict[str, Finding]:
    mean = Measurement("mean_cosine", 0.0, reference=0.0, n=1000, d=64)
    return {f.cause: f for f in find((*FINE, mean, *measurements), None, head=False, **more)}


def subject(x: Any, **how: Any) -> Subject:
    return uncone.diagnose(x, **how).subjects[0]


def causes(one: Subject) -> dict[str, Finding]:
    return {f.cause: f for f in one.findings}


def test_scores_of_random_pairs_are_those_of_all_pairs() -> None:
    x = np.concatenate([cloud(150) + 0.2, np.zeros((3, 32), np.float32)])
    scores = random_scores(as_rows(x), 0.5)
    u = [row / np.linalg.norm(row) for row in x[:150].astype(np.float64)]
    pairs = sorted(float(u[i] @ u[j]) for i in range(150) for j in range(i))
    assert scores
    assert (scores.mean, scores.pairs, scores.rows, scores.seed) == (0.5, 11_175, 150, None)
    assert scores.reached == pytest.approx(pairs[-112], abs=1e-12)  # 112 of 11,175 are the first that are 1 in 100
    assert random_scores(as_rows(x[150:]), 0.5) is None


def test_of_many_rows_a_sample_is_drawn_with_a_seed() -> None:
    x = cloud(5000) + 0.2
    scores = random_scores(as_rows(x), 0.5)
    assert scores
    assert (scores.pairs, scores.rows, scores.seed) == (2_096_128, 2048, 0)
    assert scores == random_scores(as_rows(x), 0.5)
    assert scores.reached == pytest.approx(uncone.calibrate(x).threshold(0.01), abs=0.01)
    drift = causes(subject(x))["common_direction_drift"]
    assert "2,096,128 pairs of 2,048 rows drawn at random (seed 0)" in drift.evidence[0]


@pytest.mark.parametrize("cosine", [0.2, 0.81, 0.99])
def test_a_common_direction_is_a_warning_in_scores_and_no_reason_to_centre(cosine: float) -> None:
    mean = Measurement("mean_cosine", cosine, reference=0.0, n=1000, d=64)
    drift = found(mean, scores=SCORES)["common_direction_drift"]
    assert drift.level == "warning"
    assert drift.summary.startswith("Two random rows score 0.81, and 1 in 100 pairs reaches 0.86.")
    assert "one narrow topic" in drift.summary
    assert "cannot show whether the ranking suffers" in drift.summary
    assert drift.evidence[0] == "1 in 100 of all 499,500 pairs scores 0.8635 or more"
    assert drift.command == "calibration = uncone.calibrate(x)"
    assert "percentiles" in drift.repair and "evaluate --queries" in drift.repair  # noqa: PT018
    assert "ubtract" not in drift.repair + drift.summary
    table = found(mean, advice=Advice("table"))["common_direction_drift"]
    assert (table.level == "severe") == (cosine >= 0.5)
    assert table.summary.startswith("All rows share a common direction")


def test_no_score_is_rounded_onto_one() -> None:
    mean = Measurement("mean_cosine", 0.998, reference=0.0, n=1000, d=64)
    drift = found(mean, scores=RandomScores(0.998, 0.99991, 10, 5))["common_direction_drift"]
    assert drift.summary.startswith("Two random rows score 0.998, and 1 in 100 pairs reaches 0.9999.")


def test_other_defects_come_before_the_scores_in_the_verdict() -> None:
    x = planted() + np.float32(0.2)
    d = uncone.diagnose(x)
    assert d.verdict.startswith(
        "The collection has a defect: 22 of its rows are equal to others. Two random rows score"
    )
    assert d.verdict.endswith(": read scores as percentiles (`uncone calibrate`).")
    near = uncone.diagnose(np.concatenate([cloud(), cloud()[:3] + np.float32(1e-3)]) + np.float32(0.2), neighbours=True)
    assert near.verdict.startswith("Two random rows of the collection score ")
    assert near.verdict.endswith("(`uncone calibrate`), with a note on hubs and near duplicates.")


def test_equal_rows_name_their_twins_and_the_repeated_vector() -> None:
    one = causes(subject(planted()))
    assert one["equal_rows"].evidence == (
        "200 occurs 20 times: empty texts, and default vectors for texts that failed, look like this",
        "100 and 101 equal 7",
        "201, 202, 203, 204, 205 and 206 equal 200",
    )
    assert "empty" in one["zero_rows"].repair
    assert "hubs" not in one
    assert "near_duplicates" not in one
    old = found(odd=(OddRows("equal", 2, ids=(5, 6), labels=("a", None)),))["equal_rows"]  # of an older file
    assert old.evidence == ("first: 5 ('a'), 6",)


def test_near_duplicates_are_named_with_their_twins() -> None:
    one = causes(subject(planted(), neighbours=True))["near_duplicates"]
    assert one.level == "note"
    assert one.summary.startswith("16 of 598 rows have a near-duplicate: another row at a cosine of at least 0.9")
    assert "is at 25% of the usual distance from a row to its tenth nearest row" in one.evidence[0]
    for k in range(8):
        assert f"{400 + k} and {50 + k} (0.99" in one.evidence[1]
    assert one.repair


@pytest.mark.parametrize(("n", "expected"), [(0, None), (1, "note"), (200, "note"), (201, "warning")])
def test_near_duplicates_by_their_number(n: int, expected: str | None) -> None:
    copies = NearDuplicates(n, 1000, 0.99, 0.9, 0.25)
    one = found(copies=copies).get("near_duplicates")
    assert (one and one.level) == expected
    assert COPIED_SHARE == 0.2
    assert ("no_defect" in found(copies=copies)) == (expected != "warning")
    assert "near_duplicates" not in found(copies=copies, advice=Advice("table"))


@pytest.mark.parametrize(
    ("most", "expected"), [(49, None), (50, "note"), (99, "note"), (100, "warning"), (900, "warning")]
)
def test_hubs_by_how_often_they_are_found(most: int, expected: str | None) -> None:
    details = {"k": 10, "hubs": [5, 7, 9], "hub_counts": [most, 49, 3], "hub_labels": ["five", None, "nine"]}
    hubness = Measurement("hubness", 3.0, n=1000, d=64, details=details | {"queries": 1000, "searched": 1000})
    one = found(hubness).get("hubs")
    assert (one and one.level) == expected
    assert (HUB, HUB_SHARE) == (5.0, 0.1)
    assert "hubs" not in found(hubness, advice=Advice("table"))
    if one:
        assert one.extent == most / 1000
        assert one.summary.startswith("1 row is a hub, among the 10 nearest rows of at least 50 other rows")
        assert one.evidence == (f"found most often: 5 ('five') by {most} of 1,000 rows ({most / 10:.0f}%)",)


def test_a_planted_hub_is_named_with_its_count() -> None:
    """A row along the common direction of drifted rows is near to all."""
    x = cloud(1000, 64) + 0.15
    x[77] = x.mean(0)
    one = causes(subject(x, neighbours=True))["hubs"]
    u = x / np.linalg.norm(x, axis=1)[:, None]
    lists = np.argsort(-(u @ u.T) + 9 * np.eye(1000), axis=1)[:, :10]
    times = int((lists == 77).sum())
    assert one.level == "warning"
    assert f"found most often: 77 by {times} of 1,000 rows" in one.evidence[0]
    sampled = {"k": 10, "hubs": [5], "hub_counts": [80.5], "queries": 100, "searched": 9000}
    few = found(Measurement("hubness", 3.0, n=9000, d=64, details=sampled))["hubs"]
    assert few.evidence[1] == "estimated from the nearest rows of 100 rows"


def printed(d: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    uncone.report.print_record(d, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_what_concerns_single_rows_stands_before_the_geometry() -> None:
    x = planted() + np.float32(0.3)
    x[:, 3] *= 12  # a rogue dimension
    d = uncone.diagnose(x, neighbours=True)
    assert [f.level for f in d.subjects[0].findings[:2]] == ["warning", "warning"]
    headings = [block.text for block in d.subjects[0].blocks() if isinstance(block, Heading) and block.level == 4]
    assert headings[:4] == ["Equal rows", "Hubs", "Near duplicates", "Common direction drift"]
    terminal = printed(d)
    places = [terminal.index(f"  {name}\n") for name in headings]
    assert places == sorted(places)
    page = [re.sub("<[^>]*>", "", one) for one in re.findall(r"<h4.*?</h4>", uncone.report.to_html(d), re.DOTALL)]
    assert all(shown.endswith(name) for shown, name in zip(page, headings[:4], strict=False))


def test_a_comparison_concludes_nothing_where_one_side_was_not_searched() -> None:
    x = cloud(1000, 64) + 0.15
    x[77] = x.mean(0)
    without, searched = uncone.diagnose(x), uncone.diagnose(x, neighbours=True)
    for pair in ((without, searched), (searched, without)):
        compared = uncone.compare(pair, names=["a", "b"])
        assert not compared.worse
        assert "better" not in compared.verdict.replace("neither worse nor better", "")
        assert "the hubs, which only one of the two can show" in compared.verdict
    clean = uncone.diagnose(cloud(1000, 64) + 0.15, neighbours=True)
    assert "hubs new" in uncone.compare([clean, searched], names=["a", "b"]).verdict


def test_rows_are_named_by_the_ids_beside_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "documents.npy", planted())
    (tmp_path / "documents.ids").write_text("".join(f"doc-{i}\n" for i in range(600)))
    d = uncone.diagnose(tmp_path / "documents.npy", neighbours=True)
    evidence = " ".join(line for f in d.subjects[0].findings for line in f.evidence)
    assert "100 ('doc-100') and 101 ('doc-101') equal 7 ('doc-7')" in evidence
    assert "400 ('doc-400') and 50 ('doc-50') (0.99" in evidence
    assert d.subjects[0].odd_rows[0].labels == ("doc-300", "doc-301")
    assert d.subjects[0].notes == ()
    again = Diagnosis.from_json(d.to_json())
    assert again.subjects[0].near_duplicates == d.subjects[0].near_duplicates


def test_ids_keep_their_rows_where_rows_are_left_out(tmp_path: Path) -> None:
    x = planted()
    x[3] = np.nan
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.ids").write_text("\n".join(f"doc-{i}" for i in range(600)))
    one = subject(tmp_path / "x.npy", skip_nonfinite=True)
    assert {odd.kind: odd.labels for odd in one.odd_rows}["zero"] == ("doc-300", "doc-301")


@pytest.mark.parametrize("ids", [b"a\nb\n", b"\xff\xfe\n" * 600])
def test_other_files_are_no_names_and_a_note_says_so(ids: bytes, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", planted())
    (tmp_path / "x.ids").write_bytes(ids)
    one = subject(tmp_path / "x.npy")
    assert one.odd_rows[0].labels == (None, None)
    (note,) = one.notes
    assert note.startswith("x.ids does not name the rows: ")
    assert ids[:1] != b"a" or "2 lines, but the file has 600 rows" in note


def test_own_ids_name_rows_and_the_callers_object_keeps_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", vectors=planted(), ids=np.array([f"k{i}" for i in range(600)]))
    rows = uncone.open_rows(tmp_path / "x.npz")
    assert named_rows(rows)[0].labels == [f"k{i}" for i in range(600)]
    assert rows.labels is None
    assert causes(subject(tmp_path / "x.npz"))["zero_rows"].evidence == ("first: 300 ('k300'), 301 ('k301')",)
    words = as_rows(planted())
    words.load_labels = lambda: ["w"] * 600
    assert named_rows(words) == (words, ())


def test_a_topic_at_the_end_is_no_degenerate_tail() -> None:
    x = cloud(1000, 64)
    x[800:] += 0.15 * np.sign(np.random.default_rng(0).standard_normal(64)).astype(np.float32)
    d = uncone.diagnose(x)
    (leaning,) = (f for f in d.subjects[0].findings if f.cause == "leaning_rows")
    assert leaning.level == "note"
    assert leaning.summary.startswith("The 200 rows of ids 800 to 999 lean toward one common point, as happens when")
    assert leaning.evidence[0].startswith("the last 100 ids: mean cosine 0.")
    assert "one topic" in leaning.repair
    assert d.verdict.startswith("The collection shows no defect (")
    assert d.verdict.endswith("with a note on leaning rows.")


def test_a_models_tables_keep_their_words(tmp_path: Path) -> None:
    """Neighbours of token rows are measured, and nothing is found by them."""
    d = uncone.diagnose(write_model(tmp_path / "m", drifted()[:600]), neighbours=True)
    table = d.subjects[0]
    assert table.scores is None
    assert table.near_duplicates is None
    assert causes(table)["common_direction_drift"].level == "severe"
    assert "its rows share a common direction" in d.verdict
    assert not causes(table).keys() & {"hubs", "near_duplicates"}


def test_an_older_record_without_scores_still_loads_and_shows() -> None:
    d = uncone.diagnose(cloud() + np.float32(0.2))
    old = json.loads(d.to_json())
    for name in ("scores", "near_duplicates"):
        del old["subjects"][0][name]
    for odd in old["subjects"][0]["odd_rows"]:
        del odd["twins"]
    assert printed(Diagnosis.from_json(json.dumps(old)))


@pytest.mark.slow
def test_e5_is_no_degenerate_collection(tmp_path: Path) -> None:
    """Two random abstracts score .81, and no repair raises the nDCG of these vectors."""
    if not E5.exists():
        pytest.skip("the vectors of E5 are not there")
    d = uncone.diagnose(E5, neighbours=True)
    assert d.level == "warning"
    assert d.verdict == (
        "Two random rows of the collection score 0.81, and 1 in 100 pairs reaches 0.86: read scores as percentiles "
        "(`uncone calibrate`)."
    )
    (one,) = d.subjects
    assert one.scores
    assert one.scores.pairs == 1283 * 1282 // 2
    assert one.scores.reached == pytest.approx(uncone.calibrate(E5).threshold(0.01), abs=0.001)
    assert [f.cause for f in one.findings if f.level != "structure"] == ["common_direction_drift"]
    ids = E5.with_suffix(".ids").read_text().split()
    x = np.load(E5)
    x[900] = x[30]
    np.save(tmp_path / "documents.npy", x)
    (tmp_path / "documents.ids").write_text("\n".join(ids))
    (again,) = uncone.diagnose(tmp_path / "documents.npy").subjects
    assert f"900 ('{ids[900]}') equals 30 ('{ids[30]}')" in causes(again)["equal_rows"].evidence


def test_a_file_of_ids_that_cannot_be_read_is_named_without_its_place(tmp_path: Path) -> None:
    np.save(tmp_path / "documents.npy", np.random.default_rng(0).normal(size=(40, 8)))
    (tmp_path / "documents.ids").write_bytes(b"\xff\xfe\n")
    (note,) = uncone.diagnose(tmp_path / "documents.npy").subjects[0].notes
    assert note.startswith("documents.ids does not name the rows: expected UTF-8, got documents.ids, whose line 1")
    assert str(tmp_path) not in note
