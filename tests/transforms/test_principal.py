"""The first principal directions against LAPACK's whole decomposition."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from uncone import Moments
from uncone.moments.eigen import leading_pairs
from uncone.transforms.directions import principal_directions, with_signs

from ..matrices import gaussian, rotation

D = 300
SPECTRA = {
    "slow": np.arange(1.0, D + 1) ** -0.7,
    "fast": 0.8 ** np.arange(D),
    "one": np.concatenate([np.ones(1), np.zeros(D - 1)]),
    "five": np.concatenate([np.arange(5.0, 0, -1), np.zeros(D - 5)]),
    "rogue": np.concatenate([[1e6], np.arange(1.0, D) ** -0.7]),
    "flat": np.ones(D),
    "nothing": np.zeros(D),
    "equal pairs": np.arange(D // 2, 0.0, -1).repeat(2) ** 3,
}


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("name", SPECTRA)
def test_they_are_those_of_a_whole_decomposition(name: str, k: int) -> None:
    turn, spectrum = rotation(D).numpy(), SPECTRA[name]
    matrix = turn * spectrum @ turn.T
    values, vectors = leading_pairs(matrix.copy(), k)
    np.testing.assert_allclose(values, spectrum[:k], atol=1e-9 * spectrum[0], rtol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-9, rtol=0)
    assert float(np.linalg.norm(matrix @ vectors - vectors * values, axis=0).max()) <= 2e-9 * spectrum[0]


@pytest.mark.parametrize("d", [1, 2, 17, 100])
def test_a_small_matrix_is_decomposed_whole(d: int) -> None:
    x = gaussian(3 * d + 5, d).double().numpy()
    matrix = x.T @ x
    values, vectors = leading_pairs(matrix.copy(), d)
    np.testing.assert_allclose(vectors * values @ vectors.T, matrix, atol=1e-10, rtol=1e-7)


def test_the_number_of_threads_changes_no_bit() -> None:
    x = (gaussian(2000, D).numpy() * np.linspace(2, 1, D)).astype(np.float32)
    found = []
    for n in (1, 2, 3):
        with threadpool_limits(n):
            found.append(principal_directions(Moments.of(x), 5)[0])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_signs_are_those_of_the_largest_entries() -> None:
    x = np.array([[0.1, -0.9, 0.2], [0.0, 0.3, 0.1]])
    assert with_signs(x).tolist() == (x * np.array([[-1.0], [1.0]])).tolist()
