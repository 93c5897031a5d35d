"""Eigenvalues after a rank-one change, against a whole decomposition."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import Moments, measure
from uncone.moments import derived, eigen
from uncone.moments.eigen import RankOne, consume_to_eigen

Array = npt.NDArray[np.float64]


def whole(values: Array, z: Array) -> tuple[Array, Array]:
    found, vectors = np.linalg.eigh(np.diag(values) + np.outer(z, z))
    return found[::-1], np.abs(z @ vectors)[::-1]


def agrees(values: Array, z: Array) -> None:
    one = RankOne(values, z)
    found, along = one.values, one.along
    expected, _ = whole(values, z)
    largest = max(float(expected[0]), 1e-300)
    assert (found[:-1] >= found[1:]).all()
    turned(one, values, z, largest)
    assert float(np.abs(found - expected).max()) <= 2e-14 * largest
    # z . q over one eigenspace has no unique parts, but its length has: sum (z.q)^2 = |z|^2, sum l (z.q)^2 = z' A z
    total = float(np.square(z).sum())
    assert float(np.square(along).sum()) == pytest.approx(total, rel=1e-12, abs=1e-14 * largest)
    energy = float((values * np.square(z)).sum()) + total**2
    assert float((found * np.square(along)).sum()) == pytest.approx(energy, rel=1e-12, abs=1e-14 * largest**2)


def turned(one: RankOne, values: Array, z: Array, largest: float) -> None:
    """The turned vectors are orthonormal eigenvectors, in any basis that the old ones are given in; none lies on the
    side of z."""
    d = len(values)
    basis = np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0]
    found, vectors = one.values, one.turned(basis)
    length = float(np.linalg.norm(z))
    assert np.abs(basis @ z @ vectors + one.along).max() * length <= 1e-13 * max(largest, length**2)
    assert np.abs(vectors.T @ vectors - np.eye(d)).max() <= 1e-13
    matrix = basis @ (np.diag(values) + np.outer(z, z)) @ basis.T
    assert np.abs(matrix @ vectors - vectors * found).max() <= 1e-13 * largest


sizes = st.integers(1, 40)
exponents = st.floats(-12, 6)


@given(st.integers(0, 2**32), sizes, exponents, exponents)
@settings(deadline=None)
def test_any_scale_of_values_and_of_the_vector(seed: int, d: int, scale: float, length: float) -> None:
    draw = np.random.default_rng(seed)
    agrees(draw.random(d) * 10**scale, draw.standard_normal(d) * 10**length)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_values_that_are_equal_and_parts_that_are_zero(values: list[int], data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.sampled_from([0.0, 1e-9, -1.0, 0.5]), min_size=len(values), max_size=len(values)))
    agrees(np.array(values, np.float64), np.array(parts))


@given(st.integers(0, 2**32), st.integers(2, 40))
@settings(deadline=None)
def test_values_that_are_nearly_equal(seed: int, d: int) -> None:
    draw = np.random.default_rng(seed)
    gaps = 10 ** (-20 + 20 * draw.random(d))
    agrees(1 + gaps.cumsum(), draw.standard_normal(d) * 10 ** (-16 * draw.random(d)))


@pytest.mark.parametrize("d", [255, 256, 257, 600])
def test_more_values_than_one_tile_holds(d: int) -> None:
    draw = np.random.default_rng(d)
    values, z = draw.random(d), draw.standard_normal(d)
    agrees(values, z)
    assert np.allclose(RankOne(values, z).along, whole(values, z)[1], atol=1e-12)


@pytest.mark.parametrize("solver", ["in place", "numpy"])
def test_decomposition_in_place(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `numpy.linalg.eigh`, and by it where NumPy's LAPACK cannot be called."""
    if solver == "numpy":
        monkeypatch.setattr(eigen, "_lapack", lambda: None)
    elif eigen._lapack() is None:
        pytest.skip("another LAPACK than NumPy's own")
    for d in (1, 2, 64, 129, 300, 511, 512, 513, 700):
        x = np.random.default_rng(d).standard_normal((2 * d, d))
        matrix = x.T @ x - d * np.eye(d) * (d % 2)  # of both signs where d is odd
        values, vectors = consume_to_eigen(matrix.copy())
        assert np.abs(values - np.linalg.eigvalsh(matrix)[::-1]).max() <= 1e-14 * np.abs(values).max()
        assert np.abs(vectors.T @ vectors - np.eye(d)).max() <= 1e-13
        assert np.abs(matrix @ vectors - vectors * values).max() <= 1e-13 * np.abs(values).max()


def test_the_lapack_is_found_in_an_environment_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_there, home = eigen._lapack() is not None, Path(np.__file__).parent
    (tmp_path / "packages").symlink_to(home.parent)
    monkeypatch.setattr(np, "__file__", str(tmp_path / "packages" / home.name / "__init__.py"))
    eigen._lapack.cache_clear()
    assert (eigen._lapack() is not None) == is_there


def test_leading_values_without_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((900, 300)) * np.linspace(0.1, 3, 300) + 1
    m, other = Moments.of(x), Moments.of(x)
    expected = {centered: other.spectrum(centered=centered) for centered in (True, False)}
    monkeypatch.setattr(derived, "consume_to_eigen", None)  # which would fail
    for centered, values in expected.items():
        for k in (3, 1):
            assert np.allclose(m.leading_spectrum(k, centered=centered), [*values[:k], values[k:].sum()], rtol=1e-12)
        for name in (measure.stable_rank, measure.anisotropy):
            assert float(name(m, centered=centered)) == pytest.approx(float(name(other, centered=centered)), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-130, 1e130])
@pytest.mark.parametrize("d", [300, 600])
def test_extreme_scales(d: int, scale: float) -> None:
    """By the iteration and by halves, whose steps square what they work on."""
    x = np.random.default_rng(0).standard_normal((900, d)) + 0.3
    m, scaled = Moments.of(x), Moments.of(x * scale)
    expected = m.leading_spectrum(2, centered=False) * scale * scale
    assert np.allclose(scaled.leading_spectrum(2, centered=False) / expected, 1, rtol=1e-12)
    directions = scaled.directions()
    assert np.abs(directions.T @ directions - np.eye(d)).max() <= 1e-13
    assert np.allclose(scaled.spectrum(centered=False)[:9] / scale / scale, m.spectrum(centered=False)[:9], rtol=1e-12)


def test_one_decomposition_for_spectra_and_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    m = Moments.of(np.random.default_rng(0).standard_normal((900, 60)) + 3)
    calls = list[int]()

    def counted(matrix: Array) -> tuple[Array, Array]:
        calls.append(len(matrix))
        return consume_to_eigen(matrix)

    monkeypatch.setattr(derived, "consume_to_eigen", counted)
    values = m.spectrum(centered=False)
    m.spectrum(centered=True)
    assert calls == [60]
    directions, second = m.directions(), m.second_moment()
    assert calls == [60]
    assert np.abs(second @ directions - directions * values).max() <= 1e-13 * values[0]


def test_closed_form() -> None:
    d, z = 5, np.array([1.0, 2.0, 0.0, -2.0, 4.0])
    one = RankOne(np.full(d, 3.0), z)
    assert one.values.tolist() == pytest.approx([28, 3, 3, 3, 3], rel=1e-15)
    assert one.along.tolist() == pytest.approx([5, 0, 0, 0, 0], abs=5e-15)


@pytest.mark.parametrize("drift", [0.0, 0.1, 1e3])
@pytest.mark.parametrize("n", [1, 3, 500])
def test_moments_of_drifted_rows(n: int, drift: float) -> None:
    d = 40
    x = np.random.default_rng(n).standard_normal((n, d)) * np.logspace(0, -3, d) + drift
    m = Moments.of(x)
    expected, vectors = np.linalg.eigh(x.T @ x / n)
    scale = float(expected[-1])
    assert np.allclose(m.spectrum(centered=False), expected[::-1], rtol=0, atol=1e-13 * scale)
    assert np.allclose(m.mean_along(), np.abs(x.mean(0) @ vectors)[::-1], rtol=0, atol=1e-6 * scale**0.5)
    if n > 1:
        assert np.allclose(m.spectrum(centered=True), np.linalg.eigvalsh(np.cov(x.T))[::-1], atol=1e-10 * scale)
