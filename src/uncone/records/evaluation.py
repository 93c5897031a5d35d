"""The record of an evaluation: what tasks say of a model with and without each repair."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from uncone.errors import InputError
from uncone.records.blocks import Block, Bullets, Cell, Figure, Heading, Intervals, Table, Text
from uncone.records.record import Record
from uncone.records.text import count, number

ORIGINAL = "original"
"""The name of the vectors as they are, among the repairs."""
Task = Literal["wordsim", "sts", "retrieval", "ann"]
_TITLES = {
    "spearman_cosine": "Spearman x 100 of the cosine",
    "spearman_cosine_subset_mean": "Spearman x 100 of the cosine, mean over the subsets of each set",
    "spearman_inner": "Spearman x 100 of the inner product",
    "pearson_cosine": "Pearson x 100 of the cosine",
    "pearson_inner": "Pearson x 100 of the inner product",
    "ndcg10": "nDCG@10 of the cosine",
    "ndcg10_inner": "nDCG@10 of the inner product",
    "ndcg10_inner_documents": "nDCG@10 of the inner product, documents alone repaired",
    "recall100": "recall@100 of the cosine",
    "recall100_inner": "recall@100 of the inner product",
    "recall100_inner_documents": "recall@100 of the inner product, documents alone repaired",
    "recall10": "recall@10 of the cosine, against the original's exact ten",
    "recall10_own": "recall@10 of the cosine, against the repair's exact ten",
    "recall10_inner": "recall@10 of the inner product",
    "recall10_inner_documents": "recall@10 of the inner product, documents alone repaired",
}
_SHOWN = {
    "wordsim": ("spearman_cosine", "pearson_cosine", "spearman_inner", "pearson_inner"),
    "sts": ("spearman_cosine", "spearman_cosine_subset_mean", "spearman_inner"),
    "retrieval": ("ndcg10", "recall100", "ndcg10_inner", "ndcg10_inner_documents"),
    "ann": ("recall10", "recall10_own", "recall10_inner_documents", "recall10_inner"),
}  # fmt: skip
_SHOWN_OF_PAPER = ("pearson_cosine", "pearson_inner", "spearman_cosine", "spearman_inner")
"""The tables of Bis et al. have Pearson's correlation of the cosine and of the inner product."""
_SHORT = {
    "wordsim_sim": "ws sim", "wordsim_rel": "ws rel", "simlex999": "simlex", "int8_uniform": "int8_u",
    "binary_hamming": "hamming",
}  # fmt: skip
"""Headings, so that the longest name of a repair still fits into 80 columns beside them."""
_MOST = 3
"""Tables of several sets; the record has the other numbers."""
_MARKS = "+ higher than the original, - lower, beyond chance (the interval leaves out 0); no mark: unclear."


@dataclass(frozen=True)
class Interval:
    """A difference and its bootstrap interval, all in the unit of what was subtracted."""

    difference: float
    low: float
    high: float
    level: float = 0.95
    resamples: int = 0

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise InputError(
                f"expected an interval from low to high, got {self.low} to {self.high}: the file was edited"
            )

    def scaled(self, factor: float) -> "Interval":
        """The same in another unit, `factor` (positive) of which make one of this."""
        return dataclasses.replace(
            self, difference=self.difference * factor, low=self.low * factor, high=self.high * factor
        )  # fmt: skip


@dataclass(frozen=True)
class Price:
    """What a repair took: seconds to fit and to apply, and how many vectors each; `fitted_on` says which."""

    fit_s: float
    apply_s: float
    fitted_n: int
    applied_n: int
    fitted_on: str = ""


Results = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
"""task -> set -> repair -> name of a number -> the number."""
Differences = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Interval]]]]


@dataclass(frozen=True)
class Evaluation(Record):
    """The result of `evaluate`.

    `results[task][set][repair]` holds numbers by their names: correlations times 100 (`spearman_cosine`,
    `spearman_inner`, `pearson_cosine`, `pearson_inner`), shares from 0 to 1 (`ndcg10`, `recall100`,
    `recall10`), and `n`, how many pairs or queries; None where a number is undefined. `differences` has the
    same shape for every repair but the original: repair less original, paired, with an interval, in the same
    unit; not of `n`, nor of what is undefined. `prices[set][repair]` says what each repair took.
    """

    KIND: ClassVar[str] = "evaluation"
    SCHEMA: ClassVar[str] = "uncone.evaluation/1"
    HOW: ClassVar[str] = "uncone evaluate SPEC --task TASK --data DIR --json F"

    verdict: str
    name: str
    task: Task
    protocol: str
    results: Results
    differences: Differences = field(default_factory=dict)
    prices: Mapping[str, Mapping[str, Price]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    intervals: str = ""
    """How the intervals were made."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions, the encoder's kind and digest (of rows theirs), digests of the data, the seed, the `measure`
    of the verdict."""
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        for task, set_name, repair, numbers in self._cells():
            for key, value in numbers.items():
                if not _is_number(value):
                    raise InputError(
                        f"expected a finite number or null at results.{task}.{set_name}.{repair}.{key}, "
                        f"got {repr(value)[:40]}: the file was cut or edited"
                    )

    def sets(self) -> tuple[str, ...]:
        """The names of the sets, in their order."""
        return tuple(name for sets in self.results.values() for name in sets)

    def repairs(self) -> tuple[str, ...]:
        """The names of the repairs, the original among them, in their order."""
        return tuple(dict.fromkeys(repair for _, _, repair, _ in self._cells()))

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each number, with its difference to the original."""
        table = []
        for task, name, repair, numbers in self._cells():
            changes = self.differences.get(task, {}).get(name, {}).get(repair, {})
            for measure, value in numbers.items():
                change = changes.get(measure)
                table.append(
                    {"task": task, "set": name, "repair": repair, "measure": measure, "value": value,
                     "difference": change and change.difference, "low": change and change.low, "high": change and change.high}
                )  # fmt: skip
        return table

    def blocks(self) -> tuple[Block, ...]:
        """The verdict, a table of repairs for each measure, the price and the notes."""
        blocks: list[Block] = [Heading(self.verdict, 1), Text(self.name, "quiet")]
        for task, sets in self.results.items():
            measures = self._measures(task)
            if len(sets) == 1:
                name = next(iter(sets))
                blocks += [Heading(name, 2, about=_n(sets[name], task))]
                blocks += [block for measure in measures for block in self._one_set(task, name, measure)]
            else:
                blocks += [Heading(task, 2), Text(_MARKS, "quiet")]
                blocks += [table for measure in measures[:_MOST] for table in self._many_sets(task, measure)]
            if measures:
                blocks += self._chart(task, measures[0])
        if self.prices:
            blocks.append(Text(self._price(), "quiet"))
        blocks += [Heading("Notes"), Bullets(self.notes)] if self.notes else []
        return (*blocks, Text(self.intervals, "quiet"))

    def _measures(self, task: str) -> list[str]:
        """The one that the task is judged by first; no measure that says of every repair what another
        said."""
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

    def _one_set(self, task: str, name: str, measure: str) -> Iterator[Block]:
        rows = []
        for repair, numbers in self.results[task][name].items():
            change, digits = self._change(task, name, repair, measure), _digits(measure)
            if numbers.get(measure) is None:
                continue
            between = "" if change is None else f"{change.low:+.{digits}f} to {change.high:+.{digits}f}"
            moved = "" if change is None else f"{change.difference:+.{digits}f}"
            rows.append(
                (repair, Cell(f"{numbers[measure]:.{digits}f}", tone="strong"), moved, between, _mark(change))
            )
        columns = ("repair", "value", "change", "interval", "")
        yield Table(columns, tuple(rows), columns[1:4], _TITLES.get(measure, measure))

    def _many_sets(self, task: str, measure: str) -> Iterator[Block]:
        taken = self.results[task].items()
        sets = {
            name: repairs
            for name, repairs in taken
            if any(r.get(measure) is not None for r in repairs.values())
        }
        rows = []
        for repair in self.repairs():
            values = [repairs.get(repair, {}).get(measure) for repairs in sets.values()]
            known = [value for value in values if value is not None]
            if not known:
                continue
            digits = _digits(measure) - 1
            marks = [_mark(self._change(task, name, repair, measure)).text or " " for name in sets]
            cells = [
                "-" if v is None else f"{v:.{digits}f}{mark}" for v, mark in zip(values, marks, strict=True)
            ]
            rows.append(
                (
                    repair,
                    *cells,
                    f"{sum(known) / len(known):.{digits}f}" if len(known) == len(values) else "-",
                )
            )
        if rows:
            counts = [next(iter(repairs.values())).get("n") for repairs in sets.values()]
            rows.append(("n", *("" if n is None else count(n) for n in counts), ""))
            headings = (*(_SHORT.get(name, name) for name in sets), "mean")
            yield Table(("repair", *headings), tuple(rows), headings, _TITLES.get(measure, measure))

    def _chart(self, task: str, measure: str) -> list[Block]:
        """The change that each repair makes to the measure that the task is judged by, on each set."""
        charts: list[Intervals] = []
        for name in self.results[task]:
            changes = [
                (repair, self._change(task, name, repair, measure)) for repair in self.results[task][name]
            ]
            rows = tuple((repair, c.difference, c.low, c.high) for repair, c in changes if c is not None)
            if rows:
                called = "differences" if not charts else f"{name} differences"
                charts.append(Intervals(called, name, f"change of {_TITLES.get(measure, measure)}", rows))
        return [Figure("What each repair changes", tuple(charts), self.intervals)] if charts else []

    def _price(self) -> str:
        """Seconds over all sets: what the dearest repair and the others take."""
        fit, used = dict[str, float](), dict[str, float]()
        for prices in self.prices.values():
            for repair, price in prices.items():
                fit[repair] = max(fit.get(repair, 0.0), price.fit_s)
                used[repair] = max(used.get(repair, 0.0), price.apply_s / max(price.applied_n, 1) * 1e6)
        dearest = max(fit, key=lambda repair: fit[repair])
        rest = [seconds for repair, seconds in fit.items() if repair != dearest]
        others = f", the others at most {number(max(rest), digits=2)} s" if rest else ""
        slowest = number(max(used.values()), digits=2)
        applying = (
            f"; applying takes at most {slowest} microseconds a vector" if max(used.values()) > 0 else ""
        )
        return f"Price: {dearest} took {number(fit[dearest], digits=2)} s to fit{others}{applying}."

    def _cells(self, only: str = "") -> list[tuple[str, str, str, Mapping[str, Any]]]:
        return [
            (task, name, repair, numbers)
            for task, sets in self.results.items()
            for name, repairs in sets.items()
            for repair, numbers in repairs.items()
            if only in ("", task)
        ]


def _is_number(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _n(repairs: Mapping[str, Mapping[str, Any]], task: str) -> str:
    n = repairs.get(ORIGINAL, {}).get("n")
    return "" if n is None else f"{count(n)} {'pairs' if task in ('wordsim', 'sts') else 'queries'}"


def _mark(interval: Interval | None) -> Cell:
    if interval is None or interval.low <= 0 <= interval.high:
        return Cell("")
    return Cell("+", tone="better") if interval.low > 0 else Cell("-", tone="worse")


def _digits(measure: str) -> int:
    return 2 if measure.startswith(("spearman", "pearson")) else 4
