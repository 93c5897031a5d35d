"""STS: numbers against scipy."""

import numpy as np
import pytest
import scipy.stats

from uncone.evaluation.pairs import PairSet, pair_scores
from uncone.evaluation.sts import sts_numbers


def _pairs(n: int, subsets: tuple[str, ...]) -> PairSet:
    gold = tuple(np.round(np.random.default_rng(0).random(n) * 5, 1).tolist())
    pairs, of = tuple((f"a{at}", f"b{at}") for at in range(n)), tuple(subsets[at % len(subsets)] for at in range(n))
    return PairSet("planted", pairs, gold, of)


def test_numbers_are_those_of_scipy() -> None:
    pairs = _pairs(60, ("x", "y", "z"))
    vectors = np.random.default_rng(1).standard_normal((120, 6)).astype(np.float32)
    place = {sentence: at for at, sentence in enumerate(pairs.texts())}
    scores = pair_scores(pairs, place, vectors, 2 * vectors, total=60)
    left, right = (vectors[[place[s] for s in side]].astype(np.float64) for side in zip(*pairs.pairs, strict=True))
    inner = (left * right).sum(1)
    cosine = inner / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert scores.cosine == pytest.approx(cosine)
    assert scores.inner == pytest.approx(4 * inner)
    numbers = sts_numbers(pairs, scores)
    for kind, function in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        for way, score in (("cosine", cosine), ("inner", inner)):
            assert numbers[f"{kind}_{way}"] == pytest.approx(100 * function(score, pairs.gold)[0])
    assert numbers["n"] == 60
    subsets, gold = np.asarray(pairs.subset), np.asarray(pairs.gold)
    each = [scipy.stats.spearmanr(cosine[subsets == s], gold[subsets == s])[0] for s in ("x", "y", "z")]
    assert numbers["spearman_cosine_subset_mean"] == pytest.approx(100 * np.mean(each))


def test_a_zero_vector_has_no_cosine() -> None:
    pairs = _pairs(5, ("",))
    vectors = np.random.default_rng(2).standard_normal((10, 3)).astype(np.float32)
    vectors[0] = 0
    place = {sentence: at for at, sentence in enumerate(pairs.texts())}
    numbers = sts_numbers(pairs, pair_scores(pairs, place, vectors, vectors, total=5))
    assert numbers["spearman_cosine"] is None
    assert numbers["spearman_inner"] is not None
    assert "spearman_cosine_subset_mean" not in numbers
