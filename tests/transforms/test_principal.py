"""The first principal directions against LAPACK's whole decomposition."""

import pytest
import torch

from uncone import Moments
from uncone.moments.eigen import leading_pairs
from uncone.transforms.directions import principal_directions, with_signs

from ..matrices import gaussian, rotation

Tensor = torch.Tensor
D = 300
SPECTRA = {
    "slow": torch.arange(1, D + 1).double() ** -0.7,
    "fast": 0.8 ** torch.arange(D).double(),
    "one": torch.cat([torch.ones(1), torch.zeros(D - 1)]).double(),
    "five": torch.cat([torch.arange(5, 0, -1), torch.zeros(D - 5)]).double(),
    "rogue": torch.cat([torch.tensor([1e6]), torch.arange(1, D).double() ** -0.7]).double(),
    "flat": torch.ones(D, dtype=torch.float64),
    "nothing": torch.zeros(D, dtype=torch.float64),
    "equal pairs": torch.arange(D // 2, 0, -1).repeat_interleave(2).double() ** 3,
}


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("name", SPECTRA)
def test_they_are_those_of_a_whole_decomposition(name: str, k: int) -> None:
    turn, spectrum = rotation(D), SPECTRA[name]
    matrix = turn * spectrum @ turn.T
    values, vectors = leading_pairs(matrix.clone(), k)
    torch.testing.assert_close(values, spectrum[:k], atol=1e-9 * float(spectrum[0]), rtol=1e-9)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(k, dtype=torch.float64), atol=1e-9, rtol=0)
    residual = torch.linalg.vector_norm(matrix @ vectors - vectors * values, dim=0)
    assert float(residual.max()) <= 2e-9 * float(spectrum[0])


@pytest.mark.parametrize("d", [1, 2, 17, 100])
def test_a_small_matrix_is_decomposed_whole(d: int) -> None:
    x = gaussian(3 * d + 5, d, dtype=torch.float64)
    matrix = x.T @ x
    values, vectors = leading_pairs(matrix.clone(), d)
    torch.testing.assert_close(vectors * values @ vectors.T, matrix)


def test_the_number_of_threads_changes_no_bit() -> None:
    m = Moments.of(gaussian(2000, D) * torch.linspace(2, 1, D))
    threads = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            found.append(principal_directions(m, 5)[0])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_signs_are_those_of_the_largest_entries() -> None:
    x = torch.tensor([[0.1, -0.9, 0.2], [0.0, 0.3, 0.1]])
    assert with_signs(x).tolist() == (x * torch.tensor([[-1.0], [1.0]])).tolist()
