"""Semantic textual similarity: do the similarities of sentence vectors rank pairs of sentences as people do?"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import UndefinedMeasure
from uncone.evaluate.correlation import correlation
from uncone.evaluate.sts_sets import StsPairs
from uncone.evaluate.word_similarity import PairScores

Array = npt.NDArray[Any]
SUBSET_MEAN = "spearman_cosine_subset_mean"


def sts_scores(pairs: StsPairs, place: Mapping[str, int], cosine_of: Array, inner_of: Array) -> PairScores:
    """Cosine and inner product of every pair.

    Args:
        pairs: from `read_sts`.
        place: the row of each sentence.
        cosine_of: (N, D) vectors whose cosines count.
        inner_of: (N, D) vectors whose inner products count; another matrix where a model normalises at its end.

    Returns:
        One score a pair; the cosine is NaN where a vector is zero.
    """
    first, second = ([place[sentence] for sentence in side] for side in (pairs.first, pairs.second))
    x, y = (np.asarray(cosine_of[rows], np.float64) for rows in (first, second))
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosine = np.divide(np.einsum("ij,ij->i", x, y), lengths, out=np.full(len(x), np.nan), where=lengths > 0)
    x, y = (np.asarray(inner_of[rows], np.float64) for rows in (first, second))
    return PairScores(np.asarray(pairs.gold, np.float64), cosine, np.einsum("ij,ij->i", x, y), len(pairs))


def sts_numbers(pairs: StsPairs, scores: PairScores) -> dict[str, float | int | None]:
    """Correlations x 100 over all pairs, and where there are subsets the mean over them of Spearman's with the cosine.

    Two ways are in use for STS12 to 16: one correlation over the pairs of all subsets (`spearman_cosine`; SimCSE's "all"),
    and the mean of the subsets' correlations (`spearman_cosine_subset_mean`; SentEval's "mean" under "all").
    """
    numbers = {name: value for name, value in scores.numbers().items() if name != "pairs"}
    subsets = np.asarray(pairs.subset)
    names = sorted(set(pairs.subset))
    if len(names) > 1:
        found = [_spearman(scores, subsets == name) for name in names]
        defined = [value for value in found if value is not None]
        numbers[SUBSET_MEAN] = sum(defined) / len(defined) if len(defined) == len(found) else None
    return numbers


def _spearman(scores: PairScores, chosen: npt.NDArray[np.bool_]) -> float | None:
    cosine = scores.cosine[chosen]
    if len(cosine) < 2 or not np.isfinite(cosine).all():
        return None
    try:
        return 100.0 * correlation(cosine, scores.gold[chosen], kind="spearman")
    except UndefinedMeasure:
        return None
