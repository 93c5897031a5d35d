"""`select_repair`: choose a repair on one split and confirm it on another, or choose none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from uncone.errors import InputError, UndefinedMeasure, expect, nearest, need_torch
from uncone.evaluation.bootstrap import correlation, correlation_bootstraps, paired_bootstraps
from uncone.evaluation.encoding import Encoding, open_encoding, texts_digest
from uncone.evaluation.fitting import is_affine, repair_names
from uncone.evaluation.own_vectors import name_of_own, open_own, own_vectors
from uncone.evaluation.pairs import PairScores, read_sts
from uncone.evaluation.record import ORIGINAL, Interval, Selection, called
from uncone.evaluation.results import (
    ONE_SIDED,
    PACKAGES,
    PRIMARY,
    Settings,
    doubt,
    items_of,
    lowers,
    shown,
    silent,
    varies,
)
from uncone.evaluation.retrieval import Corpus, Qrels, open_corpus, ranked
from uncone.evaluation.sts import fitted_on_set, scored
from uncone.model.open import open_spec
from uncone.records.text import counted
from uncone.roles import Path_, Progress
from uncone.rows import Array
from uncone.rows.ids import Ids
from uncone.transforms import REPAIRS
from uncone.transforms.names import described
from uncone.version import versions

_LEVEL = 0.95
_LEAST = 20  # items of a split: fewer make a bootstrap interval too narrow
_TASKS = ("retrieval", "sts")


@dataclass(frozen=True)
class _Split:
    """`scores[repair]` (items,), the original's first; `unit` is 100 where the value of the original is times 100."""

    scores: Mapping[str, Array]
    original: float
    bootstrap: Callable[..., Sequence[Interval]]
    settings: Settings
    unit: float = 1
    others: Mapping[str, "_Split"] = field(default_factory=dict)  # by the name of another number of the task

    @property
    def n(self) -> int:
        return len(self.scores[ORIGINAL])

    def differences(self, names: Sequence[str], level: float) -> dict[str, Interval]:
        columns = {name: self.scores[name] for name in (ORIGINAL, *names)}
        intervals = self.settings.differences(self.bootstrap, columns, level=level)
        return {name: one.scaled(self.unit) for name, one in intervals.items()}


_Splits = tuple[_Split, Callable[[], _Split], str, tuple[str, ...], tuple[str, ...], dict[str, Any]]
"""Development; test, scored only for a candidate; how both were made; notes on repairs; other notes; provenance."""


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
    method: str | Sequence[str] | None = None,
    cache: Path_ | None = None,
    seed: int = 0,
    resamples: int = 10_000,
    progress: Progress | None = None,
) -> Selection:
    """The repair that a task calls for, if any: chosen on a development split, confirmed on a test split.

    A repair becomes the candidate if the lower limit of its difference on the development split is above 0, at 95% for
    all repairs together (Bonferroni: each interval at 1 - 0.05 / repairs), and no other such repair is higher. It is
    chosen if the lower 95% limit on the test split is above 0 as well; otherwise vectors stay as they are.

    Retrieval (nDCG@10 of the cosine): development uses the queries of qrels/dev.tsv or else of qrels/train.tsv, and the
    test uses the queries of qrels/test.tsv (a query in both counts for the test). With test.tsv alone, and for your own
    vectors, they use seeded halves of the judged queries. Repairs are fitted on the documents. STS (Spearman): the
    development and test pairs of the STS Benchmark; repairs are fitted on its training sentences.

    Args:
        spec: an encoder, as for `evaluate`; or your own vectors of documents, instead of `documents`.
        task: the task to choose by.
        data: the directory of the task's data.
        queries, documents, qrels, ids, query_ids: your own vectors and judgements, as for `evaluate`.
        method: names of repairs to choose from; by default the affine repairs, which can be written into a model. The
            fewer they are, the narrower the intervals.
        cache: a folder that keeps vectors of texts.
        seed: for the resampling and for the halves.
        resamples: how many.
        progress: called with (the step, done, in all).

    Returns:
        Selection: `chosen` is the name of a repair or "original"; nDCG@10 in [0, 1], Spearman times 100.

    Raises:
        InputError: data without a development part, fewer than 20 items in a split, no repair that fits.
    """
    need_torch("uncone.select_repair")
    given: Any = {"queries": queries, "documents": documents, "qrels": qrels, "ids": ids, "query_ids": query_ids}
    own = own_vectors(spec, **given, task=task, others={"data": data, "cache": cache})
    names = tuple(filter(is_affine, REPAIRS)) if method is None else repair_names(method)
    settings, is_one_sided = Settings(names, seed, resamples, progress or silent), False
    if own is not None:
        task, name = "retrieval", name_of_own(own)
        corpus = open_own(own, settings, inner=False)
        splits, is_one_sided = _of_corpus(corpus, settings), corpus.is_one_sided
    elif task is None or task not in _TASKS:
        advice = nearest(task, _TASKS, "name one")
        raise InputError(f"expected a task out of {', '.join(_TASKS)} to choose a repair by, got {task!r}: {advice}")
    elif spec is None or data is None:
        wanted = "an encoder and a task's data, or own vectors (queries, documents and qrels)"
        raise InputError(f"expected {wanted}, got neither: give one of them")
    else:
        spec = open_spec(spec)
        encoding = open_encoding(spec, cache=cache, inner=False)
        name = spec.name
        encoded = open_corpus(encoding, data, settings) if task == "retrieval" else None
        splits = _of_corpus(encoded, settings) if encoded else _sts(encoding, data, settings)
    development, test_split, described, notes, more, provenance = splits
    measure = PRIMARY[task]
    tried = tuple(development.scores)[1:]
    expect(bool(tried), f"a repair that can be fitted, got none of {', '.join(names)}: {' '.join(notes)}")
    changes = development.differences(tried, 1 - (1 - _LEVEL) / len(tried))
    rising = [repair for repair, interval in changes.items() if interval.low > 0 and not is_one_sided]
    candidate = max(rising, key=lambda repair: changes[repair].difference, default=None)
    test = None if candidate is None else test_split()
    confirmed = test.differences((candidate,), _LEVEL)[candidate] if test and candidate else None
    highest = max(changes.values(), key=lambda interval: interval.difference)
    items = items_of(task, test.n if test else development.n)
    told = _verdict(name, measure, changes, candidate, confirmed) + doubt(items, [confirmed or highest])
    if test and candidate and confirmed and confirmed.low > 0:
        others = {other: split.differences((candidate,), _LEVEL)[candidate] for other, split in test.others.items()}
        told += lowers(task, {"test": others}, besides=measure)
    return Selection(
        f"Leave {name} as it is: {ONE_SIDED}, so no choice can be made." if is_one_sided else told,
        name,
        task,
        measure,
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
    def written(interval: Interval) -> str:
        value, low, high = (shown(one, measure) for one in (interval.difference, interval.low, interval.high))
        return f"{value} ({low} to {high})"

    title = called(measure)
    if candidate is None or confirmed is None:
        best = max(changes, key=lambda repair: changes[repair].difference)
        return (
            f"Leave {name} as it is. On the development split no repair raises {title} beyond chance. "
            f"The best, {described(best)}, changes it by {written(changes[best])}, "
            f"with an interval that allows for {counted(len(changes), 'repair')}."
        )
    change = f"on the test split it changes {title} by {written(confirmed)}."
    if confirmed.low > 0:
        return f"Repair {name} with {described(candidate)}: {change}"
    return f"Leave {name} as it is. The development split chose {described(candidate)}, but {change}"


def _of_corpus(corpus: Corpus, settings: Settings) -> _Splits:
    queries = corpus.query_ids("test")
    part = next((name for name in ("dev", "train") if name in corpus.judged), "test")
    if part != "test":
        known = set(queries)
        asked = tuple(query for query in corpus.query_ids(part) if query not in known)
        described = f"the {len(asked)} queries of qrels/{part}.tsv; test: the {len(queries)} of qrels/test.tsv."
    else:
        drawn = np.random.Generator(np.random.PCG64(settings.seed)).permutation(len(queries))
        halves = (np.sort(half) for half in np.split(drawn, [len(queries) // 2]))
        asked, queries = (tuple(queries[at] for at in half) for half in halves)
        sizes = f"{len(asked)} and {len(queries)} queries, drawn with seed {settings.seed}"
        described = f"halves of {corpus.told('test')}, {sizes}."
    _enough(len(asked), "development queries")
    _enough(len(queries), "test queries")

    def evidence(part: str, queries: Sequence[str]) -> _Split:
        found = ranked(corpus, part, queries, settings)

        def split(measure: str, **more: Any) -> _Split:
            scores = {name: measures[measure] for name, measures in found.items()}
            return _Split(scores, float(scores[ORIGINAL].mean()), paired_bootstraps, settings, **more)

        return split("ndcg10", others={measure: split(measure) for measure in found[ORIGINAL]})

    start = "Development and test" if part == "test" else "Development"
    return (
        evidence(part, asked),
        partial(evidence, "test", queries),
        f"{start}: {described} Repairs are fitted on {corpus.repairs.fitted_on}.",
        corpus.repairs.notes,
        (*([f"Caution: {corpus.caution}"] if corpus.caution else []), *corpus.notes),
        {**corpus.provenance, "documents_sha256": corpus.documents_sha256}
        | _digests(corpus.texts_of(asked), corpus.texts_of(queries)),
    )


def _sts(encoding: Encoding, data: Path_, settings: Settings) -> _Splits:
    (benchmark,) = read_sts(data, sets=["stsb"])
    got = f"got {', '.join(benchmark.others) or 'the test part alone'}: nothing may be chosen on the test part"
    has_both = {"dev", "train"} <= benchmark.others.keys()
    expect(has_both, f"the training and development parts of the STS Benchmark in {data}, {got}")
    dev = benchmark.others["dev"]
    _enough(len(dev), "development pairs")
    _enough(len(benchmark), "test pairs")
    repairs = fitted_on_set(encoding, benchmark, settings)
    development = _of_pairs(scored(encoding, dev, repairs, settings)[1], settings)
    _enough(development.n, "development pairs of sentences with a direction")
    left_out = len(dev) - development.n
    note = f"{counted(left_out, 'development pair')} left out: a sentence has no direction."
    sizes = f"Development: {len(dev)} pairs of the STS Benchmark; test: {len(benchmark)}."
    return (
        development,
        lambda: _of_pairs(scored(encoding, benchmark, repairs, settings)[1], settings),
        f"{sizes} Repairs are fitted on {repairs.fitted_on}.",
        (*repairs.notes, *([note] if left_out else [])),
        encoding.notes(),
        encoding.provenance() | _digests(dev.texts(), benchmark.texts()),
    )


def _of_pairs(scores: Mapping[str, PairScores], settings: Settings) -> _Split:
    gold = scores[ORIGINAL].gold
    try:
        value = 100 * correlation(scores[ORIGINAL].cosine, gold, kind="spearman")
    except UndefinedMeasure as error:
        raise InputError(f"expected pairs whose similarities differ, got pairs that are all alike: {error}") from error
    usable = {name: one.cosine for name, one in scores.items() if name == ORIGINAL or varies(one.cosine)}
    return _Split(usable, value, partial(correlation_bootstraps, gold=gold), settings, unit=100)


def _digests(development: Sequence[str], test: Sequence[str]) -> dict[str, str]:
    return {"development_sha256": texts_digest(development), "test_sha256": texts_digest(test)}


def _enough(n: int, what: str) -> None:
    expect(n >= _LEAST, f"at least {_LEAST} {what} to choose a repair by, got {n}: leave the vectors as they are")
