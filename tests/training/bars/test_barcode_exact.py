"""Lengths against scipy's in float64, on clouds of every kind, by each algorithm."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.studies import first_of
from tests.training.bars.hard_clouds import KINDS, cloud, scipy_lengths
from uncone.errors import InputError
from uncone.training.bars.barcode import barcode
from uncone.training.bars.trees import Algorithm, forced

pytest.importorskip("numba")


def check(kind: str, seed: int, algorithm: Algorithm, largest: int = 400) -> None:
    points = cloud(kind, seed, largest)
    with forced(algorithm):
        found = barcode(points)
    expected = scipy_lengths(points)
    assert found.lengths.dtype == torch.float32
    name = f"{kind} {seed} {tuple(points.shape)}"
    np.testing.assert_allclose(found.lengths.numpy(), expected, rtol=1e-6, atol=0, err_msg=name)


@pytest.mark.parametrize("algorithm", ["compiled", "torch", "one pass"])
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_scipys(kind: str, algorithm: Algorithm) -> None:
    for seed in range(3):
        check(kind, seed, algorithm, 120)
    check(kind, 3, algorithm, 300)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["compiled", "torch", "one pass"])
@pytest.mark.parametrize("kind", first_of(KINDS))
def test_lengths_are_scipys_on_a_thousand_clouds(kind: str, algorithm: Algorithm) -> None:
    for seed in range(100, 191):
        check(kind, seed, algorithm)


def in_long_doubles(points: torch.Tensor) -> np.ndarray:
    """The lengths of the minimum spanning tree by Prim's algorithm on direct differences, ascending: no square leaves the range of a long double."""
    x = points.double().numpy().astype(np.longdouble)
    best, outside = np.full(len(x), np.inf, np.longdouble), np.ones(len(x), bool)
    new, lengths = 0, []
    for _ in range(len(x) - 1):
        outside[new] = False
        best = np.minimum(best, np.sqrt(((x - x[new]) ** 2).sum(1)))
        new = int(np.where(outside, best, np.inf).argmin())
        lengths.append(best[new])
    return np.sort(np.array(lengths))


def wide_clouds(n: int, d: int, far: float, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Clouds in which some points are `far` times further apart than others."""
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    apart = far * (torch.arange(n) < n // 2).double()[:, None] * (torch.arange(d) == 0)
    thin = torch.ones(d, dtype=torch.float64)
    thin[0] = 1e-3
    radii = torch.logspace(0, np.log10(far), n, dtype=torch.float64)[:, None]
    found = {
        "outlier last": torch.cat([x, torch.full((1, d), far, dtype=torch.float64)]),
        "outlier first": torch.cat([torch.full((1, d), far, dtype=torch.float64), x]),
        "two clusters": x * thin + apart,
        "growing": x * radii,
        "shrinking": x / radii,
        "large": x * far,
        "small": x / far,
    }
    return {kind: cloud.to(dtype) for kind, cloud in found.items()}


@pytest.mark.skipif(np.finfo(np.longdouble).maxexp < 16384, reason="long doubles are no wider than doubles here")
@pytest.mark.parametrize("algorithm", ["compiled", "torch", "one pass"])
@pytest.mark.parametrize(
    ("far", "dtype"), [(1e20, torch.float32), (1e36, torch.float32), (1e200, torch.float64), (1e290, torch.float64)]
)
@pytest.mark.parametrize(("n", "d"), [(40, 3), (200, 17)])
def test_no_square_leaves_the_range_of_its_floats(n: int, d: int, far: float, dtype: Any, algorithm: Algorithm) -> None:
    for kind, points in wide_clouds(n, d, far, dtype).items():
        with forced(algorithm):
            found = barcode(points).lengths
        expected, least = in_long_doubles(points).astype(np.float64), torch.finfo(dtype).tiny
        np.testing.assert_allclose(found.double().numpy(), expected, rtol=1e-6, atol=least * 1e-6, err_msg=kind)


def test_powers_of_two_scale_the_lengths_and_change_no_edge() -> None:
    for dtype, powers in ((torch.float32, (-100, -60, -20, 60, 100)), (torch.float64, (-1000, -550, 550, 1000))):
        for n, d in ((60, 5), (200, 17)):
            x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=dtype)
            for algorithm in ("compiled", "torch", "one pass"):
                with forced(algorithm):  # type: ignore[arg-type]
                    once = barcode(x)
                    for power in powers:
                        found = barcode(torch.from_numpy(np.ldexp(x.numpy(), power)))
                        assert torch.equal(found.edges, once.edges)
                        expected, near = np.ldexp(once.lengths.numpy(), power), 4 * torch.finfo(dtype).eps
                        np.testing.assert_allclose(found.lengths.numpy(), expected, rtol=near, atol=0)


def test_distances_with_a_quotient_beyond_the_squares_of_float64_are_refused_in_one_pass() -> None:
    points = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e-5
    points[7] = 1e300
    said = r"within a factor of 1e300, got rows \d+ and \d+ .* in row 7"
    with forced("one pass"), pytest.raises(InputError, match=said):
        barcode(points)
