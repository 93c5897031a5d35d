"""Quantised search: how many of the exact nearest neighbours are still found when the documents' vectors are stored in few bits."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.evaluate.search import nearest

Array = npt.NDArray[np.float32]
Quantiser = Literal["int8", "int8_uniform", "pq", "binary", "binary_hamming"]
QUANTISERS: tuple[Quantiser, ...] = ("int8", "int8_uniform", "pq", "binary", "binary_hamming")
DEFINITIONS = {
    "int8": "8 bits a feature, each feature with its own range (faiss QT_8bit)",
    "int8_uniform": "8 bits a feature, all features with one range (faiss QT_8bit_uniform)",
    "pq": "product quantisation, 8 bits for about 8 features (faiss)",
    "binary": "1 bit a feature, its sign; the query keeps its numbers",
    "binary_hamming": "1 bit a feature, its sign, of the query too (Hamming distance)",
}
_FEATURES_A_CODE = 8


def exact_neighbours(queries: npt.NDArray[Any], documents: npt.NDArray[Any], *, k: int = 10) -> npt.NDArray[np.int64]:
    """The numbers (Q, k) of the documents with the highest inner products."""
    return nearest(queries, documents, k)[1]


def quantised_neighbours(
    queries: npt.NDArray[Any], documents: npt.NDArray[Any], quantiser: Quantiser, *, k: int = 10, seed: int = 0
) -> npt.NDArray[np.int64]:
    """As `exact_neighbours`, of documents that went through a quantiser and back; it is trained on the documents.

    The queries stay as they are (asymmetric distances, as Faiss computes them) but for `binary_hamming`. Every document is
    compared, so what is lost is lost by the quantiser and not by an index.

    Args:
        queries: (Q, D) vectors; for cosine of length 1.
        documents: (N, D) vectors.
        quantiser: one of `QUANTISERS`; `DEFINITIONS` says what each is.
        k: how many.
        seed: of the product quantiser's k-means.

    Raises:
        InputError: the extra is not installed (`pip install 'uncone[faiss]'`), or fewer than 256 documents for "pq".
    """
    x, y = (np.ascontiguousarray(given, np.float32) for given in (queries, documents))
    if quantiser == "binary_hamming":
        x = _signs(x)
    stored = _signs(y) if quantiser.startswith("binary") else _through_faiss(y, quantiser, seed)
    return nearest(x, stored, k)[1]


def overlap(found: npt.NDArray[np.int64], truth: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The share of each row of `truth` (Q, k) that is in the same row of `found` (Q, K), (Q,) in [0, 1]: recall@k."""
    return np.asarray((truth[:, :, None] == found[:, None, :]).any(axis=2).mean(axis=1))


def _signs(x: Array) -> Array:
    return np.where(x > 0, np.float32(1), np.float32(-1))


def _through_faiss(documents: Array, quantiser: str, seed: int) -> Array:
    try:
        import faiss
    except ImportError as error:
        raise InputError(f"the quantiser {quantiser} is that of Faiss: pip install 'uncone[faiss]'") from error
    n, d = documents.shape
    makers: dict[str, Callable[[], Any]] = {
        "int8": lambda: faiss.IndexScalarQuantizer(d, faiss.ScalarQuantizer.QT_8bit),
        "int8_uniform": lambda: faiss.IndexScalarQuantizer(d, faiss.ScalarQuantizer.QT_8bit_uniform),
        "pq": lambda: _product_quantiser(faiss, n, d, seed),
    }
    if quantiser not in makers:
        raise InputError(f"expected a quantiser out of {', '.join(QUANTISERS)}, got {quantiser!r}")
    index = makers[quantiser]()
    index.train(documents)
    return np.asarray(index.sa_decode(index.sa_encode(documents)), np.float32)


def _product_quantiser(faiss: Any, n: int, d: int, seed: int) -> Any:
    if n < 256:
        raise InputError(f"expected at least 256 documents for product quantisation with 8 bits, got {n}: use more")
    codes = next(count for count in range(max(1, d // _FEATURES_A_CODE), 0, -1) if d % count == 0)
    index = faiss.IndexPQ(d, codes, 8)
    index.pq.cp.seed = seed + 1234  # Faiss' own where seed is 0
    index.pq.cp.niter = 10  # of Faiss' 25: the last ones take most of the time and change little
    index.pq.cp.min_points_per_centroid = 1  # else it warns on standard error of sets below 10,000 documents
    return index
