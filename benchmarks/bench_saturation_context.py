"""500 singular values of the 5-grams of 2 million tokens: uncone's block Lanczos against scipy's ARPACK on the whole matrix.

The rival is asked for 100 values: for 500 it takes more than 4 minutes and 7 GB. A row of uncone is asked for as many.
"""

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from measured import Row, Work, run

import uncone
from uncone.saturation.contexts.curves import ContextMatrix, Followers, count_followers

TOKENS, VOCABULARY, ORDER, DIMENSIONS, FEW = 2_000_000, 33_000, 5, 500, 100


def stream() -> np.ndarray:
    """Phrases of a fixed stock, some of their tokens replaced: frequencies fall as Zipf's, and contexts come again."""
    random = np.random.default_rng(0)
    weights = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
    tokens = np.searchsorted(np.cumsum(weights / weights.sum()), random.random((60_000, 8)))
    chosen = random.zipf(1.2, TOKENS) % len(tokens)
    ids = tokens[chosen[: TOKENS // 8]].ravel()
    others = np.searchsorted(np.cumsum(weights / weights.sum()), random.random(len(ids)))
    return np.minimum(np.where(random.random(len(ids)) < 0.4, others, ids), VOCABULARY - 1)


def counted() -> Followers:
    ids = stream()
    return count_followers(ids, np.array([len(ids)]), ORDER)


def ours() -> Work:
    ids = stream()
    ends = np.array([len(ids)])
    return lambda: ContextMatrix(count_followers(ids, ends, ORDER), "all").spectrum(DIMENSIONS)


def few() -> Work:
    found = counted()
    return lambda: ContextMatrix(found, "all").spectrum(FEW)


def everything() -> Work:
    ids = stream()
    return lambda: uncone.context_rank([ids], order=ORDER, dimensions=DIMENSIONS)


def arpack() -> Work:
    found = counted()
    rows = (found.count / found.total[found.context], (found.context, found.token))
    matrix = scipy.sparse.csr_array(rows, shape=(len(found.total), VOCABULARY))
    return lambda: scipy.sparse.linalg.svds(matrix, FEW, return_singular_vectors=False, random_state=0)


ROWS = [
    Row("uncone: count, build, 500 values with vectors", ours),
    Row("uncone: the whole record, nine such matrices", everything),
    Row("uncone: 100 values with vectors, counted before", few),
    Row("scipy svds (ARPACK), 100 values alone, counted before", arpack),
]

if __name__ == "__main__":
    run(
        __file__,
        "W* of 2M tokens, 5-grams, 500 singular values",
        ROWS,
        repeats=1,
        columns=[("uncone, 100", ROWS[2].name)],
    )
