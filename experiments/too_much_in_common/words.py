"""Tables 2 and 3: word similarity of a token table with and without each repair, with intervals of the differences."""

from typing import Any

import numpy as np

from uncone.errors import UndefinedMeasure
from uncone.evaluation.bootstrap import correlation_bootstraps
from uncone.evaluation.pairs import PairScores, PairSet
from uncone.evaluation.word_vocabulary import Vocabulary
from uncone.evaluation.wordsim import ORIGINAL, PROTOCOLS, word_similarity
from uncone.moments import Moments
from uncone.rows import Rows
from uncone.transforms import REPAIRS, ZIPF_REPAIRS, repair_named

RESAMPLES = 2000
KIND = {"paper": "pearson", "field": "spearman"}
"""The correlation that each protocol reports."""
FEWEST = 10
"""Pairs: with fewer no interval is computed."""


def fitted(rows: Rows, moments: Moments, counts: Any = None) -> dict[str, Any]:
    """Every repair by name, all but one from the same sums; the Zipfian ones where the tokens' counts are known."""
    d = rows.shape[1]
    found: dict[str, Any] = {}
    for name in REPAIRS:
        repair = repair_named(name, d=d)
        found[name] = repair.fit(rows if name == "cluster_center" else moments)
    if counts is not None:
        for name in ZIPF_REPAIRS:
            found[name] = repair_named(name, d=d).fit(rows, weights=counts)
    return found


def similarity(
    rows: Rows, vocabulary: Vocabulary, sets: tuple[PairSet, ...], repairs: dict[str, Any]
) -> dict[str, Any]:
    """By protocol: how words were looked up, `results[set][repair]`, and `differences[set][repair]` from the original."""
    found = {}
    for protocol in PROTOCOLS:
        scores = word_similarity(rows, vocabulary, sets, repairs, protocol=protocol)
        differences = {name: _differences(by_repair, KIND[protocol]) for name, by_repair in scores.scores.items()}
        found[protocol] = {
            "vocabulary": scores.vocabulary,
            "correlation": KIND[protocol],
            "results": scores.results(),
            "differences": differences,
        }
    return found


def _differences(scores: Any, kind: str) -> dict[str, dict[str, float]]:
    """Of the cosine's correlation, x 100: repair less original over the same pairs, with a 95 % bootstrap interval."""
    original: PairScores = scores[ORIGINAL]
    others = [name for name in scores if name != ORIGINAL and np.isfinite(scores[name].cosine).all()]
    if len(original.gold) < FEWEST or not others:
        return {}
    stacked = np.stack([scores[name].cosine for name in others])
    try:
        found = correlation_bootstraps(original.cosine, stacked, original.gold, kind=kind, resamples=RESAMPLES)
    except UndefinedMeasure:
        return {}
    return {
        name: {"difference": 100 * one.difference, "low": 100 * one.low, "high": 100 * one.high}
        for name, one in zip(others, found, strict=True)
    }
