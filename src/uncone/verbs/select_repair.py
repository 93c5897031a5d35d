"""`select_repair`: choose a repair on one part of the evidence and report on another, or leave the vectors as they are."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError, UndefinedMeasure
from uncone.model.spec import name_of, split
from uncone.records import ORIGINAL, Interval, Selection
from uncone.records.wording import counted
from uncone.tasks import correlation, correlation_bootstraps, paired_bootstraps
from uncone.tasks.correlation import PairScores
from uncone.tasks.encoded import Encoding, open_encoding
from uncone.tasks.fitting import is_affine, repair_names
from uncone.tasks.found import Progress, Settings, varies, versions
from uncone.tasks.retrieval import Corpus, open_corpus, ranked
from uncone.tasks.sts import fitted_ways, scored
from uncone.tasks.sts_sets import read_sts
from uncone.tasks.vector_cache import texts_digest
from uncone.transforms import REPAIRS

_LEVEL = 0.95
_LEAST = 20
"""Items of a split. With fewer a bootstrap interval is too narrow to decide by."""
_MEASURES = {"retrieval": "ndcg10", "sts": "spearman_cosine"}
_TITLES = {"ndcg10": "nDCG@10", "spearman_cosine": "Spearman x 100"}
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Evidence:
    """One split: the value of the original, how many items, and the differences of given repairs at a given level."""

    n: int
    original: float
    repairs: tuple[str, ...]
    differences: Callable[[Sequence[str], float], dict[str, Interval]]


@dataclass(frozen=True)
class _Splits:
    development: _Evidence
    test: Callable[[], _Evidence]
    described: str
    notes: tuple[str, ...]
    digests: Mapping[str, str] = field(default_factory=dict)


def select_repair(
    spec: str | os.PathLike[str],
    *,
    task: Literal["retrieval", "sts"],
    data: str | os.PathLike[str],
    repairs: Sequence[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    seed: int = 0,
    resamples: int = 10_000,
    progress: Progress | None = None,
) -> Selection:
    """The repair that a task calls for, if any does: chosen on a development split, confirmed on a test split.

    A repair becomes the candidate if the lower limit of its difference on the development split is above 0, at 95 % for all
    repairs together (Bonferroni: each interval at 1 - 0.05 / repairs), and no other such repair is higher. It is chosen if
    the lower 95 % limit on the test split is above 0 as well; otherwise the answer is to leave the vectors as they are.

    Retrieval (nDCG@10 of the cosine): development on the queries of qrels/dev.tsv or, without it, qrels/train.tsv, test on
    those of qrels/test.tsv (a query of both counts for the test); with test.tsv alone, on two seeded halves of its
    queries. Repairs are fitted on the documents.
    STS (Spearman): the development and test pairs of the STS Benchmark; repairs are fitted on its training sentences.

    Args:
        spec: an encoder, as for `evaluate`.
        task: by what to choose.
        data: the directory of the task's data.
        repairs: which to choose from; by default the affine ones, which can be written into a model. Fewer have narrower intervals.
        cache: a folder in which vectors of texts are kept.
        seed: of the resampling and of the halves.
        resamples: how many.
        progress: called with (what is done, done, in all).

    Returns:
        Selection: `chosen` is the name of a repair or "original"; nDCG@10 in [0, 1], Spearman times 100.

    Raises:
        InputError: data without a development part, fewer than 20 items in a split, no repair that could be fitted.
    """
    if task not in _MEASURES:
        raise InputError(f"expected a task out of {', '.join(_MEASURES)} to choose a repair by, got {task!r}")
    path, _ = split(spec)
    names = tuple(filter(is_affine, REPAIRS)) if repairs is None else repair_names(repairs)
    settings = Settings(seed=seed, resamples=resamples, progress=progress)
    encoding = open_encoding(spec, cache=None if cache is None else Path(cache))
    splits = (_retrieval if task == "retrieval" else _sts)(encoding, data, names, settings)
    development = splits.development
    if not development.repairs:
        raise InputError(
            f"expected at least one repair that can be fitted, got none of {', '.join(names)}: {' '.join(splits.notes)}"
        )
    found = _decided(development, splits.test)
    name = name_of(spec, path)
    return Selection(
        verdict=_verdict(name, _MEASURES[task], found.development, found.candidate, found.confirmed),
        name=name,
        task=task,
        measure=_MEASURES[task],
        chosen=found.chosen,
        candidate=found.candidate,
        development_original=development.original,
        development=found.development,
        development_n=development.n,
        test_original=None if found.test is None else found.test.original,
        test=found.confirmed,
        test_n=0 if found.test is None else found.test.n,
        splits=splits.described,
        notes=splits.notes,
        provenance=encoding.provenance()
        | {**splits.digests, "seed": seed, "resamples": resamples, "versions": versions()},
    )


@dataclass(frozen=True)
class _Decision:
    """The differences on the development split, the repair they propose, and what the test split says of that one alone."""

    development: dict[str, Interval]
    candidate: str | None = None
    test: _Evidence | None = None
    confirmed: Interval | None = None

    @property
    def chosen(self) -> str:
        """The candidate, if the test split confirms it."""
        return self.candidate if self.candidate and self.confirmed and self.confirmed.low > 0 else ORIGINAL


def _decided(development: _Evidence, test: Callable[[], _Evidence]) -> _Decision:
    """The test split is looked at only if there is a candidate."""
    found = development.differences(development.repairs, 1 - (1 - _LEVEL) / len(development.repairs))
    winners = [name for name, interval in found.items() if interval.low > 0]
    if not winners:
        return _Decision(found)
    candidate = max(winners, key=lambda name: found[name].difference)
    evidence = test()
    return _Decision(found, candidate, evidence, evidence.differences((candidate,), _LEVEL)[candidate])


def _verdict(
    name: str, measure: str, found: dict[str, Interval], candidate: str | None, confirmed: Interval | None
) -> str:
    title = _TITLES[measure]
    if candidate is None or confirmed is None:
        best = max(found, key=lambda repair: found[repair].difference)
        return (
            f"Leave {name} as it is: on the development split no repair raises {title} beyond chance; the best, {best}, "
            f"changes it by {_said(found[best], measure)}, with an interval for {len(found)} repairs at once."
        )
    if confirmed.low > 0:
        return f"Repair {name} with {candidate}: on the test split it changes {title} by {_said(confirmed, measure)}."
    return (
        f"Leave {name} as it is: the development split chose {candidate}, but on the test split it changes {title} by "
        f"{_said(confirmed, measure)}."
    )


def _said(interval: Interval, measure: str) -> str:
    digits = 2 if measure.startswith("spearman") else 4
    return f"{interval.difference:+.{digits}f} ({interval.low:+.{digits}f} to {interval.high:+.{digits}f})"


def _retrieval(
    encoding: Encoding, data: str | os.PathLike[str], names: Sequence[str], settings: Settings
) -> _Splits:
    corpus = open_corpus(encoding, data, names, settings, inner=False)
    queries = corpus.data.query_ids("test")
    other = next((name for name in ("dev", "train") if name in corpus.data.judged), None)
    if other is not None:
        known = set(queries)
        asked = tuple(query for query in corpus.data.query_ids(other) if query not in known)
        described = f"Development: the {len(asked)} queries of qrels/{other}.tsv; test: the {len(queries)} of qrels/test.tsv."
        chosen: tuple[str, Sequence[str]] = (other, asked)
    else:
        first, queries = _halves(queries, settings.seed)
        described = f"Development and test: halves of qrels/test.tsv, {len(first)} and {len(queries)} queries, drawn with seed {settings.seed}."
        chosen = ("test", first)
    _enough(len(chosen[1]), "development queries")
    _enough(len(queries), "test queries")
    return _Splits(
        _of_queries(encoding, corpus, chosen[0], chosen[1], settings),
        lambda: _of_queries(encoding, corpus, "test", queries, settings),
        f"{described} Repairs are fitted on {corpus.cosine.fitted_on}.",
        (*corpus.cosine.notes, *_notes(encoding)),
        {
            "documents_sha256": texts_digest(corpus.data.documents),
            "development_sha256": texts_digest([corpus.data.queries[query] for query in chosen[1]]),
            "test_sha256": texts_digest([corpus.data.queries[query] for query in queries]),
        },
    )


def _of_queries(
    encoding: Encoding, corpus: Corpus, part: str, queries: Sequence[str], settings: Settings
) -> _Evidence:
    per_query = ranked(encoding, corpus, part, queries, settings, inner=False)
    scores = {name: measures["ndcg10"] for name, measures in per_query.items()}

    def differences(names: Sequence[str], level: float) -> dict[str, Interval]:
        others = np.stack([scores[name] for name in names])
        intervals = paired_bootstraps(
            scores[ORIGINAL], others, seed=settings.seed, resamples=settings.resamples, level=level
        )  # fmt: skip
        return dict(zip(names, intervals, strict=True))

    return _Evidence(len(queries), float(scores[ORIGINAL].mean()), tuple(scores)[1:], differences)


def _sts(
    encoding: Encoding, data: str | os.PathLike[str], names: Sequence[str], settings: Settings
) -> _Splits:
    (benchmark,) = read_sts(data, sets=["stsb"])
    if "dev" not in benchmark.others or "train" not in benchmark.others:
        raise InputError(
            f"expected the training and development parts of the STS Benchmark in {data}, got "
            f"{', '.join(benchmark.others) or 'the test part alone'}: nothing may be chosen on the test part"
        )
    _enough(len(benchmark.others["dev"]), "development pairs")
    _enough(len(benchmark.test), "test pairs")
    ways = fitted_ways(encoding, benchmark, names, settings, inner=False)
    development = _of_pairs(scored(encoding, benchmark, "dev", ways, settings)[1], settings)
    _enough(development.n, "development pairs of sentences with a direction")
    left_out = len(benchmark.others["dev"]) - development.n
    notes = (
        [f"{counted(left_out, 'development pair')} with a sentence of no direction: left out."]
        if left_out
        else []
    )
    return _Splits(
        development,
        lambda: _of_pairs(scored(encoding, benchmark, "test", ways, settings)[1], settings),
        f"Development: {len(benchmark.others['dev'])} pairs of the STS Benchmark; test: {len(benchmark.test)}. "
        f"Repairs are fitted on {ways[0].fitted_on}.",
        (*ways[0].notes, *notes, *_notes(encoding)),
        {
            "development_sha256": texts_digest(benchmark.others["dev"].sentences()),
            "test_sha256": texts_digest(benchmark.test.sentences()),
        },
    )


def _of_pairs(scores: dict[str, PairScores], settings: Settings) -> _Evidence:
    original = scores[ORIGINAL]
    usable = tuple(name for name, one in scores.items() if name != ORIGINAL and varies(one.cosine))

    def differences(names: Sequence[str], level: float) -> dict[str, Interval]:
        others = np.stack([scores[name].cosine for name in names])
        intervals = correlation_bootstraps(
            original.cosine, others, original.gold, seed=settings.seed, resamples=settings.resamples, level=level
        )  # fmt: skip
        return {name: interval.scaled(100) for name, interval in zip(names, intervals, strict=True)}

    try:
        value = 100 * correlation(original.cosine, original.gold, kind="spearman")
    except UndefinedMeasure as error:
        raise InputError(
            f"expected pairs whose similarities differ, got pairs that are all alike: {error}"
        ) from error
    return _Evidence(len(original.gold), value, usable, differences)


def _notes(encoding: Encoding) -> tuple[str, ...]:
    """What is said of the encoder, but for its inner products, which are not looked at here."""
    return () if encoding.encoder.normalizes else encoding.notes()


def _halves(items: Sequence[str], seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two halves in the order of the whole, drawn at random."""
    drawn = np.random.Generator(np.random.PCG64(seed)).permutation(len(items))
    first = set(drawn[: len(items) // 2].tolist())
    return (
        tuple(item for at, item in enumerate(items) if at in first),
        tuple(item for at, item in enumerate(items) if at not in first),
    )


def _enough(n: int, what: str) -> None:
    if n < _LEAST:
        raise InputError(
            f"expected at least {_LEAST} {what} to choose a repair by, got {n}: leave the vectors as they are"
        )
