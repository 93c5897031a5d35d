"""Word similarity: do vectors of words rank pairs of words as people do, with and without each repair?

Word similarity with and without each repair of a token table or of word vectors.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.model.spec import split
from uncone.records import ORIGINAL
from uncone.rows import Rows, as_rows
from uncone.tasks.correlation import PairScores
from uncone.tasks.fitting import finite_rows, fit_repairs
from uncone.tasks.found import Found, Settings, correlation_differences
from uncone.tasks.vector_cache import texts_digest
from uncone.tasks.word_sets import WordSet, read_word_sets
from uncone.tasks.word_vocabulary import Vocabulary, vocabulary_of
from uncone.transforms.fitted import digest

PROTOCOLS = ("paper", "field")
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WordSimilarity:
    """Word similarity of one table under several repairs."""

    protocol: str
    vocabulary: str
    """How words were looked up, in one sentence."""
    scores: Mapping[str, Mapping[str, PairScores]]
    """`scores[set][repair]`."""

    def results(self) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """`results[set][repair]` = {pearson_cosine, pearson_inner, spearman_cosine, spearman_inner, n, pairs}, correlations x 100."""
        return {
            name: {repair: found.numbers() for repair, found in repairs.items()}
            for name, repairs in self.scores.items()
        }


def word_similarity(
    rows: Any,
    vocabulary: Vocabulary,
    sets: Sequence[WordSet],
    transformations: Mapping[str, Any] | None = None,
    *,
    protocol: str = "paper",
) -> WordSimilarity:
    """How far cosine and inner product of word vectors agree with what people say about pairs of words.

    Two protocols differ in the pairs and in the number that counts:

    - "paper" (Bis et al. 2021, section 5.2, and the code released with it): a pair is evaluated if each word is exactly one
      token and not the unknown one; Pearson's correlation. The pairs then differ between tokenizers: compare repairs of one
      model, and models only with the same tokenizer.
    - "field" (Faruqui & Dyer 2014): a word of several tokens is the mean of their vectors, and every pair is evaluated
      whose words have a representation; Spearman's correlation.

    Both correlations are given under either. Words of a file of word vectors are one row each, so both protocols evaluate
    the same pairs there. A row of zeros has no direction: pairs with such a word are left out, and n says so.

    Args:
        rows: the table, anything `as_rows` takes, (N, D). The rows of the words are read once for all repairs.
        vocabulary: from `vocabulary_of`.
        sets: from `read_word_sets`.
        transformations: fitted repairs by name, with `transform` for a tensor (M, D). "original" is added to them.
        protocol: which pairs are evaluated.

    Returns:
        Scores for every set and repair; `results()` gives the correlations x 100, in [-100, 100], higher is better.

    Raises:
        InputError: an unknown protocol, a repair called "original", or no pair of any set that is represented.

    Reads badly when few pairs are left: the standard error of a correlation over n pairs is about 100 / sqrt(n).
    """
    rows = as_rows(rows)
    if protocol not in PROTOCOLS:
        raise InputError(f"expected a protocol out of {', '.join(PROTOCOLS)}, got {protocol!r}")
    if transformations and ORIGINAL in transformations:
        raise InputError(
            f"expected names of repairs, got {ORIGINAL!r}: the vectors as they are have this name, call it otherwise"
        )
    table = _WordVectors(rows, vocabulary, sets, single=protocol == "paper")
    kept = [table.evaluated(one) for one in sets]
    if not any(kept):
        raise InputError(
            f"expected words of {rows.name} in the word sets, got none in {sum(len(s.pairs) for s in sets)} pairs "
            f"({vocabulary.described}): is this the table's own vocabulary?"
        )
    scores: dict[str, dict[str, PairScores]] = {one.name: {} for one in sets}
    for name, repair in {ORIGINAL: None, **(transformations or {})}.items():
        words = table.words(repair)
        for one, places in zip(sets, kept, strict=True):
            scores[one.name][name] = _scored(one, places, words, table.row_of)
    return WordSimilarity(protocol, vocabulary.described, scores)


class _WordVectors:
    """The vectors of all words that the sets hold, gathered once from the table."""

    def __init__(self, rows: Rows, vocabulary: Vocabulary, sets: Sequence[WordSet], *, single: bool) -> None:
        names = sorted({word for one in sets for pair in one.pairs for word in pair})
        pieces = {word: vocabulary.ids(word) for word in names}
        held = [
            word
            for word, ids in pieces.items()
            if ids and max(ids) < rows.shape[0] and (len(ids) == 1 or not single)
        ]
        ids = sorted({index for word in held for index in pieces[word]})
        self.raw = rows.take(torch.tensor(ids, dtype=torch.int64))
        place = {index: at for at, index in enumerate(ids)}
        self._piece = torch.tensor(
            [place[index] for word in held for index in pieces[word]], dtype=torch.int64
        )
        self._word = torch.tensor(
            [at for at, word in enumerate(held) for _ in pieces[word]], dtype=torch.int64
        )
        self._lengths = torch.tensor([len(pieces[word]) for word in held], dtype=torch.float64)
        self.row_of = {word: at for at, word in enumerate(held)}
        zero = (self.words(None) == 0).all(1) if held else ()
        self._pointless = {word for word, empty in zip(held, zero, strict=True) if empty}

    def evaluated(self, one: WordSet) -> list[int]:
        """The numbers of the pairs of which both words have a vector with a direction."""
        held = self.row_of.keys() - self._pointless
        return [at for at, (first, second) in enumerate(one.pairs) if first in held and second in held]

    def words(self, repair: Any) -> Array:
        """(words, D) float64: the pieces' rows under the repair, then their means, since it is the table that is repaired."""
        x = (self.raw if repair is None else repair.transform(self.raw)).double()
        sums = torch.zeros((len(self._lengths), x.shape[1]), dtype=torch.float64)
        sums.index_add_(0, self._word, x[self._piece])
        return np.asarray((sums / self._lengths[:, None]).numpy())


def _scored(one: WordSet, places: Sequence[int], words: Array, row_of: Mapping[str, int]) -> PairScores:
    pairs = [one.pairs[at] for at in places]
    left = words[[row_of[first] for first, _ in pairs]] if pairs else np.empty((0, words.shape[1]))
    right = words[[row_of[second] for _, second in pairs]] if pairs else np.empty((0, words.shape[1]))
    inner = np.einsum("ij,ij->i", left, right)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine = np.divide(inner, lengths, out=np.full(len(pairs), np.nan), where=lengths > 0)
    return PairScores(np.array([one.gold[at] for at in places], np.float64), cosine, inner, len(one.pairs))


_FEWEST = 2
"""Pairs below which no correlation is defined."""


def evaluate_wordsim(
    spec: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    names: Sequence[str],
    settings: Settings,
    *,
    protocol: Literal["paper", "field"],
) -> Found:
    """The five sets, on the token table of a model (its `#input` unless a part is named) or on word vectors; fitted on all rows."""
    path, part = split(spec)
    is_model = path.is_dir()
    rows = finite_rows(f"{os.fspath(spec)}#input" if is_model and part is None else spec)
    vocabulary = vocabulary_of(path if is_model else rows.labels)
    sets = read_word_sets(directory)
    repairs = fit_repairs(names, rows, fitted_on="all rows of the table", tick=settings.progress)
    scored = word_similarity(rows, vocabulary, sets, repairs.timed(), protocol=protocol)
    found = Found(
        provenance={"rows": rows.shape[0], "dimensions": rows.shape[1], "rows_sha256": digest(rows)}
    )
    for one in sets:
        words = [word for pair in one.pairs for word in pair]
        found.provenance[f"{one.name}_sha256"] = texts_digest([*words, *map(repr, one.gold)])
    for name, per_repair in scored.scores.items():
        found.results[name] = {repair: pairs.numbers() for repair, pairs in per_repair.items()}
        found.differences[name] = correlation_differences(per_repair, settings)
        found.prices[name] = repairs.prices()
        original = per_repair[ORIGINAL]
        if len(original.gold) < _FEWEST:
            found.note(
                f"{name}: {len(original.gold)} of {original.pairs} pairs can be scored: too few for a correlation."
            )
    found.note(f"Vocabulary: {scored.vocabulary}.", *repairs.notes)
    return found
