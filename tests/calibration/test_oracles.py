"""Counts, means and thresholds against loops over all pairs, and against the known law of cosines on a sphere."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

import uncone
from uncone.calibration.scores.counting import Grid, count_pairs
from uncone.calibration.sides import how_many
from uncone.records.blocks import Text


def _rows(n: int, d: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * rng.uniform(0.5, 3, size=(n, 1)) + 0.4).astype(np.float32)


def _unit_rows(n: int, seed: int = 0) -> np.ndarray:
    x = _rows(n, 5, seed)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _scores(x: np.ndarray, q: np.ndarray | None, metric: str) -> np.ndarray:
    """The score of every pair, one by one, in float64."""
    found = []
    for i, a in enumerate(x if q is None else q):
        for b in x[i + 1 :] if q is None else x:
            dot = math.fsum(float(s) * float(t) for s, t in zip(a, b, strict=True))
            lengths = math.hypot(*map(float, a)) * math.hypot(*map(float, b))
            found.append(dot / lengths if metric == "cosine" else dot)
    return np.array(found)


def test_the_share_of_the_matches_is_said_where_the_prior_is_far_from_it(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{i}\t{i}\t1\n" for i in range(6)))
    given: dict[str, Any] = {"queries": _rows(10, seed=1), "pairs": tmp_path / "p.tsv"}
    said = str([block.text for block in uncone.calibrate(_rows(100), **given).blocks() if isinstance(block, Text)])
    assert "1% of the pairs compared match. Set" in said  # 6 of 1,000
    said = str([block.text for block in uncone.calibrate(_rows(300), **given).blocks() if isinstance(block, Text)])
    assert "The matches given are 0.2% of all pairs. Set" in said


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
@pytest.mark.parametrize("with_queries", [False, True])
def test_all_pairs_are_as_a_loop_has_them(metric: str, with_queries: bool) -> None:
    x, q = _rows(90), _rows(40, seed=1) if with_queries else None
    expected = _scores(x, q, metric)
    found = uncone.calibrate(x, queries=q, metric=metric, scores=[0.25], rates=(0.1, 0.01))
    assert found.pairs == found.histogram.pairs == len(expected)
    assert found.mean == pytest.approx(expected.mean(), rel=1e-6)
    assert found.variance == pytest.approx(expected.var(), rel=1e-5)
    bins = found.histogram
    for score in np.quantile(expected, (0.01, 0.3, 0.5, 0.9, 0.99)):
        below, above = (expected >= score + bins.width).mean(), (expected >= score - bins.width).mean()
        assert below <= found.false_match_rate(score) <= above
        assert found.percentile(score) == pytest.approx(100 - 100 * found.false_match_rate(score))
    for one in found.thresholds:
        assert (expected >= one.score + 1e-5).mean() <= one.wanted
        assert (expected >= one.score - 2 * bins.width).mean() >= one.wanted - 1 / len(expected)


def test_directions_drawn_evenly_have_the_known_distribution() -> None:
    """c^2 is Beta(1/2, (d - 1)/2), so that P(c >= t) is the tail of (c + 1)/2 ~ Beta((d - 1)/2, (d - 1)/2)."""
    d = 24
    x = np.random.default_rng(0).normal(size=(1500, d)).astype(np.float32)
    found = uncone.calibrate(x, rates=(0.05, 0.01, 0.001))
    law = stats.beta((d - 1) / 2, (d - 1) / 2)
    assert found.mean == pytest.approx(0, abs=0.003)
    assert found.variance == pytest.approx(1 / d, rel=0.02)
    for one in found.thresholds:
        exact = 2 * law.isf(one.wanted) - 1
        assert one.low <= exact <= one.high
        assert one.score == pytest.approx(exact, abs=0.01)


def test_matches_do_not_count_as_random_pairs(tmp_path: Path) -> None:
    x, q = _rows(60), _rows(30, seed=1)
    pairs = [(3, 5), (3, 6), (29, 59), (0, 0)]
    lines = "".join(f"{a}\t{b}\t2\n" for a, b in pairs)
    (tmp_path / "p.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}7\t8\t0\n")
    found = uncone.calibrate(x, queries=q, pairs=tmp_path / "p.tsv", rates=(0.1,))
    scores = _scores(x, q, "cosine").reshape(30, 60)
    true = np.array([scores[pair] for pair in pairs])
    for a, b in pairs:
        scores[a, b] = np.nan
    rest = scores[~np.isnan(scores)]
    assert found.pairs == found.histogram.pairs == len(rest) == 1796
    assert found.mean == pytest.approx(rest.mean(), abs=1e-7)
    assert found.variance == pytest.approx(rest.var(), abs=1e-7)
    assert (found.labelled.matches, found.labelled.non_matches, found.labelled.groups) == (4, 1, 4)
    assert found.labelled.area.value == pytest.approx(np.mean([(rest < t).mean() for t in true]), abs=1e-3)
    assert found.labelled.mean_match == pytest.approx(true.mean(), abs=1e-6)
    (one,) = found.thresholds
    assert one.true_match_rate.value == (true >= one.score).mean()
    assert one.non_match_rate is not None
    tpr, fpr = one.true_match_rate.value, one.false_match_rate.value
    assert one.precision == pytest.approx(0.01 * tpr / (0.01 * tpr + 0.99 * fpr))


def test_matches_within_one_set_are_left_out_in_either_order(tmp_path: Path) -> None:
    x = _rows(80)
    (tmp_path / "p.tsv").write_text("70\t2\n2\t3\n70\t71\n")
    (tmp_path / "again.tsv").write_text("2\t70\n3\t2\n71\t70\n")
    first, second = (uncone.calibrate(x, pairs=tmp_path / name) for name in ("p.tsv", "again.tsv"))
    assert first.histogram == second.histogram
    assert first.histogram.pairs == first.pairs == 80 * 79 // 2 - 3


def test_a_match_given_twice_is_left_out_once(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("70\t2\n2\t70\n70\t2\n")
    found = uncone.calibrate(_rows(80), pairs=tmp_path / "p.tsv")
    assert found.histogram.pairs == found.pairs == 80 * 79 // 2 - 1


def test_groups_add_up_on_any_number_of_rows() -> None:
    grid = Grid(-1.0, 0.01, 200)
    for n, m in ((2, None), (63, None), (64, None), (131, None), (2, 3), (70, 200)):
        x, q = _unit_rows(n), None if m is None else _unit_rows(m, seed=1)
        counts = count_pairs(x, q, grid)
        assert counts.total().sum() == (n * (n - 1) // 2 if m is None else n * m)
        if m is not None:
            assert (counts.of_queries.sum(axis=0) == counts.of_rows.sum(axis=0)).all()


def test_the_counts_are_the_same_on_any_number_of_threads() -> None:
    x = _rows(700)
    found = set()
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            found.add(uncone.calibrate(x).to_json())
    assert len(found) == 1


def test_a_sample_of_rows_stands_for_all() -> None:
    x = _rows(1500)
    whole, part = uncone.calibrate(x), uncone.calibrate(x, most_pairs=100_000, seed=5)
    assert part.histogram.pairs <= 100_000 < whole.histogram.pairs == part.pairs
    assert (part.mean, part.variance) == (whole.mean, whole.variance)
    assert "drawn at random; mean and variance are of all pairs" in part.notes[0]
    for mine, all_ in zip(part.thresholds[:2], whole.thresholds[:2], strict=True):
        assert mine.low <= all_.score <= mine.high
    assert part == uncone.calibrate(x, most_pairs=100_000, seed=5)
    assert part != uncone.calibrate(x, most_pairs=100_000, seed=6)
    assert 90_000 < uncone.calibrate(x, queries=_rows(800, seed=1), most_pairs=100_000).histogram.pairs <= 100_000


@pytest.mark.parametrize(
    ("n", "m", "most"), [(10, None, 1000), (10**6, None, 10**6), (5000, 1000, 10**6), (10**7, 3, 10**6)]
)
def test_drawn_rows_make_at_most_the_pairs_asked_for(n: int, m: int | None, most: int) -> None:
    rows, queries = how_many(n, m, most, 8)
    pairs = rows * (rows - 1) // 2 if queries is None else rows * queries
    whole = n * (n - 1) // 2 if m is None else n * m
    assert min(whole, most) * 0.99 <= pairs <= most


def test_labels_of_rows_and_files_of_ids_name_rows(tmp_path: Path) -> None:
    x = _rows(40)
    (tmp_path / "ids.txt").write_text("".join(f"doc{i}\n" for i in range(40)))
    (tmp_path / "p.tsv").write_text("doc3\tdoc5\ndoc1\tdoc39\n")
    (tmp_path / "plain.tsv").write_text("3\t5\n1\t39\n")
    named = uncone.calibrate(x, pairs=tmp_path / "p.tsv", ids=tmp_path / "ids.txt")
    assert named.histogram == uncone.calibrate(x, pairs=tmp_path / "plain.tsv").histogram
    with open(tmp_path / "v.vec", "w") as out:
        out.write("40 12\n" + "".join(f"doc{i} {' '.join(map(str, row.tolist()))}\n" for i, row in enumerate(x)))
    assert uncone.calibrate(str(tmp_path / "v.vec"), pairs=tmp_path / "p.tsv").histogram == named.histogram
