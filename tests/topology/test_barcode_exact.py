"""Lengths against scipy's in float64, on clouds of every kind, by each algorithm."""

import numpy as np
import pytest
import torch

from tests.topology.hard_clouds import KINDS, cloud, scipy_lengths
from uncone.topology import barcode
from uncone.topology.trees import Algorithm, forced

pytest.importorskip("numba")


def check(kind: str, seed: int, algorithm: Algorithm, largest: int = 400) -> None:
    points = cloud(kind, seed, largest)
    with forced(algorithm):
        found = barcode(points)
    expected = scipy_lengths(points)
    assert found.lengths.dtype == torch.float32
    np.testing.assert_allclose(
        found.lengths.numpy(), expected, rtol=1e-6, atol=0, err_msg=f"{kind} {seed} {tuple(points.shape)}"
    )


@pytest.mark.parametrize("algorithm", ["compiled", "torch", "one pass", "fixed rounds"])
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_scipys(kind: str, algorithm: Algorithm) -> None:
    for seed in range(3):
        check(kind, seed, algorithm, 120)
    check(kind, 3, algorithm, 300)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["compiled", "torch", "one pass", "fixed rounds"])
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_scipys_on_a_thousand_clouds(kind: str, algorithm: Algorithm) -> None:
    for seed in range(100, 191):
        check(kind, seed, algorithm)
