"""Semantic textual similarity: do sentence vectors rank pairs as people do, with and without each repair?"""

import os
from itertools import chain

from uncone.errors import expect
from uncone.evaluation.encoding import Encoding, texts_digest
from uncone.evaluation.fitting import Repairs
from uncone.evaluation.pairs import PairScores, PairSet, pair_scores, read_pairs, read_sts
from uncone.evaluation.results import SUBSET_MEAN, Numbers, Settings, TaskResult, correlation_differences, subset_mean
from uncone.evaluation.text_files import Columns
from uncone.records.text import counted
from uncone.roles import Path_

_TRANSDUCTIVE = "the sentences of the set itself, without their scores"


def sts_numbers(pairs: PairSet, scores: PairScores) -> Numbers:
    """Correlations x 100. STS12 to 16 have two: over the pairs of all subsets (`spearman_cosine`; SimCSE's "all"), and
    the mean of the subsets' (`spearman_cosine_subset_mean`; SentEval's "mean" under "all")."""
    numbers = {name: value for name, value in scores.numbers().items() if name != "pairs"}
    if len(set(pairs.subset)) > 1:
        numbers[SUBSET_MEAN] = subset_mean(scores, pairs.subset)
    return numbers


def evaluate_sts(encoding: Encoding, data: Path_, settings: Settings, *, columns: Columns = None) -> TaskResult:
    result = TaskResult(provenance=encoding.provenance())
    transductive = []
    for one in read_sts(data) if os.path.isdir(data) else (read_pairs(data, columns=columns),):
        result.provenance[f"{one.name}_sha256"] = texts_digest([*chain(*zip(*one.pairs, strict=True))])
        repairs = fitted_on_set(encoding, one, settings)
        pairs, scores = scored(encoding, one, repairs, settings)
        result.results[one.name] = {name: sts_numbers(pairs, each) for name, each in scores.items()}
        result.differences[one.name] = correlation_differences(scores, settings, subset=pairs.subset)
        result.prices[one.name] = repairs.prices()
        result.notes += [f"{one.name}: {note}" for note in repairs.notes]
        if len(pairs) < len(one):
            left_out = counted(len(one) - len(pairs), "pair")
            result.notes += [f"{one.name}: {left_out} left out, as a sentence has no direction."]
        if "train" not in one.others:
            transductive.append(one.name)
    if transductive and encoding.rows is None:
        fitted = f"Repairs of {', '.join(transductive)} are fitted on {_TRANSDUCTIVE}"
        result.notes += [f"{fitted}: these sets have no training part."]
    result.notes += encoding.notes()
    return result


def fitted_on_set(encoding: Encoding, one: PairSet, settings: Settings) -> Repairs:
    texts = encoding.texts(one.others.get("train", one).texts(), tick=settings.tick(f"{one.name}: encoding"))
    on = f"the training sentences of {one.name}" if "train" in one.others else _TRANSDUCTIVE
    return encoding.fit(settings.names, texts, fitted_on=on, tick=settings.progress)


def scored(
    encoding: Encoding, one: PairSet, repairs: Repairs, settings: Settings
) -> tuple[PairSet, dict[str, PairScores]]:
    """The pairs, and their scores under every repair. Pairs are left out if the word vectors know no word of a
    sentence: its vector is zero."""
    place = {sentence: at for at, sentence in enumerate(one.texts())}
    texts = encoding.texts(tuple(place), tick=settings.tick(f"{one.name}: encoding"))
    directed = (texts.cosine != 0).any(1)
    kept = [at for at, pair in enumerate(one.pairs) if all(directed[place[text]] for text in pair)]
    got = f"got {len(kept)}: {encoding.name} knows none of their words"
    expect(len(kept) > 1, f"at least two pairs of {one.name} with a direction, {got}")
    pairs, scores = one.only(kept), dict[str, PairScores]()
    for name in repairs.names():
        repaired = repairs.apply(name, texts)
        scores[name] = pair_scores(pairs, place, repaired.cosine, repaired.inner, total=len(pairs))
    return pairs, scores
