"""The outcome of a task: numbers, differences from the original, and a verdict."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from uncone.arguments import check_seed
from uncone.errors import UndefinedMeasure
from uncone.evaluation.bootstrap import KINDS, correlation_bootstraps, correlation_x100, paired_bootstraps
from uncone.evaluation.pairs import PairScores
from uncone.evaluation.record import ORIGINAL, Interval, Price, called, digits_of, title_of
from uncone.records.text import counted, decimals, listing
from uncone.roles import Progress
from uncone.rows import Array
from uncone.transforms.names import described

PRIMARY = {"wordsim": "spearman_cosine", "sts": "spearman_cosine", "retrieval": "ndcg10", "ann": "recall10"}
SUBSET_MEAN = "spearman_cosine_subset_mean"
_NAMES = {"wordsim": "word similarity", "sts": "sentence similarity", "ann": "quantised search"}
PACKAGES = ("torch", "numpy", "transformers", "sentence-transformers", "faiss-cpu", "ir-measures", "scikit-learn")
ONE_SIDED = "only one side (queries or documents) seems repaired"
Numbers = Mapping[str, Any]
Differences = Mapping[str, Mapping[str, Mapping[str, Interval]]]  # [set][repair][measure]
_CHOOSE = " It was picked on these same {}, so its gain is optimistic: --method auto tests it on others."


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Settings:
    names: Sequence[str]  # of the repairs
    seed: int
    resamples: int
    progress: Progress
    quantisers: Sequence[Any] = ()  # of the documents of ann, by name

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def tick(self, what: str) -> Callable[[int, int], None]:
        return partial(self.progress, what)

    def differences(
        self, bootstrap: Callable[..., Sequence[Interval]], columns: Mapping[str, Array], *given: Any, **options: Any
    ) -> dict[str, Interval]:
        """The difference of every repair from the original, from columns of scores (items,)."""
        repairs = [name for name in columns if name != ORIGINAL]
        if ORIGINAL not in columns or not repairs:
            return {}
        others = np.stack([columns[name] for name in repairs])
        options |= {"seed": self.seed, "resamples": self.resamples}
        return dict(zip(repairs, bootstrap(columns[ORIGINAL], others, *given, **options), strict=True))


@dataclass
class TaskResult:
    """`results[set][repair]`, `differences[set][repair][measure]` and `prices[set][repair]`."""

    results: dict[str, dict[str, Numbers]] = field(default_factory=dict)
    differences: dict[str, dict[str, dict[str, Interval]]] = field(default_factory=dict)
    prices: dict[str, dict[str, Price]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    caution: str = ""
    is_one_sided: bool = False  # only queries or only documents seem repaired: no verdict

    def add_means(self, name: str, per_item: Mapping[str, Mapping[str, Array]], n: int, settings: Settings) -> None:
        self.results[name] = {
            repair: {measure: float(scores.mean()) for measure, scores in measures.items()} | {"n": n}
            for repair, measures in per_item.items()
        }
        changes = self.differences[name] = {repair: {} for repair in per_item if repair != ORIGINAL}
        for measure in per_item[ORIGINAL] if n > 1 else ():
            columns = {repair: one[measure] for repair, one in per_item.items() if measure in one}
            for repair, interval in settings.differences(paired_bootstraps, columns).items():
                changes[repair][measure] = interval


def correlation_differences(
    scores: Mapping[str, PairScores], settings: Settings, *, subset: Sequence[str] = ()
) -> dict[str, dict[str, Interval]]:
    """`[repair][measure]`: the correlation x 100 less the original's, where both are defined."""
    changes: dict[str, dict[str, Interval]] = {name: {} for name in scores if name != ORIGINAL}
    gold = scores[ORIGINAL].gold

    def add(measure: str, columns: Mapping[str, Array], **options: Any) -> None:
        with suppress(UndefinedMeasure):  # in resamples of few pairs all scores may be equal
            for name, interval in settings.differences(correlation_bootstraps, columns, gold, **options).items():
                changes[name][measure] = interval.scaled(100)

    for way in ("cosine", "inner"):
        columns = {name: getattr(one, way) for name, one in scores.items() if varies(gold)}
        columns = {name: column for name, column in columns.items() if varies(column)}
        for kind in KINDS:
            add(f"{kind}_{way}", columns, kind=kind)
    if len(set(subset)) > 1:
        columns = {name: one.cosine for name, one in scores.items() if subset_mean(one, subset) is not None}
        add(SUBSET_MEAN, columns, subsets=subset)
    return changes


def subset_mean(scores: PairScores, subset: Sequence[str]) -> float | None:
    """The mean of Spearman x 100 of the cosine within each subset; None where one is undefined."""
    places = (np.asarray(subset) == name for name in sorted(set(subset)))
    each = [correlation_x100(scores.cosine[here], scores.gold[here], kind="spearman") for here in places]
    defined = [value for value in each if value is not None]
    return _mean(defined) if len(defined) == len(each) else None


def varies(scores: Array) -> bool:
    return len(scores) >= 2 and bool(np.isfinite(scores).all()) and float(np.ptp(scores)) > 0


def verdict(name: str, task: str, measure: str, changes: Differences, items: str = "", *, is_full: bool = False) -> str:
    """Names the repair with the highest mean difference over the sets; if some rise on a set beyond chance, one of
    these. It was chosen by looking, so its intervals prove nothing. `items` counts the items of a single set ("300
    queries"). `is_full`: no value can be higher than the original's."""
    per_repair = dict[str, dict[str, Interval]]()
    for set_name, repairs in changes.items():
        for repair, measures in repairs.items():
            if measure in measures:
                per_repair.setdefault(repair, {})[set_name] = measures[measure]
    start = f"{name}, {_NAMES.get(task, task)}:"
    if not per_repair:
        return f"{start} no repair could be compared with the original."
    most = max(map(len, per_repair.values()))
    full = {repair: intervals for repair, intervals in per_repair.items() if len(intervals) == most}
    mean = {repair: _mean([one.difference for one in each.values()]) for repair, each in full.items()}
    highest = max(mean, key=mean.__getitem__)
    rose = [repair for repair, intervals in full.items() if any(one.low > 0 for one in intervals.values())]
    best = max(rose, key=mean.__getitem__, default=highest)
    if rose and mean[best] > 0:
        among, subject = "" if best == highest else " of those that rise beyond chance", described(best)
        if len(full) > 1:
            subject = f"of {len(full)} repairs, {subject} does best{among}. It"
        asked = {"retrieval": _CHOOSE.format("queries"), "sts": _CHOOSE.format("pairs")} if len(full) > 1 else {}
        lowered = lowers(task, {name: of.get(best, {}) for name, of in changes.items()}, besides=measure)
        return f"{start} {subject} {_change(full[best], measure)}.{lowered}{asked.get(task, '')}"
    if is_full:
        return f"{start} no repair helps: {called(measure)} is 1 already, the highest value. Leave it as it is."
    change = f"The best, {described(highest)}, {_change(full[highest], measure)}."
    if rose:
        return f"{start} no repair helps on average. {change}"
    return f"{start} no repair helps. {change}{doubt(items, full[highest].values())} Leave it as it is."


def lowers(task: str, changes: Mapping[str, Mapping[str, Interval]], *, besides: str) -> str:
    """A sentence that names every number except `besides` that a repair lowers beyond chance, else ""; from its changes
    `[set][measure]`."""
    fell = dict[str, dict[str, Interval]]()
    for set_name, measures in changes.items():
        for measure, one in measures.items():
            if one.high < 0 and measure != besides:
                fell.setdefault(measure, {})[set_name] = one

    def name(measure: str, by: Mapping[str, Interval]) -> str:
        if len(changes) > 1:
            return f"{title_of(measure, task)} on {listing(list(by))}"
        return f"{title_of(measure, task)} by {shown(-next(iter(by.values())).difference, measure).lstrip('+')}"

    return f" But beyond chance it lowers {listing([name(*one) for one in fell.items()])}." if fell else ""


def items_of(task: str, n: int) -> str:
    return counted(n, *(("pair",) if task in ("wordsim", "sts") else ("query", "queries")))


def doubt(items: str, intervals: Iterable[Interval]) -> str:
    """A sentence where none of the differences is beyond chance, else ""."""
    is_open = items and all(one.low <= 0 <= one.high for one in intervals)
    return f" {items} cannot separate this from no change." if is_open else ""


def shown(value: float, measure: str) -> str:
    """A difference with its sign, in the digits of its measure, or in more if they are needed to show it."""
    return f"{value:+.{decimals((value,), digits_of(measure))}f}"


def _change(intervals: Mapping[str, Interval], measure: str) -> str:
    sides = zip(*((one.difference, one.low, one.high) for one in intervals.values()), strict=True)
    mean, low, high = (shown(_mean(side), measure) for side in sides)
    start = f"changes {called(measure)} by {mean}"
    if len(intervals) == 1:
        return f"{start} (95%: {low} to {high})"
    rose = [name for name, one in intervals.items() if one.low > 0]
    fell = [name for name, one in intervals.items() if one.high < 0]
    moved = [f"{way} on {', '.join(names)}" for way, names in (("rises", rose), ("falls", fell)) if names]
    beyond = f". Beyond chance it {' and '.join(moved)}" if moved else ", on none beyond chance"
    # a mean deviates at most by the mean of deviations, whatever pairs the sets share
    return f"{start} on average over {len(intervals)} sets (95%, at the widest: {low} to {high}){beyond}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
