"""Semantic textual similarity: do the similarities of sentence vectors rank pairs of sentences as people do?

STS12 to STS16 and the STS Benchmark, with and without each repair.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError, UndefinedMeasure
from uncone.records import ORIGINAL, Interval
from uncone.records.wording import counted
from uncone.tasks import mean_correlation_bootstraps
from uncone.tasks.correlation import PairScores, correlation
from uncone.tasks.encoded import Encoding, Texts
from uncone.tasks.fitting import FittedRepairs
from uncone.tasks.found import Found, Numbers, Settings, correlation_differences
from uncone.tasks.sentences import WordMeans
from uncone.tasks.sts_sets import StsPairs, StsSet, read_sts
from uncone.tasks.vector_cache import texts_digest

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


TRANSDUCTIVE = "the sentences of the set itself, without their scores"


def evaluate_sts(
    encoding: Encoding, directory: str | os.PathLike[str], names: Sequence[str], settings: Settings
) -> Found:
    """Fit on the training sentences of a set where it has some, else on the set's own sentences (said in the notes)."""
    found = Found(provenance=encoding.provenance())
    transductive = []
    for one in read_sts(directory):
        found.provenance[f"{one.name}_sha256"] = texts_digest([*one.test.first, *one.test.second])
        ways = fitted_ways(encoding, one, names, settings)
        pairs, scores = scored(encoding, one, "test", ways, settings)
        numbers = found.results[one.name] = {name: sts_numbers(pairs, pair) for name, pair in scores.items()}
        means = subset_mean_differences(pairs, scores, numbers, settings)
        whole = correlation_differences(scores, settings)
        found.differences[one.name] = {name: {**each, **means.get(name, {})} for name, each in whole.items()}
        found.prices[one.name] = ways[0].prices()
        found.note(*(f"{one.name}: {note}" for note in ways[0].notes))
        if len(pairs) < len(one.test):
            found.note(
                f"{one.name}: {counted(len(one.test) - len(pairs), 'pair')} with a sentence of no direction: left out."
            )
        if "train" not in one.others:
            transductive.append(one.name)
    if transductive and not isinstance(encoding.encoder, WordMeans):
        found.note(
            f"Repairs of {', '.join(transductive)} are fitted on {TRANSDUCTIVE}: these sets have no training part."
        )
    found.note(*encoding.notes())
    return found


def fitted_ways(
    encoding: Encoding, one: StsSet, names: Sequence[str], settings: Settings, *, inner: bool = True
) -> tuple[FittedRepairs, FittedRepairs]:
    """The repairs fitted for cosine and for inner products: the same ones unless the model normalises, or without `inner`."""
    has_train = "train" in one.others
    pairs = one.others["train"] if has_train else one.test
    texts = encoding.texts(pairs.sentences(), tick=settings.tell(f"{one.name}: encoding"))
    on = f"the training sentences of {one.name}" if has_train else TRANSDUCTIVE
    cosine = encoding.fit(names, texts.cosine, fitted_on=on, tick=settings.progress)
    if texts.inner is texts.cosine or not inner:
        return cosine, cosine
    return cosine, encoding.fit(names, texts.inner, fitted_on=on, tick=settings.progress)


def scored(
    encoding: Encoding, one: StsSet, split: str, ways: tuple[FittedRepairs, FittedRepairs], settings: Settings
) -> tuple[StsPairs, dict[str, PairScores]]:
    """The pairs of one split, and their scores under every repair; where both ways are one, inner products are of those vectors too.

    A sentence whose vector is zero (of no word that the word vectors hold) has no cosine: its pairs are left out.

    Raises:
        InputError: fewer than two pairs are left.
    """
    pairs = one.test if split == "test" else one.others[split]
    sentences = pairs.sentences()
    place = {sentence: at for at, sentence in enumerate(sentences)}
    texts: Texts = encoding.texts(sentences, tick=settings.tell(f"{one.name}: encoding"))
    has_direction = (texts.cosine != 0).any(1)
    sides = zip(pairs.first, pairs.second, strict=True)
    kept = [at for at, side in enumerate(sides) if all(has_direction[place[sentence]] for sentence in side)]
    if len(kept) < 2:
        raise InputError(
            f"expected at least two pairs of {one.name} with a direction, got {len(kept)}: {encoding.name} knows none of their words"
        )
    pairs = pairs.only(kept)
    cosine, inner = ways
    found = dict[str, PairScores]()
    for name in cosine.names():
        if name in inner.names():
            repaired = cosine.apply(name, texts.cosine)
            stored = repaired if inner is cosine else inner.apply(name, texts.inner, timed=False)
            found[name] = sts_scores(pairs, place, repaired, stored)
    return pairs, found


def subset_mean_differences(
    pairs: StsPairs, scores: Mapping[str, PairScores], numbers: Mapping[str, Numbers], settings: Settings
) -> dict[str, dict[str, Interval]]:
    """For every repair the mean over the subsets less the original's, paired, resampled within each; none where one is undefined."""
    defined = [name for name in scores if numbers[name].get(SUBSET_MEAN) is not None]
    usable = [name for name in defined if name != ORIGINAL]
    if ORIGINAL not in defined or not usable:
        return {}
    original = scores[ORIGINAL]
    try:
        intervals = mean_correlation_bootstraps(
            original.cosine, np.stack([scores[name].cosine for name in usable]), original.gold, pairs.subset,
            seed=settings.seed, resamples=settings.resamples, level=settings.level,
        )  # fmt: skip
    except UndefinedMeasure:
        return {}  # a subset of so few pairs that nearly every resample repeats a few
    return {
        name: {SUBSET_MEAN: interval.scaled(100)} for name, interval in zip(usable, intervals, strict=True)
    }
