"""The records of an evaluation of repairs, and of the choice of one."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any, ClassVar, Literal

from uncone.errors import UnknownName, expect, nearest
from uncone.records.blocks import Block, Blocks, Bullets, Cell, Figure, Heading, Intervals, Row, Table, Text, Tone
from uncone.records.brief import part
from uncone.records.layout import caution, section, shown
from uncone.records.record import Record
from uncone.records.text import count, decimals, listing, number, signed

ORIGINAL = "original"  # the vectors as they are, among the repairs
Task = Literal["wordsim", "sts", "retrieval", "ann"]
_NUMBERS = {"spearman": "Spearman x 100", "pearson": "Pearson x 100", "ndcg10": "nDCG@10"}
_NUMBERS |= {"recall100": "recall@100", "recall10": "recall@10"}
_KINDS = {
    "": " of the cosine",
    "cosine": " of the cosine",
    "cosine_subset_mean": " of the cosine, mean over the subsets of each set",
    "inner": " of the inner product",
    "inner_documents": " of the inner product, only documents repaired",
    "own": " of the cosine, against the exact ten under the repair",
}
_SHOWN = {
    "wordsim": ("spearman_cosine", "pearson_cosine", "spearman_inner", "pearson_inner"),
    "sts": ("spearman_cosine", "spearman_cosine_subset_mean", "spearman_inner"),
    "retrieval": ("ndcg10", "recall10", "recall100", "ndcg10_inner", "ndcg10_inner_documents"),
    "ann": ("recall10", "recall10_own", "recall10_inner_documents", "recall10_inner"),
}
_SHOWN_OF_PAPER = ("pearson_cosine", "pearson_inner", "spearman_cosine", "spearman_inner")  # as in Bis et al.'s tables
_SHORT = {"wordsim_sim": "ws sim", "wordsim_rel": "ws rel", "simlex999": "simlex"}
_SHORT |= {"int8_uniform": "int8_u", "binary_hamming": "hamming"}
"""Headings that leave room for the longest name of a repair in 80 columns."""
_MARKS = "+ higher than the original, - lower, beyond chance (the interval excludes 0). No mark: unclear."
_CHOICES: dict[bool, tuple[str, Tone]] = {True: ("LEAVE IT", "warning"), False: ("REPAIR IT", "healthy")}


@part
class Interval:
    difference: float  # repair minus original, in the unit of the number
    low: float  # lower limit
    high: float  # upper limit
    level: float = 0.95  # share of resampled differences inside
    resamples: int = 0  # how many

    def __post_init__(self) -> None:
        got = f"got {self.low} to {self.high}: the file was edited"
        expect(self.low <= self.high, f"an interval from low to high, {got}")

    def scaled(self, factor: float) -> "Interval":
        """The same interval in another unit: `factor` (positive) of the new unit make one of this."""
        return replace(self, difference=self.difference * factor, low=self.low * factor, high=self.high * factor)


@part
class Price:
    fit_s: float  # seconds to fit
    apply_s: float  # seconds to apply
    fitted_n: int  # vectors it was fitted on
    applied_n: int  # vectors it was applied to
    fitted_on: str = ""  # which vectors it was fitted on


Results = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
"""task -> set -> repair -> name of a number -> the number."""
Differences = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Interval]]]]


@dataclass(frozen=True)
class Evaluation(Record):
    """The result of `evaluate`.

    `results[task][set][repair]` holds numbers by their names: correlations times 100 (`spearman_cosine`,
    `spearman_inner`, `pearson_cosine`, `pearson_inner`), shares from 0 to 1 (`ndcg10`, `recall100`, `recall10`), and
    `n`, the pairs or queries. `differences` are repair minus original, paired, in the same unit; `n` and undefined
    numbers have none."""

    verdict: str  # the result in one sentence
    name: str  # of the model or file
    task: Task  # `wordsim`, `sts`, `retrieval` or `ann`
    protocol: str  # `paper` or `field` for `wordsim`, else empty
    results: Results  # `results[task][set][repair][name]`: a number, or null where it is undefined
    differences: Differences = field(default_factory=dict)  # the same, without the original: an `Interval`
    prices: Mapping[str, Mapping[str, Price]] = field(default_factory=dict)  # `prices[set][repair]`: a `Price`
    notes: tuple[str, ...] = ()  # what was left out, what repairs were fitted on
    intervals: str = ""  # how the intervals were made
    # versions, the encoder and its digest (for rows, theirs), digests of the data, the seed, and the `measure` of the
    # verdict
    provenance: Mapping[str, Any] = field(default_factory=dict)
    caution: str = ""  # why the scores may mean little: only one side of your own vectors seems repaired

    def __post_init__(self) -> None:
        for task, name, repair, numbers in self._cells():
            for key, value in numbers.items():
                is_real = isinstance(value, int | float) and not isinstance(value, bool)
                where = f"results.{task}.{name}.{repair}.{key}, got {repr(value)[:40]}: cut or edited?"
                expect(value is None or (is_real and math.isfinite(value)), f"a finite number or null at {where}")

    def sets(self) -> tuple[str, ...]:
        return tuple(name for sets in self.results.values() for name in sets)

    def repairs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(repair for _, _, repair, _ in self._cells()))

    def find(self, name: str) -> tuple[str, float | None]:
        """A number and its whole name: SET.REPAIR.MEASURE, or SET.REPAIR.MEASURE.low for an end of its difference.

        You may leave out the set if there is only one, and the repair for vectors as they are. Case, "@", "-" and "_"
        do not matter, and "spearman" is Spearman of the cosine. InputError: no such number, or several sets have it."""
        named, short = dict[str, float | None](), dict[str, dict[str, float | None]]()
        for task, of, repair, numbers in self._cells():
            for measure, value in numbers.items():
                change = self._change(task, of, repair, measure)
                ends = {f".{end}": getattr(change, end) for end in ("difference", "low", "high")} if change else {}
                for end, of_it in {"": value, **ends}.items():
                    full = f"{of}.{repair}.{measure}{end}"
                    named[full] = of_it
                    starts = (f"{of}.{repair}.", f"{repair}.", *([f"{of}.", ""] if repair == ORIGINAL else []))
                    for start, one in product(starts, (measure, measure.removesuffix("_cosine"))):
                        short.setdefault(_folded(f"{start}{one}{end}"), {})[full] = of_it
        found = {name: named[name]} if name in named else short.get(_folded(name), {})
        if len(found) == 1:
            return next(iter(found.items()))
        if found:
            listed = listing([full.replace(f".{ORIGINAL}.", ".") for full in [*found][:3]])
            got = f"got {name!r}, which {len(found)} sets have"
            raise UnknownName(f"expected a number of one set, {got}: name a set, as in {listed}")
        own = dict.fromkeys(measure for _, _, repair, of in self._cells() if repair == ORIGINAL for measure in of)
        otherwise = f"names are MEASURE, REPAIR.MEASURE and SET.REPAIR.MEASURE, with the measures {listing(list(own))}"
        raise UnknownName(
            f"expected a number of this evaluation, got {name!r}: {nearest(name, [*own, *named], otherwise)}"
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {"task": task, "set": name, "repair": repair, "measure": measure, "value": value}
            | {end: change and getattr(change, end) for end in ("difference", "low", "high")}
            for task, name, repair, numbers in self._cells()
            for measure, value in numbers.items()
            for change in [self._change(task, name, repair, measure)]
        ]

    def blocks(self) -> Blocks:
        return shown(
            Heading(self.verdict, 1),
            caution(self.caution),
            Text(self.name, "quiet"),
            chain.from_iterable(map(self._task, self.results)),
            Text(self._price(), "quiet"),
            section("Notes", Bullets(self.notes)),
            Text(self.intervals, "quiet"),
        )

    def _task(self, task: str) -> Iterator[Block]:
        sets, measures = self.results[task], self._measures(task)
        if len(sets) == 1:
            ((name, repairs),) = sets.items()
            n, items = repairs.get(ORIGINAL, {}).get("n"), "pairs" if task in ("wordsim", "sts") else "queries"
            yield Heading(name, 2, about="" if n is None else f"{count(n)} {items}")
            yield Text(_MARKS, "quiet")
            yield from (self._one_set(task, name, measure) for measure in measures)
        else:
            yield Heading(task, 2)
            yield Text(_MARKS, "quiet")
            yield from (self._many_sets(task, measure) for measure in measures[:3])
        if measures:
            yield self._chart(task, measures[0])

    def _measures(self, task: str) -> list[str]:
        """The measures to show, the task's own first; none whose values repeat those of an earlier measure."""
        first = str(self.provenance.get("measure", ""))
        shown = _SHOWN_OF_PAPER if task == "wordsim" and self.protocol == "paper" else _SHOWN.get(task, ())
        columns = dict[tuple[Any, ...], str]()
        for name in sorted(shown, key=lambda name: name != first):
            values = tuple(numbers.get(name) for _, _, _, numbers in self._cells(task))
            if any(value is not None for value in values):
                columns.setdefault(values, name)
        return list(columns.values())

    def _change(self, task: str, name: str, repair: str, measure: str) -> Interval | None:
        return self.differences.get(task, {}).get(name, {}).get(repair, {}).get(measure)

    def _one_set(self, task: str, name: str, measure: str) -> Table:
        rows, digits = [], digits_of(measure)
        for repair, numbers in self.results[task][name].items():
            change, difference, between = self._change(task, name, repair, measure), "", ""
            if change is not None:
                fine = decimals((change.low, change.high), digits) if _mark(change).text else digits
                difference = f"{change.difference:+.{digits}f}"
                between = f"{change.low:+.{fine}f} to {change.high:+.{fine}f}"
            if (value := numbers.get(measure)) is not None:
                rows.append((repair, Cell(f"{value:.{digits}f}", tone="strong"), difference, between, _mark(change)))
        columns = ("repair", "value", "change", "interval", "")
        return Table(columns, tuple(rows), columns[1:4], title_of(measure, task))

    def _many_sets(self, task: str, measure: str) -> Table:
        taken = self.results[task].items()
        sets = {name: of for name, of in taken if any(r.get(measure) is not None for r in of.values())}
        rows, digits = [], digits_of(measure) - 1
        for repair in self.repairs():
            values = {name: repairs.get(repair, {}).get(measure) for name, repairs in sets.items()}
            known = [value for value in values.values() if value is not None]
            if known:
                marks = (_mark(self._change(task, name, repair, measure)).text or " " for name in sets)
                marked = zip(values.values(), marks, strict=True)
                cells = ("-" if value is None else f"{value:.{digits}f}{mark}" for value, mark in marked)
                mean = f"{sum(known) / len(known):.{digits}f}" if len(known) == len(values) else "-"
                rows.append((repair, *cells, mean))
        if rows:
            counts = (next(iter(repairs.values())).get("n") for repairs in sets.values())
            rows.append(("n", *("" if n is None else count(n) for n in counts), ""))
        headings = (*(_SHORT.get(name, name) for name in sets), "mean")
        return Table(("repair", *headings), tuple(rows), headings, title_of(measure, task))

    def _chart(self, task: str, measure: str) -> Figure:
        charts, what = list[Intervals](), f"change of {title_of(measure, task)}"
        for name, repairs in self.results[task].items():
            changes = ((repair, self._change(task, name, repair, measure)) for repair in repairs)
            if rows := tuple((repair, c.difference, c.low, c.high) for repair, c in changes if c is not None):
                charts.append(Intervals(f"{name} differences" if charts else "differences", name, what, rows))
        return Figure("What each repair changes", tuple(charts), self.intervals)

    def _price(self) -> str:
        fit, slowest = dict[str, float](), 0.0
        for repair, price in chain.from_iterable(prices.items() for prices in self.prices.values()):
            fit[repair] = max(fit.get(repair, 0.0), price.fit_s)
            slowest = max(slowest, price.apply_s / max(price.applied_n, 1) * 1e6)
        if not fit:
            return ""
        dearest, *rest = sorted(fit, key=lambda repair: -fit[repair])
        others = f", the others at most {number(fit[rest[0]], digits=2)} s" if rest else ""
        most = number(slowest, digits=2)
        applying = f"; applying takes at most {most} microseconds per vector" if slowest > 0 else ""
        return f"Price: {dearest} took {number(fit[dearest], digits=2)} s to fit{others}{applying}."

    def _cells(self, only: str = "") -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
        for task, sets in self.results.items():
            for name, repairs in sets.items() if only in ("", task) else ():
                yield from ((task, name, repair, numbers) for repair, numbers in repairs.items())


def _folded(name: str) -> str:
    return "".join(character for character in name.casefold() if character not in "@-_ ")


def _mark(interval: Interval | None) -> Cell:
    if interval is None or interval.low <= 0 <= interval.high:
        return Cell("")
    return Cell("+", tone="better") if interval.low > 0 else Cell("-", tone="worse")


def called(measure: str) -> str:
    return _NUMBERS[measure.partition("_")[0]]


def title_of(measure: str, task: str) -> str:
    if measure == "recall10" and task == "ann":
        return "recall@10 of the cosine, against the original's exact ten"
    number, _, kind = measure.partition("_")
    return _NUMBERS[number] + _KINDS[kind] if number in _NUMBERS and kind in _KINDS else measure


def digits_of(measure: str) -> int:
    return 2 if measure.startswith(("spearman", "pearson")) else 4


@dataclass(frozen=True)
class Selection(Record):
    """The decision of `select_repair`; differences are in the unit of `measure`."""

    HOW: ClassVar[str] = "uncone repair SPEC OUT --method auto --json F"
    verdict: str  # the decision in one sentence
    name: str  # of the model
    task: str  # `retrieval` or `sts`
    measure: str  # `ndcg10` or `spearman_cosine`
    chosen: str  # a repair, or `original`: leave the vectors as they are
    candidate: str | None  # what the development split chose
    development_original: float  # the original on the development split
    development: Mapping[str, Interval]  # by repair, an `Interval` whose level is raised for the number of repairs
    development_n: int  # items of the split
    test_original: float | None = None  # the original on the test split
    test: Interval | None = None  # the candidate on the test split, at 95%
    test_n: int = 0  # items of the split
    splits: str = ""  # which items each split holds, and what repairs were fitted on
    notes: tuple[str, ...] = ()  # what was left out
    # versions, the encoder and its digest, digests of the data, the seed, and how many resamples
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def leaves_it(self) -> bool:
        return self.chosen == ORIGINAL

    def blocks(self) -> Blocks:
        label, tone = _CHOICES[self.leaves_it]
        original = f"{self.task}, {self.measure}: {number(self.development_original)} as it is"
        tried = sorted(self.development.items(), key=lambda item: -item[1].difference)
        rows = tuple(_row(f"{name} *" if name == self.candidate else name, interval) for name, interval in tried)
        tested = () if self.test is None else (_row(str(self.candidate), self.test),)
        columns = ("difference", "interval")
        drawn = tuple((name, i.difference, i.low, i.high) for name, i in tried)
        chart = Intervals("differences", "Development split", f"difference of {self.measure}", drawn)
        return shown(
            Heading(self.verdict, 1, label, tone),
            Text(f"{original}, over {count(self.development_n)} items", "quiet"),
            Text(self.splits, "quiet"),
            Table(("development split", *columns), rows, columns),
            Table((f"test split, {count(self.test_n)} items", *columns), tested, columns),
            Figure("What each repair changes", (chart,) if drawn else ()),
            Bullets(self.notes),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        splits = [("development", name, interval) for name, interval in self.development.items()]
        splits += [("test", str(self.candidate), self.test)] if self.test is not None else []
        kept = ("difference", "low", "high", "level")
        return [{"split": split, "repair": name} | {key: getattr(i, key) for key in kept} for split, name, i in splits]


def _row(name: str, i: Interval) -> Row:
    return name, Cell(signed(i.difference), tone="strong"), f"{signed(i.low)} to {signed(i.high)}"
