"""Bad input is refused with a message, and what can be worked with is told."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import uncone
from tests.rows.reading import refuses
from uncone.errors import InputError
from uncone.rows import ArrayRows


def _rows(n: int = 60, d: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": _rows(5, 9)}, "expected queries of 8 features like array, got 9 in array: encode both"),
        ({"queries": _rows(1)}, "expected at least two queries with a score, got 1 of 1 in array"),
        ({"rates": (0.01, 1.0)}, r"expected a false-match rate above 0 and below 1, got 1.0: 1% is 0.01"),
        ({"scores": (1.5,)}, "expected a score from -1 to 1, got 1.5"),
        ({"scores": (float("nan"),), "metric": "inner_product"}, "expected a score that is finite, got nan"),
        ({"seed": -1}, "expected a seed from 0 to 2,000,000,000, got -1"),
        ({"most_pairs": 10}, "expected at least 1000 pairs to count, got 10"),
        ({"pairs": "p.tsv", "prior": 0.0}, "expected a prior above 0 and below 1, got 0"),
        ({"pairs": "nowhere.tsv"}, "cannot read nowhere.tsv: No such file"),
        ({"vectors": _rows(1)}, "expected at least two rows with a score, got 1 of 1 in array"),
        ({"vectors": np.zeros((9, 4), np.float32)}, "at least two rows with a score, got 0 of 9 in array"),
        ({"vectors": np.array([[1.0, 2], [np.nan, 1], [2, 1]])}, r"got 1 row of 3 with NaN or inf in array \(row 1\)"),
        ({"vectors": np.zeros((0, 4), np.float32)}, "expected at least one row"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    refuses(message, uncone.calibrate, **{"vectors": _rows()} | options)


def test_rows_that_are_zero_or_not_finite_are_left_out_and_told() -> None:
    x = _rows().astype(np.float64)  # rows at other places are summed in another order
    bad = np.insert(x, [5, 9], 0, axis=0)
    found = uncone.calibrate(bad)
    assert found.notes[0] == "2 rows are all zero and left out, because zero rows have no cosine."
    assert found.pairs == found.histogram.pairs == 60 * 59 // 2
    assert found.mean == pytest.approx(uncone.calibrate(x).mean, abs=1e-9)
    bad[7] = np.inf
    skipped = uncone.calibrate(bad, skip_nonfinite=True)
    assert "1 row is not finite and left out, as requested." in skipped.notes
    assert skipped.pairs == 59 * 58 // 2


def test_labelled_pairs_with_a_row_of_zeros_are_left_out_and_told(tmp_path: Path) -> None:
    bad = np.insert(_rows(), 5, 0, axis=0)
    (tmp_path / "p.tsv").write_text("5\t1\n2\t3\n")
    found = uncone.calibrate(bad, pairs=tmp_path / "p.tsv")
    assert "1 labelled pair was left out because a row is all zero." in found.notes
    assert found.labelled.matches == 1
    assert found.pairs == found.histogram.pairs == 60 * 59 // 2 - 1
    (tmp_path / "p.tsv").write_text("5\t1\n")
    refuses(r"expected a match of two rows with a direction in p\.tsv", uncone.calibrate, bad, pairs=tmp_path / "p.tsv")


def test_equal_rows_are_counted_and_told() -> None:
    x = _rows()
    repeated = np.concatenate((x, x[:3], x[:1]))
    found = uncone.calibrate(repeated)
    assert found.equal_pairs == 3 + 1 + 1
    assert any(note.startswith("5 pairs are of two equal rows") for note in found.notes)
    assert found.false_match_rate(1.0) >= 5 / found.pairs
    inner = uncone.calibrate(repeated, metric="inner_product")
    words = "of two equal rows (0.0025 of all). Such pairs score as high as a row with itself"
    assert any(words in note for note in inner.notes)
    assert uncone.calibrate(x, queries=x).equal_pairs == 60
    assert uncone.calibrate(x, queries=_rows(seed=1)).equal_pairs == 0


def test_equal_rows_that_are_no_random_pairs_are_not_counted(tmp_path: Path) -> None:
    x = _rows()
    zeros = np.concatenate((x, np.zeros((9, 8), np.float32)))
    assert uncone.calibrate(zeros).equal_pairs == 0
    assert uncone.calibrate(zeros, queries=zeros).equal_pairs == 60
    assert uncone.calibrate(zeros, metric="inner_product").equal_pairs == 9 * 8 // 2
    (tmp_path / "p.tsv").write_text("60\t0\n1\t61\n5\t6\n")
    repeated = np.concatenate((x, x[:3]))
    assert uncone.calibrate(repeated).equal_pairs == 3
    assert uncone.calibrate(repeated, pairs=tmp_path / "p.tsv").equal_pairs == 1
    (tmp_path / "q.tsv").write_text("0\t0\n1\t2\n")
    assert uncone.calibrate(x, queries=x[:5], pairs=tmp_path / "q.tsv").equal_pairs == 4


def test_pairs_by_row_numbers_from_1_are_a_caution(tmp_path: Path) -> None:
    x = _rows()
    queries = x[::-2] + 0.3 * np.random.default_rng(1).normal(size=x[::-2].shape).astype(x.dtype)
    for first in (0, 1):
        lines = (f"{q + first}\t{len(x) - 1 - 2 * q + first}\t1\n" for q in range(first, len(queries) - first))
        (tmp_path / f"{first}.tsv").write_text("".join(lines))
    right, wrong = (uncone.calibrate(x, queries=queries, pairs=tmp_path / f"{first}.tsv") for first in (0, 1))
    assert right.caution == ""
    assert right.notes[0].startswith("The ids of the queries and rows in 0.tsv are read as row numbers")
    assert "the numbers of queries lowered by 1 and the numbers of rows lowered by 1" in wrong.caution
    for name, n in (("ids", len(x)), ("query-ids", len(queries))):
        (tmp_path / name).write_text("".join(f"{i + 1}\n" for i in range(n)))
    table = {"pairs": tmp_path / "1.tsv", "ids": tmp_path / "ids", "query_ids": tmp_path / "query-ids"}
    named = uncone.calibrate(x, queries=queries, **table)
    assert (named.caution, "row numbers" in " ".join(named.notes)) == ("", False)
    (tmp_path / "within.tsv").write_text("1\t2\n3\t4\n")
    within = uncone.calibrate(x, pairs=tmp_path / "within.tsv")
    assert within.caution.startswith("The number 0 never occurs among the ids of the rows")


def test_long_texts_and_odd_line_ends_are_ids_like_others(tmp_path: Path) -> None:
    names = [f"text {number}" for number in range(60)]
    names[3], names[4] = "a" * 200_000, "one\u2028and\x0ctwo"
    (tmp_path / "ids.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    (tmp_path / "p.tsv").write_text(f"{names[3]}\t{names[4]}\n{names[0]}\t{names[1]}\n", encoding="utf-8")
    assert uncone.calibrate(_rows(), pairs=tmp_path / "p.tsv", ids=tmp_path / "ids.txt").labelled.matches == 2


def test_of_a_label_that_stands_twice_the_first_row_counts(tmp_path: Path) -> None:
    rows = ArrayRows(torch.from_numpy(_rows()), name="texts")
    names = [f"text {number}" for number in range(60)]
    names[10] = names[3]
    rows.load_labels = lambda: names
    (tmp_path / "p.tsv").write_text("text 3\ttext 4\n")
    found = uncone.calibrate(rows, pairs=tmp_path / "p.tsv")
    unit = _rows() / np.linalg.norm(_rows(), axis=1, keepdims=True)
    assert found.labelled.mean_match == pytest.approx(float(unit[3] @ unit[4]), abs=1e-6)


def test_queries_of_another_model_are_suspected() -> None:
    shape = np.diag(np.geomspace(3, 0.1, 24)).astype(np.float32)
    x, q = _rows(400, 24) @ shape, _rows(300, 24, seed=1) @ shape
    assert not any("same model" in note for note in uncone.calibrate(x, queries=q).notes)
    other = uncone.calibrate(x, queries=q[:, ::-1].copy())
    assert any("Are they from the same model?" in note for note in other.notes)
    longer = uncone.calibrate(x, queries=10 * q, metric="inner_product")
    assert any(re.match("Queries are (9.8|9.9|10) times as long as rows", note) for note in longer.notes)


def test_too_few_pairs_for_a_rate_is_said_not_guessed() -> None:
    found = uncone.calibrate(_rows(30), rates=(0.1, 0.001), scores=(0.9999,))
    assert "none of 435 random pairs reaches it (the 95% interval ends at 1 in " in found.verdict
    assert found.thresholds[0].score is not None
    assert found.thresholds[1].score is None
    assert (
        found.thresholds[1].reason
        == "this rate needs at least 10,000 pairs, and 435 were counted. Calibrate with more rows"
    )
    assert any("rest on little" in note for note in found.notes)


def test_rows_that_are_all_equal_have_one_score() -> None:
    for metric in ("cosine", "inner_product"):
        found = uncone.calibrate(np.ones((50, 4), np.float32), metric=metric)
        assert found.variance == pytest.approx(0, abs=1e-12)
        assert [found.false_match_rate(found.mean + step) for step in (-0.01, 0.01)] == [1, 0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0\t1\n0\t99\n", r"expected the id of a row in line 2 of .*p.tsv, got '99'"),
        ("0\t1\t1\n2\t3\tmaybe\n", r"expected a numeric label in line 2 of .*, got 'maybe'"),
        ("0\t1\t1\n2\t3\tnan\n", r"expected a numeric label in line 2 of .*, got 'nan'"),
        ("0\t1\n2\t3\t1\n", "expected 2 columns in line 2 of .*, got 3"),
        ("0\n", "expected 2 or 3 columns in line 1 of .*, got 1"),
        ("0\t1\t0\n", "expected pairs that match in .*, got 1 pairs and none with a label above 0"),
        ("", "expected pairs that match in .*, got 0 pairs"),
        ("0\t1\t1\n1\t0\t0\n", "expected one label per pair, got another in line 2"),
        ("4\t4\n", "expected a pair of different rows in line 1"),
        (b"\xff\xfe", "expected UTF-8"),
    ],
)
def test_a_bad_table_of_pairs_is_refused_with_its_line(lines: str | bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_bytes(lines if isinstance(lines, bytes) else lines.encode())
    refuses(message, uncone.calibrate, _rows(), pairs=tmp_path / "p.tsv")


def test_bad_files_of_ids_are_refused(tmp_path: Path) -> None:
    pairs, file = tmp_path / "p.tsv", tmp_path / "ids.txt"
    pairs.write_text("a\tb\n")
    for lines, option, message in (
        ("a\nb\n", "ids", r"expected 60 lines in .*ids.txt, one per row of array, got 2"),
        ("a\n" * 60, "ids", r"expected each id once in .*, got 59 lines that repeat an id"),
        ("", "query_ids", "expected queries with ids of queries, got none"),
    ):
        file.write_text(lines)
        refuses(message, uncone.calibrate, _rows(), pairs=pairs, **{option: file})


def test_when_every_pair_matches_there_is_no_random_one(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("0\t1\n0\t2\n1\t2\n")
    with pytest.raises(InputError, match="expected random pairs as well as labelled matches, got none"):
        uncone.calibrate(_rows(3), pairs=tmp_path / "p.tsv")


def test_labels_can_be_graded(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("first\tsecond\tscore\n0\t1\t4.5\n2\t3\t1.0\n4\t5\t4\n")
    found = uncone.calibrate(_rows(), pairs=tmp_path / "p.tsv", match_at=4)
    assert (found.labelled.matches, found.labelled.non_matches) == (2, 1)
    assert found.labelled.area_non_matches is not None
