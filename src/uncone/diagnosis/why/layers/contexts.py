"""How alike are the states of one token, or of one sentence (Ethayarajh 2019)?"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from uncone.moments import inverse, row_norms
from uncone.rows import Array

FEWEST_CONTEXTS = 5  # segments that a token needs for a self-similarity (Ethayarajh 2019, section 3.1)
MOST_OCCURRENCES = 64  # of a token: its maximum explainable variance depends on their number


@dataclass(frozen=True)
class ContextReadings:
    """Means over tokens and segments of a layer's sample, with no baseline subtracted."""

    self_similarity: float | None
    self_tokens: int  # different ones, in 5 segments or more
    intra_similarity: float | None
    intra_random: float | None  # for as many random tokens: a state has a cosine with a mean that it is part of
    mev: float | None  # maximum explainable variance
    mev_random: float | None  # for as many random states, drawn for each token


def context_readings(x: Array, ids: Array, segments: Array, *, seed: int = 0) -> ContextReadings:
    """Readings of states (n, D) of tokens `ids` (n,) in contiguous `segments` (n,) (definitions 1 to 3).

    Unlike Ethayarajh's, values and random baselines use the same estimator on the same number of states (his program
    uses a centred PCA for tokens and an uncentred PCA for random words), and a segment has at most 64 tokens.
    """
    random = np.random.default_rng(seed)
    units = x * inverse(row_norms(x))[:, None].astype(x.dtype)
    similarities, shares, at_random = list[float](), list[float](), list[float]()
    for places in _repeated(ids, segments):
        similarities.append(self_similarity(units[places]))
        few = random.choice(places, min(len(places), MOST_OCCURRENCES), replace=False)
        shares.append(explained(x[few]))
        at_random.append(explained(x[random.choice(len(x), len(few), replace=False)]))
    shuffled = random.permutation(len(x))
    bounds = np.flatnonzero(np.diff(segments, prepend=-1, append=-1))
    pairs = [(a, b) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True) if b - a > 1]
    return ContextReadings(
        self_similarity=_mean(similarities),
        self_tokens=len(similarities),
        intra_similarity=_mean([intra_similarity(x[a:b], units[a:b]) for a, b in pairs]),
        intra_random=_mean([intra_similarity(x[at], units[at]) for at in (shuffled[a:b] for a, b in pairs)]),
        mev=_mean(shares),
        mev_random=_mean(at_random),
    )


def self_similarity(units: Array) -> float:
    """Mean cosine over pairs of unit rows (n, D): (|sum u|^2 - n) / (n^2 - n). Definition 1.

    >>> round(self_similarity(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])), 4)  # cosines 0, 1 and 0
    0.3333
    """
    n, total = len(units), units.sum(0, dtype=np.float64)
    return float((total @ total - n) / (n * n - n))


def intra_similarity(x: Array, units: Array) -> float:
    """Mean cosine of states (n, D), also given as unit rows, and their mean. Definition 2.

    >>> round(intra_similarity(np.eye(2), np.eye(2)), 4)  # 45 degrees each
    0.7071
    """
    mean = x.mean(0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    return float((units.sum(0, dtype=np.float64) @ mean) / (len(x) * length)) if length > 0 else 0.0


def explained(x: Array) -> float:
    """Share of the first singular direction, sigma_1^2 / sum sigma^2, of states (n, D). Definition 3.

    >>> explained(np.array([[3.0, 0.0], [0.0, 1.0]]))  # 9 / (9 + 1)
    0.9
    """
    gram = (x @ x.T if len(x) < x.shape[1] else x.T @ x).astype(np.float64)
    total = float(np.trace(gram))
    return float(np.linalg.eigvalsh(gram)[-1] / total) if total > 0 else 0.0


def _repeated(ids: Array, segments: Array) -> Iterator[Array]:
    """The places of tokens that occur in enough segments."""
    order = np.argsort(ids, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(ids[order])) + 1):
        if len(places) >= FEWEST_CONTEXTS and len(np.unique(segments[places])) >= FEWEST_CONTEXTS:
            yield places


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
