"""An evaluation in a terminal: the verdict, one table of repairs, and what is to be said of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uncone.records import ORIGINAL, Evaluation, Interval
from uncone.records.text import count, number
from uncone.report.printer import Printer

if TYPE_CHECKING:
    from rich.console import Console

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
    "wordsim_sim": "ws sim", "wordsim_rel": "ws rel", "simlex999": "simlex", "int8_uniform": "int8_u", "binary_hamming": "hamming",
}  # fmt: skip
"""Headings, so that the longest name of a repair still fits into 80 columns beside them."""
_MOST = 3
"""Tables of several sets; the JSON has the other numbers."""
_MARKS = "+ higher than the original, - lower, beyond chance (the interval leaves out 0); no mark: unclear."


def print_evaluation(evaluation: Evaluation, console: "Console | None" = None) -> None:
    """Print the evaluation to `console`, by default the standard output; text from the record is never markup."""
    out = Printer(console)
    out.line(evaluation.verdict, "bold")
    for task, sets in evaluation.results.items():
        measures = _measures(evaluation, task, sets)
        if len(sets) == 1:
            name = next(iter(sets))
            out.gap()
            out.heading(name, "bold underline", _n(sets[name], task), "")
            for measure in measures:
                _one_set(out, evaluation, task, name, measure)
        else:
            for measure in measures[:_MOST]:
                _many_sets(out, evaluation, task, measure)
            out.line(_MARKS, "dim")
    _prices(out, evaluation)
    out.gap()
    for note in evaluation.notes:
        out.line(f"Note: {note}")
    out.line(evaluation.intervals, "dim")


def _measures(evaluation: Evaluation, task: str, sets: Mapping[str, Any]) -> list[str]:
    """The one that the task is judged by first; no measure that says of every repair what another said."""
    first = str(evaluation.provenance.get("measure", ""))
    shown = _SHOWN_OF_PAPER if task == "wordsim" and evaluation.protocol == "paper" else _SHOWN.get(task, ())
    known = sorted(shown, key=lambda name: name != first)
    columns = dict[tuple[Any, ...], str]()
    for name in known:
        column = tuple(numbers.get(name) for repairs in sets.values() for numbers in repairs.values())
        if any(value is not None for value in column):
            columns.setdefault(column, name)
    return list(columns.values())


def _one_set(out: Printer, evaluation: Evaluation, task: str, name: str, measure: str) -> None:
    repairs, differences = evaluation.results[task][name], evaluation.differences.get(task, {}).get(name, {})
    rows = []
    for repair, numbers in repairs.items():
        interval = differences.get(repair, {}).get(measure)
        between = (
            ""
            if interval is None
            else f"{_signed(interval.low, measure)} to {_signed(interval.high, measure)}"
        )
        change = "" if interval is None else _signed(interval.difference, measure)
        if numbers.get(measure) is not None:
            rows.append((repair, _shown(numbers[measure], measure), change, between, _mark(interval)))
    out.gap()
    out.line(_TITLES.get(measure, measure), "bold")
    out.table(
        ("repair", "value", "change", "interval", ""),
        ("value", "change", "interval"),
        rows,
        {"+": "green", "-": "red"},
    )


def _many_sets(out: Printer, evaluation: Evaluation, task: str, measure: str) -> None:
    every = evaluation.results[task].items()
    sets = {
        name: repairs
        for name, repairs in every
        if any(one.get(measure) is not None for one in repairs.values())
    }
    rows = []
    for repair in evaluation.repairs():
        values = [repairs.get(repair, {}).get(measure) for repairs in sets.values()]
        if all(value is None for value in values):
            continue
        marks = [
            _mark(evaluation.differences.get(task, {}).get(name, {}).get(repair, {}).get(measure))
            for name in sets
        ]
        cells = [
            "-" if value is None else f"{_shown(value, measure, 1)}{mark or ' '}"
            for value, mark in zip(values, marks, strict=True)
        ]
        known = [value for value in values if value is not None]
        mean = _shown(sum(known) / len(known), measure, 1) if len(known) == len(values) else "-"
        rows.append((repair, *cells, mean))
    if not rows:
        return
    out.gap()
    out.line(_TITLES.get(measure, measure), "bold")
    counts = [next(iter(repairs.values())).get("n") for repairs in sets.values()]
    rows.append(("n", *("" if n is None else f"{count(n, separator=',')}" for n in counts), ""))
    headings = tuple(_SHORT.get(name, name) for name in sets)
    out.table(("repair", *headings, "mean"), (*headings, "mean"), rows, {})


def _prices(out: Printer, evaluation: Evaluation) -> None:
    """Seconds over all sets, one line: what the dearest and the others take."""
    fit, used = dict[str, float](), dict[str, float]()
    for prices in evaluation.prices.values():
        for repair, price in prices.items():
            fit[repair] = max(fit.get(repair, 0.0), price.fit_s)
            used[repair] = max(used.get(repair, 0.0), price.apply_s / max(price.applied_n, 1) * 1e6)
    if not fit:
        return
    dearest = max(fit, key=lambda repair: fit[repair])
    rest = [seconds for repair, seconds in fit.items() if repair != dearest]
    others = f", the others at most {number(max(rest), digits=2, separator=',')} s" if rest else ""
    slowest = max(used.values())
    applying = (
        f"; applying takes at most {number(slowest, digits=2, separator=',')} microseconds a vector"
        if slowest > 0
        else ""
    )
    out.gap()
    out.line(
        f"Price: {dearest} took {number(fit[dearest], digits=2, separator=',')} s to fit{others}{applying}.",
        "dim",
    )


def _n(repairs: Mapping[str, Mapping[str, Any]], task: str) -> str:
    n = repairs.get(ORIGINAL, {}).get("n")
    return (
        ""
        if n is None
        else f"{count(n, separator=',')} {'pairs' if task in ('wordsim', 'sts') else 'queries'}"
    )


def _mark(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return "+" if interval.low > 0 else "-" if interval.high < 0 else ""


def _digits(measure: str) -> int:
    return 2 if measure.startswith(("spearman", "pearson")) else 4


def _shown(value: float, measure: str, fewer: int = 0) -> str:
    return f"{value:.{_digits(measure) - fewer}f}"


def _signed(value: float, measure: str) -> str:
    return f"{value:+.{_digits(measure)}f}"
