"""Bars of loops with a gradient: against the intervals of gudhi, ripser and giotto-ph, where they are installed."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.autograd import gradcheck

from uncone.errors import InputError
from uncone.topology import (
    barcode,
    pair_ends,
    pair_lengths,
    pairs_of_generators,
    pairs_of_intervals,
    persistent_entropy,
)

# gudhi's generators of a square of side 1, with a fifth point on a corner
SQUARE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
GENERATORS = (np.array([[1, 1, 0], [2, 2, 1], [3, 3, 0]]), [np.array([[3, 2, 2, 0]])], np.array([4]), [])


def ring(seed: int, n: int = 30) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    angle = torch.rand(n, generator=g, dtype=torch.float64) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(
        n, 2, generator=g, dtype=torch.float64
    )


def test_a_square_by_hand() -> None:
    x = SQUARE.clone().requires_grad_()
    lengths = pair_lengths(x, pairs_of_generators(GENERATORS))
    lengths.sum().backward()
    assert lengths.tolist() == pytest.approx([math.sqrt(2) - 1])
    assert x.grad is not None
    half = math.sqrt(0.5)
    torch.testing.assert_close(
        x.grad, torch.tensor([[-half, -half], [0, 0], [half - 1, half], [1, 0], [0, 0]], dtype=torch.float64)
    )
    births, deaths = pair_ends(SQUARE, pairs_of_generators(GENERATORS, 0))
    assert births.tolist() == [0, 0, 0]
    assert deaths.tolist() == [1, 1, 1]
    assert pairs_of_generators(GENERATORS, 2).shape == (0, 4)
    assert pair_lengths(SQUARE, []).shape == (0,)


@given(st.integers(0, 10_000), st.integers(4, 12))
@settings(deadline=None, max_examples=10)
def test_the_gradient_is_right(seed: int, n: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g, dtype=torch.float64)
    pairs = []
    for _ in range(3):
        edges = [torch.randperm(n, generator=g)[:2].tolist() for _ in range(2)]
        shorter, longer = sorted(edges, key=lambda e: float((x[e[0]] - x[e[1]]).norm()))
        pairs.append(shorter + longer)
    assert gradcheck(lambda points: pair_lengths(points, pairs), (x.requires_grad_(),))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_gudhi_s_persistence(seed: int) -> None:
    gudhi = pytest.importorskip("gudhi", reason="gudhi is not installed")
    x = ring(seed)
    x[7] = x[3]  # a duplicate, whose bar gudhi drops
    tree = gudhi.RipsComplex(points=x.numpy()).create_simplex_tree(max_dimension=2)
    tree.compute_persistence()
    generators = tree.flag_persistence_generators()
    for dimension in (0, 1):
        pairs = pairs_of_generators(generators, dimension)
        intervals = tree.persistence_intervals_in_dimension(dimension)
        intervals = intervals[np.isfinite(intervals).all(1)]
        assert len(pairs) == len(intervals) > 0
        births, deaths = pair_ends(x, pairs)
        ours = np.stack([births.numpy(), deaths.numpy()], 1)
        np.testing.assert_allclose(ours[np.lexsort(ours.T)], intervals[np.lexsort(intervals.T)], rtol=1e-12)
    bars = barcode(x).lengths
    torch.testing.assert_close(
        bars[bars > 0], pair_lengths(x, pairs_of_generators(generators, 0)).sort().values
    )
    assert gradcheck(
        lambda points: pair_lengths(points, pairs_of_generators(generators)), (x.requires_grad_(),)
    )


@pytest.mark.parametrize("seed", range(3))
def test_it_is_ripser_s_persistence(seed: int) -> None:
    ripser = pytest.importorskip("ripser", reason="ripser is not installed")
    x = ring(seed)
    intervals = ripser.ripser(x.numpy())["dgms"][1]
    pairs = pairs_of_intervals(x, intervals)
    np.testing.assert_allclose(pair_lengths(x, pairs).numpy(), intervals[:, 1] - intervals[:, 0], atol=1e-6)


def test_it_is_giotto_s_persistence() -> None:
    gph = pytest.importorskip("gph", reason="giotto-ph is not installed")
    x = ring(9)
    found = gph.ripser_parallel(x.numpy(), maxdim=1, return_generators=True)
    intervals = found["dgms"][1]
    lengths = pair_lengths(x, pairs_of_generators(found["gens"]))
    np.testing.assert_allclose(lengths.numpy(), intervals[:, 1] - intervals[:, 0], atol=1e-6)


def test_edges_of_intervals_are_found_among_equal_ones() -> None:
    pairs = pairs_of_intervals(SQUARE, [[1.0, math.sqrt(2)], [1.0, math.inf]])
    assert pairs.tolist() == [[0, 1, 0, 2]]
    pairs = pairs_of_intervals(SQUARE, np.float32([[1.0 - 1e-6, math.sqrt(2) + 1e-6]]))
    assert pairs.tolist() == [[0, 1, 0, 2]]
    assert pairs_of_intervals(SQUARE, np.empty((0, 2))).shape == (0, 4)


def test_a_pair_of_one_length_and_an_edge_of_none() -> None:
    x = SQUARE.clone().requires_grad_()
    lengths = pair_lengths(x, torch.tensor([[0, 1, 0, 1], [0, 4, 0, 1], [0, 1, 1, 2]]))
    assert lengths.tolist() == [0, 1, 0]
    persistent_entropy(lengths).backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dtypes_and_autocast(dtype: torch.dtype) -> None:
    x = SQUARE.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lengths = pair_lengths(x, [[3, 2, 2, 0]])
    lengths.sum().backward()
    assert lengths.dtype == torch.float32
    assert float(lengths.detach()) == pytest.approx(math.sqrt(2) - 1, rel=1e-6)
    assert x.grad is not None
    assert x.grad.dtype == dtype


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected points of shape \(N, D\)"):
        pair_lengths(SQUARE[None], [[0, 1, 0, 2]])
    with pytest.raises(InputError, match=r"got \(1, 2\) float64: take those of pairs_of_generators"):
        pair_lengths(SQUARE, [[1.0, 1.4]])
    with pytest.raises(InputError, match=r"got \(1, 2\) int64.*never dies has no length"):
        pair_lengths(SQUARE, [[0, 1]])
    with pytest.raises(InputError, match="expected rows 0 to 4 in pairs, got 5"):
        pair_lengths(SQUARE, [[0, 1, 0, 5]])
    with pytest.raises(InputError, match="expected rows 0 to 4 in pairs, got -1"):
        pair_lengths(SQUARE, [[0, 1, 0, -1]])
    with pytest.raises(InputError, match=r"got a death at 1 before its birth at 1\.41421 in pair 1"):
        pair_lengths(SQUARE, [[0, 1, 0, 2], [0, 2, 0, 1]])
    with pytest.raises(InputError, match=r"expected generators .*, got list"):
        pairs_of_generators([[0, 1, 0, 2]])
    with pytest.raises(InputError, match="expected dimension from 0 up, got -1"):
        pairs_of_generators(GENERATORS, -1)
    with pytest.raises(InputError, match=r"got 0\.5, which none has"):
        pairs_of_intervals(SQUARE, [[0.5, 1.0]])
    with pytest.raises(InputError, match=r"got 2\.5, which none has"):
        pairs_of_intervals(SQUARE, [[1.0, 2.5]])
    with pytest.raises(InputError, match=r"got NaN or infinity in row 0"):
        pairs_of_intervals(SQUARE * torch.nan, [[1.0, 2.5]])
    with pytest.raises(InputError, match=r"expected intervals \(m, 2\), got \(2,\)"):
        pairs_of_intervals(SQUARE, [1.0, 2.0])
    with pytest.raises(InputError, match="got nan, which none has"):
        pairs_of_intervals(SQUARE, [[1.0, math.nan]])
    with pytest.raises(InputError, match="expected rows of one length, got several"):
        pair_lengths(SQUARE, [[0, 1, 2], [0, 1]])
    with pytest.raises(
        InputError,
        match=r"expected \(m, 4\) integers in dimension 1, got \(2, 3\) int64",
    ):
        pairs_of_generators((GENERATORS[0], [GENERATORS[0][:2]], [], []))
    with pytest.raises(InputError, match="expected at least two points, got 1"):
        pairs_of_intervals(SQUARE[:1], [[1.0, 2.0]])


@pytest.mark.parametrize("power", [-1000, -550, 550, 1000])
def test_scaled_points_have_the_pairs_of_the_points(power: int) -> None:
    x = ring(3)
    edges = sorted(np.ndindex(6, 6), key=lambda edge: float((x[edge[0]] - x[edge[1]]).norm()))
    pairs = np.array([[*edges[10], *edges[30]]])
    births, deaths = pair_ends(x, pairs)
    scaled = torch.from_numpy(np.ldexp(x.numpy(), power))
    assert torch.equal(
        pair_lengths(scaled, pairs), torch.ldexp(deaths - births, torch.tensor(power, dtype=torch.float64))
    )
    intervals = torch.stack([births, deaths], 1).numpy()
    assert np.array_equal(
        pairs_of_intervals(scaled, np.ldexp(intervals, power)), pairs_of_intervals(x, intervals)
    )


def test_points_that_have_no_distances_are_refused() -> None:
    pairs, x = pairs_of_generators(GENERATORS), SQUARE.clone()
    x[2, 1] = torch.nan
    with pytest.raises(InputError, match="NaN or infinity in row 2"):
        pair_lengths(x, pairs)
    with pytest.raises(InputError, match="got rows 3 and 2 further apart"):
        pair_lengths((SQUARE * 2 - 1).float() * 3e38, pairs)
