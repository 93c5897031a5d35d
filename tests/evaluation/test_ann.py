"""Quantised search: signs by hand, recall by hand, and what centring does to a cloud that lies off the origin."""

import numpy as np
import pytest

from uncone.errors import InputError
from uncone.evaluation.ann import QUANTISERS, overlap, quantised_neighbours
from uncone.evaluation.encoding import unit
from uncone.evaluation.retrieval import nearest


def test_recall_by_hand() -> None:
    truth = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert overlap(np.array([[4, 9, 1, 10], [0, 1, 2, 3]]), truth).tolist() == [0.5, 0.0]


def test_signs_by_hand() -> None:
    documents = np.array([[1.0, 2.0], [-1.0, 3.0], [1.0, -1.0], [-2.0, -2.0]])
    assert quantised_neighbours(np.array([[3.0, 1.0]]), documents, "binary", k=4).tolist() == [[0, 2, 1, 3]]
    # Hamming distances 0, 1, 1, 2: of equal ones the first.
    assert quantised_neighbours(np.array([[3.0, 1.0]]), documents, "binary_hamming", k=4).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("quantiser", QUANTISERS)
def test_centring_helps_or_changes_nothing_on_a_cloud_off_the_origin(quantiser: str) -> None:
    pytest.importorskip("faiss", reason="the extra [faiss] is not installed")
    generator = np.random.default_rng(0)
    documents = generator.standard_normal((400, 32)).astype(np.float32) + 8
    queries = documents[:60] + 0.3 * generator.standard_normal((60, 32)).astype(np.float32)
    mean = documents.mean(0)
    truth = nearest(queries, documents, 10)
    # Inner products of centred documents rank as those of the documents do.
    assert overlap(nearest(queries, documents - mean, 10), truth).mean() > 0.99
    raw, centred = (
        overlap(quantised_neighbours(unit(q), unit(d), quantiser), nearest(unit(q), unit(d), 10)).mean()
        for q, d in ((queries, documents), (queries - mean, documents - mean))
    )
    if quantiser in ("binary", "binary_hamming"):
        assert raw < 0.2  # every sign is plus
        assert centred > raw + 0.2
    else:
        assert centred > raw - 0.05


def test_refusals() -> None:
    pytest.importorskip("faiss", reason="the extra [faiss] is not installed")
    x = np.random.default_rng(0).standard_normal((20, 4))
    with pytest.raises(InputError, match=r"at least 256 documents for pq \(8 bits\), got 20"):
        quantised_neighbours(x, x, "pq")
