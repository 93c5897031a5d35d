"""The exact search against a slow loop in float64: ties, copies, lengths, offsets, blocks, stripes, threads and samples."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from uncone import InputError, UndefinedMeasure
from uncone.measure import Neighbours, nearest_neighbours, points, search, tiles
from uncone.measure.neighbours import sampled_rows
from uncone.measure.points import Metric
from uncone.rows import CenteredRows, SelectedRows, as_rows
from uncone.threads import available

from ..matrices import F64, Tensor, gaussian


def _slow(x: Tensor, k: int, metric: str = "euclidean") -> tuple[Tensor, Tensor]:
    """Every distance by difference in float64, then a sort in which the lower number comes first."""
    x = x.double()
    if metric == "cosine":
        x = x / x.norm(dim=1, keepdim=True)
    squares = torch.stack([(x - row).square().sum(1) for row in x]).fill_diagonal_(torch.inf)
    squares, order = squares.sort(dim=1, stable=True)
    return order[:, :k], squares[:, :k].sqrt()


@cache
def _slow_cloud(cloud: str, k: int) -> tuple[Tensor, Tensor]:
    return _slow(CLOUDS[cloud], k)


def _pick(n: int, m: int, seed: int = 0) -> Tensor:
    return torch.randint(0, n, (m,), generator=torch.Generator().manual_seed(seed))


def _in_bfloat16(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32)
    bits &= np.uint32(0xFFFF0000)
    return x


CLOUDS = {
    "Gaussian": gaussian(300, 12),
    "Gaussian in float64": gaussian(200, 7, dtype=F64),
    "mean of 10,000 spreads": gaussian(300, 6) + 1e4,
    "norms of 1e18": 1e18 * gaussian(200, 6),
    "norms of 1e37": 1e37 * gaussian(100, 6).clamp(-3, 3),
    "norms of 1e-30": 1e-30 * gaussian(200, 6),
    "norms of 1e100": 1e100 * gaussian(150, 6, dtype=F64),
    "one far row": torch.cat([gaussian(200, 6), 1e6 * gaussian(1, 6, seed=1)]),
    "lattice": torch.cartesian_prod(*[torch.arange(5.0)] * 3) - 2.5,
    "copies": gaussian(40, 5)[_pick(40, 250)],
    "one row many times among others": torch.cat([gaussian(150, 5), gaussian(1, 5, seed=1).expand(80, 5)]),
    "all rows equal": torch.ones(60, 3),
    "points on a line": torch.arange(1.0, 200.0)[:, None].square(),
    "clusters 1e9 spreads apart": 1e-9 * gaussian(300, 6, dtype=F64) + torch.eye(6, dtype=F64)[_pick(2, 300)],
    "float16": gaussian(200, 6).half(),
    "two rows": gaussian(2, 3),
    "three rows": gaussian(3, 3),
}


def _assert_equal(one: Neighbours, other: Neighbours) -> None:
    assert np.array_equal(one.indices, other.indices)
    assert np.array_equal(one.distances, other.distances)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks of few rows."""
    monkeypatch.setattr(tiles, "BLOCK", 32)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_neighbours_are_those_of_a_slow_loop(cloud: str, as_array: bool) -> None:
    x = CLOUDS[cloud]
    k = min(10, len(x) - 1)
    order, distances = _slow_cloud(cloud, k)
    found = nearest_neighbours(x.numpy() if as_array else x, k)
    assert np.array_equal(found.indices, order)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-14, atol=0)
    assert (found.rows, found.searched, found.k, found.sampled) == (len(x), len(x), k, False)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("cloud", [name for name in CLOUDS if name not in ("lattice", "norms of 1e37")])
def test_cosine_neighbours_are_those_of_unit_rows(cloud: str) -> None:
    x = CLOUDS[cloud]
    k = min(5, len(x) - 1)
    _, distances = _slow(x, k, "cosine")
    found = nearest_neighbours(x, k, metric="cosine")
    np.testing.assert_allclose(found.distances, distances, rtol=1e-9, atol=1e-15)
    unit = x.double() / x.double().norm(dim=1, keepdim=True)
    np.testing.assert_allclose((unit[:, None] - unit[found.indices]).norm(dim=2), distances, rtol=1e-9, atol=1e-15)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_sample_has_the_neighbours_that_all_rows_give_it(cloud: str) -> None:
    x = CLOUDS[cloud]
    k = min(4, len(x) - 1)
    whole, some = nearest_neighbours(x, k), nearest_neighbours(x, k, sample=min(37, len(x) - 1), seed=3)
    assert some.sampled
    assert np.array_equal(some.queries, np.unique(some.queries))
    assert np.array_equal(some.indices, whole.indices[some.queries])
    assert np.array_equal(some.distances, whole.distances[some.queries])


SHAPES = st.tuples(st.integers(2, 60), st.integers(1, 5), st.integers(1, 12))


@given(st.integers(0, 10**6), SHAPES, st.sampled_from([2, 3, 1000]), st.sampled_from([4, 7, 64]))
@settings(deadline=None, max_examples=80)
def test_ties_and_copies_are_in_order(seed: int, shape: tuple[int, int, int], levels: int, block: int) -> None:
    n, d, k = shape
    x = torch.randint(0, levels, (n, d), generator=torch.Generator().manual_seed(seed)).float()
    order, _ = _slow(x, min(k, n - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "BLOCK", block)
        found = nearest_neighbours(x, k)
    assert np.array_equal(found.indices, order)
    assert found.duplicates == n - len(x.unique(dim=0))


@pytest.mark.parametrize("k", [1, 3])
def test_distinct_rows_are_the_first_of_equal_ones(k: int) -> None:
    x = gaussian(40, 5)[_pick(40, 250)]
    first = torch.tensor(sorted({int((x == row).all(1).nonzero()[0]) for row in x}))
    found = nearest_neighbours(x, k, distinct=True)
    assert np.array_equal(found.queries, first)
    order, distances = _slow(x[first], k)
    assert np.array_equal(found.indices, first[order])
    np.testing.assert_allclose(found.distances, distances, rtol=1e-15)
    assert found.duplicates == 250 - len(first)


def test_whether_the_last_neighbour_is_tied_is_counted() -> None:
    assert nearest_neighbours(gaussian(50, 4), 3).tied == 0
    assert nearest_neighbours(torch.arange(10.0)[:, None], 1).tied == 8  # all but the ends have one on each side
    assert nearest_neighbours(torch.arange(10.0)[:, None], 2).tied == 0
    assert nearest_neighbours(torch.ones(5, 2), 3).tied == 5


def test_fewer_neighbours_come_back_where_there_are_fewer_rows() -> None:
    assert nearest_neighbours(gaussian(4, 3), 10).indices.shape == (4, 3)
    assert nearest_neighbours(torch.ones(4, 3), 2).indices.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1]]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("cloud", ["Gaussian", "copies", "lattice", "mean of 10,000 spreads", "Gaussian in float64"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_what_does_not_fit_is_read_in_stripes(monkeypatch: pytest.MonkeyPatch, cloud: str, metric: Metric) -> None:
    x = CLOUDS[cloud]
    kept = [nearest_neighbours(x, 5, metric=metric, sample=sample) for sample in (None, 20)]
    monkeypatch.setattr(points, "KEPT_BYTES", 0)
    monkeypatch.setattr(points, "STRIPE_BYTES", 70 * x.shape[1] * x.element_size())
    for whole, sample in zip(kept, (None, 20), strict=True):
        _assert_equal(whole, nearest_neighbours(x, 5, metric=metric, sample=sample))


@pytest.mark.usefixtures("small_blocks")
def test_the_bytes_are_the_same_on_any_number_of_threads() -> None:
    x, results = CLOUDS["copies"], []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            results.append(nearest_neighbours(x, 5))
            assert available() == threads
    for other in results[1:]:
        _assert_equal(results[0], other)


@pytest.mark.usefixtures("small_blocks")
def test_products_worse_than_float32_are_noticed_and_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x, multiply, asked = CLOUDS["Gaussian"], tiles.Tiles.multiply, []
    search_all = search._search_all

    def counted(p: points.Points, k: int, queries: np.ndarray, enough: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(len(queries))
        return search_all(p, k, queries, enough)

    monkeypatch.setattr(search, "_search_all", counted)
    nearest_neighbours(x, 10)
    assert sum(asked) < 5
    monkeypatch.setattr(tiles.Tiles, "multiply", lambda self, *a: _in_bfloat16(multiply(self, *a)))
    found = nearest_neighbours(x, 10)
    assert asked[-1] == len(x)
    assert np.array_equal(found.indices, _slow(x, 10)[0])


def test_a_mean_far_out_needs_no_second_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_search_all", lambda *_: pytest.fail("products were not centred"))
    nearest_neighbours(gaussian(300, 6, dtype=F64) + 1e8, 3)


def test_selected_and_centred_rows_keep_their_own_numbers() -> None:
    x = gaussian(200, 5)
    kept = torch.arange(0, 200, 3)
    assert np.array_equal(nearest_neighbours(SelectedRows(as_rows(x), kept.numpy()), 4).indices, _slow(x[kept], 4)[0])
    centred = CenteredRows(as_rows(x), x.double().mean(0).numpy())
    assert np.array_equal(nearest_neighbours(centred, 4).indices, _slow(x - x.double().mean(0).float(), 4)[0])


def test_zero_rows_have_no_direction() -> None:
    x = gaussian(50, 4)
    x[[3, 17]] = 0
    found = nearest_neighbours(x, 3, metric="cosine")
    others = torch.tensor([i for i in range(50) if i not in (3, 17)])
    assert np.array_equal(found.queries, others)
    assert np.array_equal(found.indices, others[_slow(x[others], 3, "cosine")[0]])
    assert (found.rows, found.searched, found.sampled) == (50, 48, False)
    assert nearest_neighbours(x, 3).searched == 50


@pytest.mark.usefixtures("small_blocks")
def test_progress_rises_to_all_rows() -> None:
    for sample in (None, 50):
        told: list[int] = []
        nearest_neighbours(gaussian(500, 4), 2, sample=sample, progress=told.append)
        assert told == sorted(told)
        assert told[-1] == 500


ROWS, ONES = gaussian(20, 3), torch.ones(9, 3)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (ROWS, {"k": 0}, "expected at least one neighbour, got k = 0"),
        (ROWS, {"sample": 0}, "expected a sample of at least one row, got 0"),
        (torch.where(torch.eye(20, 3) > 0, torch.nan, ROWS), {}, "expected finite rows, got 3 rows of 20"),
        (ROWS[:1], {}, "expected at least two rows, got 1"),
        (0 * ONES, {"metric": "cosine"}, "expected at least two rows with a direction, got 0"),
        (ONES, {"distinct": True}, "expected at least two different rows, got 1"),
    ],
)
def test_what_cannot_be_searched_is_said(x: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UndefinedMeasure if "at least two" in message else InputError, match=re.escape(message)):
        nearest_neighbours(x, **({"k": 1} | options))


def test_all_rows_are_asked_up_to_a_size_and_a_sample_beyond() -> None:
    assert np.array_equal(sampled_rows(65536, None, 0), range(65536))
    sample = sampled_rows(65537, None, 0)
    assert len(sample) == 8192
    assert np.array_equal(sample, np.unique(sample))
    assert not np.array_equal(sample, sampled_rows(65537, None, 1))
    assert len(sampled_rows(100000, 100000, 0)) == 100000
