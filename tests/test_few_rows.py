"""Of few, wide rows the moments keep the rows: all readings are those of their products, and there are none of (D, D)."""

from functools import reduce
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import uncone
from uncone import measure
from uncone.diagnosis.examination import Examination
from uncone.errors import UndefinedMeasure
from uncone.measure.partition import partition_of
from uncone.moments import Moments
from uncone.moments.sums import _WIDE
from uncone.rows import as_rows

SHAPES = [(1, 256), (2, 256), (3, 500), (40, 257), (128, 256)]


def cloud(n: int, d: int, *, seed: int = 0, drift: float = 2.0, dtype: type = np.float64) -> np.ndarray:
    """Rows of many lengths of axes, about a common direction."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((n, d)) * np.geomspace(3, 0.01, d) + drift * generator.standard_normal(d)
    return x.astype(dtype)


def of_products(x: np.ndarray, weights: np.ndarray | None = None, **kinds: bool) -> Moments:
    """The same moments by way of (D, D) products."""
    m = Moments(x.shape[1], **kinds)
    m.sum_products()
    m.update(x, weights)
    return m


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_spectra_and_directions_are_those_of_the_rows(n: int, d: int, weighted: bool) -> None:
    x, w = cloud(n, d), np.arange(1.0, n + 1) if weighted else np.ones(n)
    m = Moments.of(x, w)
    assert m.keeps_rows
    share, mean = w / w.sum(), (w / w.sum()) @ x
    y = (x - mean) * np.sqrt(share)[:, None]
    raw = x * np.sqrt(share)[:, None]
    scale = float(np.square(raw).sum())
    kish = w.sum() ** 2 / np.square(w).sum()
    if n > 1:
        expected = np.zeros(d)
        expected[: n - 1] = np.square(np.linalg.svd(y, compute_uv=False))[: n - 1] * kish / (kish - 1)
        np.testing.assert_allclose(m.spectrum(centered=True), expected, atol=1e-14 * scale)
        assert not m.spectrum(centered=True)[n - 1 :].any(), "so few rows span no more: exactly 0"
        np.testing.assert_allclose(m.covariance(), y.T @ y * kish / (kish - 1), atol=1e-13 * scale)
        np.testing.assert_allclose(m.variances(), np.square(y).sum(0) * kish / (kish - 1), atol=1e-14 * scale)
        leading = m.leading_spectrum(2, centered=True)
        np.testing.assert_allclose(leading, [*expected[:2], expected[2:].sum()], atol=1e-13 * scale)
        assert m.concentration() == pytest.approx(np.square(expected).sum() / expected.sum() ** 2, rel=1e-12)
        axis = m.leading_directions(1, centered=True)[:, 0]
        assert np.linalg.norm(y @ axis) ** 2 == pytest.approx(expected[0] * (kish - 1) / kish, rel=1e-12)
    values, directions = m.eigen()
    assert values.shape == (d,)
    assert directions.shape == (d, n + 1)
    assert not values[n:].any()
    assert (values >= 0).all()
    np.testing.assert_allclose(values[:n], np.square(np.linalg.svd(raw, compute_uv=False)), atol=1e-13 * scale)
    np.testing.assert_allclose(directions.T @ directions, np.eye(n + 1), atol=1e-13)
    np.testing.assert_allclose((directions * values[: n + 1]) @ directions.T, raw.T @ raw, atol=1e-13 * scale)
    np.testing.assert_allclose(m.second_moment(), raw.T @ raw, atol=1e-13 * scale)
    np.testing.assert_allclose(m.mean_along(), np.pad(np.abs(mean @ directions), (0, d - n - 1)), atol=1e-12 * scale)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_small_eigenvalues_have_the_digits_of_float64(offset: float) -> None:
    x = cloud(4, 300, drift=0.0) * np.array([[1.0], [1e-3], [1e-3], [1e-5]])
    x = (x + offset).astype(np.float32).astype(np.float64)
    with mpmath.workdps(60):
        exact = mpmath.matrix(x.tolist())
        mean = [sum(exact[i, j] for i in range(4)) / 4 for j in range(300)]
        y = mpmath.matrix([[exact[i, j] - mean[j] for j in range(300)] for i in range(4)])
        expected = np.array(sorted((float(one) for one in mpmath.eigsy(y * y.T / 3)[0]), reverse=True))
    found = Moments.of(x.astype(np.float32)).spectrum(centered=True)
    error = Moments.of(x.astype(np.float32)).spectral_rounding(centered=True)[0]
    np.testing.assert_allclose(found[:3], expected[:3], rtol=0, atol=error)
    assert error < 1e-13 * found[0]
    assert not found[3:].any()


@pytest.mark.parametrize(("n", "d"), SHAPES[1:])
@pytest.mark.parametrize("drift", [0.0, 2.0, 300.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-9)])
def test_measures_are_those_of_the_products(n: int, d: int, drift: float, dtype: type, tolerance: float) -> None:
    x = cloud(n, d, drift=drift, dtype=dtype)
    kept, products = Moments.of(x, unit_second=True), of_products(x, unit_second=True)
    assert kept.keeps_rows
    assert not products.keeps_rows
    for name, function in measure.everything.MEASURES:
        a, b = (measure.everything.read(name, function, m) for m in (kept, products))
        if a.value is None or b.value is None:
            assert a.value is b.value, name
            assert a.reason.split(" is ")[0] == b.reason.split(" is ")[0]
        else:
            assert a.value == pytest.approx(b.value, rel=tolerance, abs=tolerance), name
            assert (a.range, a.definition) == (b.range, b.definition)
    pairs = [measure.PairSums.of(m) for m in (kept, products)]
    assert pairs[0].squares == pytest.approx(pairs[1].squares, rel=tolerance, abs=tolerance * n)
    assert pairs[0].row_squares == pytest.approx(pairs[1].row_squares, rel=tolerance, abs=tolerance * n)
    a, b = (measure.partition_isotropy(x, m) for m in (kept, products))
    assert float(a) == pytest.approx(float(b), rel=1e-4)
    if not a.warnings:
        both = ({k: v for k, v in m.details.items() if k != "no_interval"} for m in (a, b))  # products keep no rows
        assert next(both) == pytest.approx(next(both), rel=1e-4)


def test_the_partition_function_counts_directions_without_rows() -> None:
    x = np.zeros((2, 300))
    x[0, 0], x[1, 1] = 2.0, 1.0
    assert float(measure.partition_isotropy(x)) == pytest.approx((np.exp(-2) + 1) / (np.exp(2) + 1))
    plus, minus = partition_of(as_rows(x), Moments.of(x))
    assert plus.shape == minus.shape == (300,)
    assert np.isclose(plus, np.log(2)).sum() == np.isclose(minus, np.log(2)).sum() == 298


def _bytes(m: Moments) -> dict[str, bytes]:
    return {name: tensor.tobytes() for name, tensor in m.tensors().items()}


def _readings(m: Moments) -> list[bytes]:
    found = [m.mean(), m.spectrum(centered=True), m.spectrum(centered=False), m.directions(), m.variances()]
    return [one.tobytes() for one in (*found, np.array([m.concentration(), *m.unit_squares()]))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("drift", "weighted"), [(0.0, False), (300.0, False), (2.0, True)])
def test_sums_have_the_bytes_of_products(dtype: type, drift: float, weighted: bool) -> None:
    x, w = cloud(100, 256, drift=drift, dtype=dtype), np.linspace(1, 2, 100) if weighted else None
    kept, products = Moments.of(x, w, unit_second=True), of_products(x, w, unit_second=True)
    assert kept.keeps_rows
    assert np.array_equal(kept.second, products.second), "which are formed where they are read"
    assert kept.keeps_rows
    assert _bytes(kept) == _bytes(products)
    more = cloud(60, 256, seed=1, dtype=dtype)
    for m in (kept, products):
        m.update(more)
    assert not kept.keeps_rows, "as more rows came"
    assert _bytes(kept) == _bytes(products)


@pytest.mark.parametrize("sizes", [(30, 40, 50), (100, 60), (130, 20), (60, 60, 60)])
def test_cells_merged_in_order_have_the_bytes_of_the_whole(sizes: tuple[int, ...]) -> None:
    cells = [cloud(n, 256, seed=n + i, dtype=np.float32) for i, n in enumerate(sizes)]
    whole = Moments(256, unit_second=True)
    for cell in cells:
        whole.update(cell)
    parts = [Moments.of(cell, unit_second=True, shift=whole.shift) for cell in cells]
    merged = reduce(Moments.merge, parts)
    assert merged.keeps_rows == whole.keeps_rows == (sum(sizes) <= 128)
    assert (_bytes(merged), _readings(merged)) == (_bytes(whole), _readings(whole))
    assert [part.n for part in parts] == list(sizes), "merging changes no part"


def test_a_cell_in_parts_that_become_too_many() -> None:
    x = cloud(200, 256, dtype=np.float32)
    parts, whole = Moments(256, unit_second=True), Moments(256, unit_second=True)
    for start in (0, 50, 100, 150):
        parts.update(x[start : start + 50], more=start < 150)
    whole.sum_products()
    for start in (0, 50, 100, 150):
        whole.update(x[start : start + 50], more=start < 150)
    assert _bytes(parts) == _bytes(whole)


def test_a_block_that_is_refused_leaves_the_rows_before() -> None:
    x = cloud(10, 256)
    m, bad = Moments.of(x, unit_second=True), x.copy()
    bad[3, 3] = np.nan
    with pytest.raises(uncone.InputError):
        m.update(bad)
    assert m.n == 10
    assert _readings(m) == _readings(Moments.of(x, unit_second=True))


def test_rows_that_change_afterwards_change_nothing() -> None:
    x = cloud(10, 256)
    m, before = Moments.of(x), Moments.of(x.copy()).spectrum(centered=True)
    x *= 2
    assert np.array_equal(m.spectrum(centered=True), before)


def test_threads_change_no_byte() -> None:
    x, found = cloud(270, 600, dtype=np.float32), []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            m = Moments.of(x, unit_second=True)
            found.append([*_readings(m), m.covariance().tobytes()])
    assert found[0] == found[1] == found[2]


@settings(max_examples=30)
@given(st.integers(2, 9), st.integers(4, 24), st.integers(0, 10**6), st.data())
def test_merge_is_the_whole(n: int, d: int, seed: int, data: st.DataObject) -> None:
    with patch("uncone.moments.sums._WIDE", 4):
        x = np.random.default_rng(seed).standard_normal((n, d)) + 3
        cut = data.draw(st.integers(0, n))
        whole = Moments.of(x, unit_second=True)
        parts = [Moments(d, unit_second=True) for _ in range(2)]
        parts[0].update(x[:cut])
        parts[1].update(x[cut:])
        for merged in (parts[0].merge(parts[1]), parts[1].merge(parts[0])):
            assert merged.keeps_rows == whole.keeps_rows == (n <= d // 2)
            for centered in (True, False):
                a, b = merged.spectrum(centered=centered), whole.spectrum(centered=centered)
                np.testing.assert_allclose(a, b, atol=1e-12 * b[0])
            np.testing.assert_allclose(merged.second_moment(), whole.second_moment(), atol=1e-11)
            assert merged.unit_squares() == pytest.approx(whole.unit_squares(), rel=1e-10)
            assert merged.concentration() == pytest.approx(whole.concentration(), rel=1e-9)


ROW = np.random.default_rng(5).standard_normal(400) * 7


@pytest.mark.parametrize("x", [np.tile(ROW, (9, 1)), np.tile(ROW.astype(np.float32), (7, 1)), np.zeros((5, 300))])
def test_equal_rows_have_no_spread(x: np.ndarray) -> None:
    m = Moments.of(x)
    assert m.keeps_rows
    assert not m.spectrum(centered=True).any()
    assert m.concentration() == 0
    for function in (measure.effective_rank, measure.isoscore):
        with pytest.raises(UndefinedMeasure):
            function(m)


def test_directions_are_all_that_is_kept_of_them() -> None:
    m = Moments.of(cloud(20, 300), unit_second=True)
    spectrum, directions = m.spectrum(centered=True), m.directions()
    m.keep_directions()
    assert not m.keeps_rows
    assert m.second is None
    assert np.array_equal(m.spectrum(centered=True), spectrum)
    assert m.directions() is directions


def test_a_head_is_read_about_its_mean_from_its_own_rows() -> None:
    x = cloud(60, 300, dtype=np.float32, drift=9.0)
    subjects, most = [], Moments.most_kept
    for kept in (most, lambda self: 0):
        with patch.object(Moments, "most_kept", kept):
            subjects.append(Examination("head", as_rows(x), None, "head", None).run())
    readings = [(*one.measurements, *one.without_effect) for one in subjects]
    for few, products in zip(*readings, strict=True):
        assert (few.name, few.value is None) == (products.name, products.value is None)
        assert few.value is None or few.value == pytest.approx(products.value, rel=1e-4, abs=1e-6), few.name


def test_three_rows_of_a_hundred_thousand_numbers() -> None:
    found = measure.all(cloud(3, 100_000, dtype=np.float32))
    assert float(found["rankme"]) <= 3.1
    assert found["condition_number"].value is None
    assert 0 <= float(found["partition_isotropy"]) <= 1


def test_narrow_rows_are_not_kept() -> None:
    assert not Moments.of(cloud(3, _WIDE - 1)).keeps_rows
    assert not Moments.of(cloud(129, 256)).keeps_rows
    assert not Moments.of(cloud(3, 300), second=False).keeps_rows
