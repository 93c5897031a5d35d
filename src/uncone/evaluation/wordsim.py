"""Word similarity with and without each repair of a token table or of word vectors."""

import os
from collections.abc import Sequence
from typing import Literal

from uncone.evaluate.vector_cache import texts_digest
from uncone.evaluate.word_sets import read_word_sets
from uncone.evaluate.word_similarity import word_similarity
from uncone.evaluate.word_vocabulary import vocabulary_of
from uncone.evaluation.fitting import finite_rows, fit_repairs
from uncone.evaluation.found import Found, Settings, correlation_differences
from uncone.records import ORIGINAL
from uncone.repair.fitted import digest
from uncone.sources.spec import split

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
    found = Found(provenance={"rows": rows.shape[0], "dimensions": rows.shape[1], "rows_sha256": digest(rows)})
    for one in sets:
        words = [word for pair in one.pairs for word in pair]
        found.provenance[f"{one.name}_sha256"] = texts_digest([*words, *map(repr, one.gold)])
    for name, per_repair in scored.scores.items():
        found.results[name] = {repair: pairs.numbers() for repair, pairs in per_repair.items()}
        found.differences[name] = correlation_differences(per_repair, settings)
        found.prices[name] = repairs.prices()
        original = per_repair[ORIGINAL]
        if len(original.gold) < _FEWEST:
            found.note(f"{name}: {len(original.gold)} of {original.pairs} pairs can be scored: too few for a correlation.")
    found.note(f"Vocabulary: {scored.vocabulary}.", *repairs.notes)
    return found
