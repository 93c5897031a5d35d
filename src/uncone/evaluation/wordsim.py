"""Word similarity: do vectors of words rank pairs of words as people do, with and without each repair?"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from uncone.errors import expect
from uncone.evaluation.encoding import texts_digest
from uncone.evaluation.fitting import Texts, finite_rows, fit_repairs
from uncone.evaluation.pairs import PairScores, PairSet, pair_scores, read_pairs, read_word_sets
from uncone.evaluation.record import ORIGINAL
from uncone.evaluation.results import Numbers, Settings, TaskResult, correlation_differences
from uncone.evaluation.text_files import Columns
from uncone.evaluation.word_vocabulary import Vocabulary, vocabulary_of
from uncone.model.open import split
from uncone.roles import Path_
from uncone.rows import Array, as_rows
from uncone.transforms.fitting import digest

PROTOCOLS = ("paper", "field")


@dataclass(frozen=True)
class WordSimilarity:
    protocol: str
    vocabulary: str  # how words were looked up
    scores: Mapping[str, Mapping[str, PairScores]]  # `scores[set][repair]`

    def results(self) -> dict[str, dict[str, Numbers]]:
        """`results[set][repair]`: `PairScores.numbers`, with correlations x 100."""
        return {name: {repair: one.numbers() for repair, one in of.items()} for name, of in self.scores.items()}


def word_similarity(
    rows: Any,
    vocabulary: Vocabulary,
    sets: Sequence[PairSet],
    transformations: Mapping[str, Any] | None = None,
    *,
    protocol: str = "paper",
) -> WordSimilarity:
    """How far cosine and inner product of word vectors agree with people on pairs of words.

    Two protocols differ in the pairs and in the number that counts; both give both correlations:

    - "paper" (Bis et al. 2021, section 5.2, and their code): pairs whose words are each one token, not the unknown one;
      Pearson's correlation. Only models with the same tokenizer have the same pairs.
    - "field" (Faruqui & Dyer 2014): a word of several tokens is the mean of their vectors, and every pair counts whose
      words are represented; Spearman's correlation.

    A row of zeros has no direction: pairs with such a word are left out, and n shows it.

    Args:
        rows: the table (N, D), anything `as_rows` takes, read once.
        vocabulary: from `vocabulary_of`.
        sets: from `read_word_sets` or `read_pairs`.
        transformations: fitted repairs by name, with `transform` for an array (M, D); "original" is added.
        protocol: "paper" or "field".

    Returns:
        Scores for every set and repair; `results()` gives the correlations x 100, higher is better.

    Raises:
        InputError: an unknown protocol, a repair called "original", or no pair of any set that is represented.

    Reads badly when few pairs are left: the standard error of a correlation over n pairs is about 100 / sqrt(n).
    """
    rows = as_rows(rows)
    expect(protocol in PROTOCOLS, f"a protocol out of {', '.join(PROTOCOLS)}, got {protocol!r}")
    repairs = dict(transformations or {})
    expect(ORIGINAL not in repairs, f"names of repairs, got {ORIGINAL!r}: it names the vectors as they are")
    spelled = ((word, vocabulary.ids(word)) for word in sorted({word for one in sets for word in one.texts()}))
    held = {word: ids for word, ids in spelled if ids and max(ids) < rows.shape[0]}
    if protocol == "paper":
        held = {word: ids for word, ids in held.items() if len(ids) == 1}
    needed, pieces = np.unique(np.array([*chain(*held.values())], np.int64), return_inverse=True)
    raw, lengths = rows.take(needed), np.array([len(ids) for ids in held.values()], np.int64)
    starts = lengths.cumsum() - lengths

    def vectors(table: Array) -> Array:
        """Means (words, D) of the pieces' rows, since the table is repaired."""
        return np.asarray(np.add.reduceat(table.astype(np.float64)[pieces], starts) / lengths[:, None])

    original, row_of = vectors(raw), {word: at for at, word in enumerate(held)}
    directed = {word for word, row in row_of.items() if original[row].any()}
    kept = [[at for at, pair in enumerate(one.pairs) if directed.issuperset(pair)] for one in sets]
    got = f"got none in {sum(map(len, sets))} pairs ({vocabulary.described}): is this the table's own vocabulary?"
    expect(any(kept), f"words of {rows.name} in the word sets, {got}")
    scores: dict[str, dict[str, PairScores]] = {one.name: {} for one in sets}
    for name, repair in {ORIGINAL: None, **repairs}.items():
        repaired = original if repair is None else vectors(repair.transform(raw))
        for one, places in zip(sets, kept, strict=True):
            scores[one.name][name] = pair_scores(one.only(places), row_of, repaired, repaired, total=len(one))
    return WordSimilarity(protocol, vocabulary.described, scores)


def evaluate_wordsim(spec: Any, data: Path_, settings: Settings, protocol: str, columns: Columns = None) -> TaskResult:
    """Repairs are fitted on all rows of `spec`: a model's token table, unless a part is named, or word vectors."""
    path, part = split(spec)
    is_model = path.is_dir()
    rows = finite_rows(f"{os.fspath(spec)}#input" if is_model and part is None else spec)
    vocabulary = vocabulary_of(path if is_model else rows.labels)
    sets = read_word_sets(data) if os.path.isdir(data) else (read_pairs(data, columns=columns),)
    repairs = fit_repairs(settings.names, Texts(rows, rows), fitted_on="all rows of the table", tick=settings.progress)
    similarity = word_similarity(rows, vocabulary, sets, repairs.cosine, protocol=protocol)
    provenance = {"rows": rows.shape[0], "dimensions": rows.shape[1], "rows_sha256": digest(rows)}
    result = TaskResult(results=similarity.results(), provenance=provenance)
    for one in sets:
        result.provenance[f"{one.name}_sha256"] = texts_digest([*chain(*one.pairs), *map(repr, one.gold)])
        scores = similarity.scores[one.name]
        result.differences[one.name] = correlation_differences(scores, settings)
        result.prices[one.name] = repairs.prices()
        n = len(scores[ORIGINAL].gold)
        if n < 2:
            result.notes += [f"{one.name}: {n} of {len(one)} pairs can be scored: too few for a correlation."]
    result.notes += [f"Vocabulary: {similarity.vocabulary}.", *repairs.notes]
    return result
