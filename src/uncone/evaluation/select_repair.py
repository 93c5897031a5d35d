"""`select_repair`: choose a repair on one split and confirm it on another, or choose none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from uncone.errors import InputError, UndefinedMeasure, nearest, need_torch
from uncone.evaluation.bootstrap import correlation, correlation_bootstraps, paired_bootstraps
from uncone.evaluation.encoding import Encoding, open_encoding, texts_digest
from uncone.evaluation.fitting import is_affine, repair_names
from uncone.evaluation.own_vectors import name_of_own, open_own, own_vectors
from uncone.evaluation.pairs import PairScores, Scores, read_sts
from uncone.evaluation.record import ORIGINAL, Interval, Selection
from uncone.evaluation.results import PACKAGES, PRIMARY, TITLES, Settings, doubt, items_of, shown, varies
from uncone.evaluation.retrieval import Corpus, Qrels, open_corpus, ranked
from uncone.evaluation.sts import fitted_on_set, scored
from uncone.model.open import open_spec
from uncone.records.text import counted
from uncone.roles import Path_, Progress
from uncone.rows.ids import Ids
from uncone.transforms import REPAIRS
from uncone.transforms.names import described
from uncone.version import versions

_LEVEL = 0.95
_LEAST = 20
"""Items of a split. With fewer a bootstrap interval is too narrow to decide by."""
_TASKS = ("retrieval", "sts")


@dataclass(frozen=True)
class _Split:
    """One split: its items, the original's value, and the differences of given repairs at a given level."""

    n: int
    original: float
    repairs: tuple[str, ...]
    differences: Callable[[Sequence[str], float], Mapping[str, Interval]]


_Splits = tuple[_Split, Callable[[], _Split], str, tuple[str, ...], tuple[str, ...], dict[str, Any]]
"""Development; test, scored only to confirm a candidate; how both were made, notes on repairs, other notes, and
where all comes from."""


def select_repair(
    spec: Any = None,
    *,
    task: Literal["retrieval", "sts"] | None = None,
    data: Path_ | None = None,
    queries: Any = None,
    documents: Any = None,
    qrels: Qrels | None = None,
    ids: Ids | None = None,
    query_ids: Ids | None = None,
    repairs: Sequence[str] | None = None,
    cache: Path_ | None = None,
    seed: int = 0,
    resamples: int = 10_000,
    progress: Progress | None = None,
) -> Selection:
    """The repair that a task calls for, if any: chosen on a development split, confirmed on a test split.

    A repair becomes the candidate if the lower limit of its difference on the development split is above 0,
    at 95% for all repairs together (Bonferroni: each interval at 1 - 0.05 / repairs), and no other such
    repair is higher. It is chosen if the lower 95% limit on the test split is above 0 as well; otherwise the
    answer is to leave the vectors as they are.

    Retrieval (nDCG@10 of the cosine): development on the queries of qrels/dev.tsv or, without it, of
    qrels/train.tsv; test on the queries of qrels/test.tsv (a query of both counts for the test). With
    test.tsv alone, both on seeded halves of its queries. Repairs are fitted on the documents. STS (Spearman):
    the development and test pairs of the STS Benchmark; repairs are fitted on its training sentences. Own
    vectors (retrieval): seeded halves of the judged queries; repairs are fitted on the documents.

    Args:
        spec: an encoder, as for `evaluate`; or own vectors of documents, in place of `documents`.
        task: by what to choose.
        data: the directory of the task's data.
        queries, documents, qrels, ids, query_ids: own vectors and judgements, as for `evaluate`.
        repairs: the names to choose from, by default the affine ones, which can be written into a model.
            Fewer have narrower intervals.
        cache: a folder in which vectors of texts are kept.
        seed: of the resampling and of the halves.
        resamples: how many.
        progress: called with (the step, done, in all).

    Returns:
        Selection: `chosen` is the name of a repair or "original"; nDCG@10 in [0, 1], Spearman times 100.

    Raises:
        InputError: data without a development part, fewer than 20 items in a split, no repair that fits.
    """
    need_torch("uncone.select_repair")
    own = own_vectors(
        spec,
        queries=queries,
        documents=documents,
        qrels=qrels,
        ids=ids,
        query_ids=query_ids,
        task=task,
        others={"data": data, "cache": cache},
    )
    if own is None and task not in _TASKS:
        raise InputError(
            f"expected a task out of {', '.join(_TASKS)} to choose a repair by, got {task!r}: "
            f"{nearest(task, _TASKS, 'name one')}"
        )
    if own is None and (spec is None or data is None):
        raise InputError(
            "expected an encoder and a task's data, or own vectors (queries, documents and qrels), got neither: "
            "give one of them"
        )
    names = tuple(filter(is_affine, REPAIRS)) if repairs is None else repair_names(repairs)
    settings = Settings(seed=seed, resamples=resamples, progress=progress)
    if own is not None:
        task, name = "retrieval", name_of_own(own)
        splits = _of_corpus(open_own(own, names, settings, inner=False), settings)
    else:
        assert task is not None  # refused above, as data
        assert data is not None
        spec = open_spec(spec)
        encoding = open_encoding(spec, cache=None if cache is None else Path(cache), inner=False)
        name = spec.name
        corpus = open_corpus(encoding, data, names, settings) if task == "retrieval" else None
        splits = _of_corpus(corpus, settings) if corpus else _sts(encoding, data, names, settings)
    development, test_split, described, notes, more, provenance = splits
    measure = PRIMARY[task]
    if not development.repairs:
        raise InputError(f"expected a repair that can be fitted, got none of {', '.join(names)}: {' '.join(notes)}")
    at_once = 1 - (1 - _LEVEL) / len(development.repairs)
    changes = dict(development.differences(development.repairs, at_once))
    rising = [repair for repair, interval in changes.items() if interval.low > 0]
    candidate = max(rising, key=lambda repair: changes[repair].difference, default=None)
    test, confirmed = None, None
    if candidate is not None:
        test = test_split()
        confirmed = test.differences((candidate,), _LEVEL)[candidate]
    highest = max(changes.values(), key=lambda interval: interval.difference)
    items = items_of(task, test.n if test else development.n)
    return Selection(
        verdict=_verdict(name, measure, changes, candidate, confirmed) + doubt(items, [confirmed or highest]),
        name=name,
        task=task,
        measure=measure,
        chosen=candidate if candidate and confirmed and confirmed.low > 0 else ORIGINAL,
        candidate=candidate,
        development_original=development.original,
        development=changes,
        development_n=development.n,
        test_original=test.original if test else None,
        test=confirmed,
        test_n=test.n if test else 0,
        splits=described,
        notes=(*notes, *more),
        provenance=provenance | {"seed": seed, "resamples": resamples, "versions": versions(*PACKAGES)},
    )


def _verdict(
    name: str, measure: str, changes: Mapping[str, Interval], candidate: str | None, confirmed: Interval | None
) -> str:
    def told(interval: Interval) -> str:
        value, low, high = (shown(one, measure) for one in (interval.difference, interval.low, interval.high))
        return f"{value} ({low} to {high})"

    title = TITLES[measure]
    if candidate is None or confirmed is None:
        best = max(changes, key=lambda repair: changes[repair].difference)
        return (
            f"Leave {name} as it is: on the development split no repair raises {title} beyond chance; "
            f"the best, {described(best)}, changes it by {told(changes[best])}, "
            f"with an interval for {len(changes)} repairs at once."
        )
    if confirmed.low > 0:
        return f"Repair {name} with {described(candidate)}: on the test split it changes {title} by {told(confirmed)}."
    return (
        f"Leave {name} as it is: the development split chose {described(candidate)}, but on the test split it changes "
        f"{title} by {told(confirmed)}."
    )


def _of_corpus(corpus: Corpus, settings: Settings) -> _Splits:
    queries = corpus.query_ids("test")
    part = next((name for name in ("dev", "train") if name in corpus.judged), "test")
    if part != "test":
        known = set(queries)
        asked = tuple(query for query in corpus.query_ids(part) if query not in known)
        described = (
            f"Development: the {len(asked)} queries of qrels/{part}.tsv; test: the {len(queries)} of qrels/test.tsv."
        )
    else:
        asked, queries = _halves(queries, settings.seed)
        described = (
            f"Development and test: halves of {corpus.told('test')}, {len(asked)} and {len(queries)} queries, "
            f"drawn with seed {settings.seed}."
        )
    _enough(len(asked), "development queries")
    _enough(len(queries), "test queries")

    def evidence(part: str, queries: Sequence[str]) -> _Split:
        per_query = ranked(corpus, part, queries, settings)
        scores = {name: measures["ndcg10"] for name, measures in per_query.items()}
        return _evidence(scores, float(scores[ORIGINAL].mean()), paired_bootstraps, settings)

    texts = {"development": corpus.texts_of(asked), "test": corpus.texts_of(queries)}
    return (
        evidence(part, asked),
        partial(evidence, "test", queries),
        f"{described} Repairs are fitted on {corpus.repairs.fitted_on}.",
        corpus.repairs.notes,
        (*((f"Caution: {corpus.caution}",) if corpus.caution else ()), *corpus.notes),
        {**corpus.provenance, "documents_sha256": corpus.documents_sha256}
        | {f"{name}_sha256": texts_digest(lines) for name, lines in texts.items()},
    )


def _sts(encoding: Encoding, data: Path_, names: Sequence[str], settings: Settings) -> _Splits:
    (benchmark,) = read_sts(data, sets=["stsb"])
    if "dev" not in benchmark.others or "train" not in benchmark.others:
        raise InputError(
            f"expected the training and development parts of the STS Benchmark in {data}, got "
            f"{', '.join(benchmark.others) or 'the test part alone'}: nothing may be chosen on the test part"
        )
    dev = benchmark.others["dev"]
    _enough(len(dev), "development pairs")
    _enough(len(benchmark), "test pairs")
    repairs = fitted_on_set(encoding, benchmark, names, settings)
    development = _of_pairs(scored(encoding, dev, repairs, settings)[1], settings)
    _enough(development.n, "development pairs of sentences with a direction")
    left_out = len(dev) - development.n
    told = f"{counted(left_out, 'development pair')} with a sentence of no direction: left out."
    return (
        development,
        lambda: _of_pairs(scored(encoding, benchmark, repairs, settings)[1], settings),
        f"Development: {len(dev)} pairs of the STS Benchmark; test: {len(benchmark)}. "
        f"Repairs are fitted on {repairs.fitted_on}.",
        (*repairs.notes, *((told,) if left_out else ())),
        encoding.notes(),
        encoding.provenance()
        | {"development_sha256": texts_digest(dev.texts()), "test_sha256": texts_digest(benchmark.texts())},
    )


def _of_pairs(scores: Mapping[str, PairScores], settings: Settings) -> _Split:
    gold = scores[ORIGINAL].gold
    try:
        value = 100 * correlation(scores[ORIGINAL].cosine, gold, kind="spearman")
    except UndefinedMeasure as error:
        raise InputError(f"expected pairs whose similarities differ, got pairs that are all alike: {error}") from error
    usable = {name: one.cosine for name, one in scores.items() if name == ORIGINAL or varies(one.cosine)}
    return _evidence(usable, value, partial(correlation_bootstraps, gold=gold), settings, unit=100)


def _evidence(
    scores: Mapping[str, Scores],
    original: float,
    bootstrap: Callable[..., Sequence[Interval]],
    settings: Settings,
    unit: float = 1,
) -> _Split:
    """`scores[repair]` (items,), the original's first; `unit` is 100 where the value is times 100."""

    def changes(names: Sequence[str], level: float) -> Mapping[str, Interval]:
        columns = {name: scores[name] for name in (ORIGINAL, *names)}
        intervals = settings.differences(bootstrap, columns, level=level)
        return {name: one.scaled(unit) for name, one in intervals.items()}

    return _Split(len(scores[ORIGINAL]), original, tuple(scores)[1:], changes)


def _halves(items: Sequence[str], seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two halves in the order of the whole, drawn at random."""
    drawn = np.random.Generator(np.random.PCG64(seed)).permutation(len(items))
    first, second = np.split(drawn, [len(items) // 2])
    return tuple(items[at] for at in np.sort(first)), tuple(items[at] for at in np.sort(second))


def _enough(n: int, what: str) -> None:
    if n < _LEAST:
        raise InputError(
            f"expected at least {_LEAST} {what} to choose a repair by, got {n}: leave the vectors as they are"
        )
