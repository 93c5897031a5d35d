"""A comparison in a terminal: the verdict, what was compared, and each matrix with its findings, numbers and bins."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uncone.records import TABLES, ComparedMeasure, ComparedSubject, Comparison, Subject, Table
from uncone.records.text import number, shortened
from uncone.report.comparison_words import (
    LETTERS,
    LITTLE,
    MARKS,
    change_words,
    difference_words,
    grouped_remarks,
    lettered,
    level_order,
    limits_of,
    measure_title,
    signed,
    tally,
    title_of,
)
from uncone.report.printer import Printer, sparkline, whole
from uncone.report.terminal import READINGS, WITHOUT_EFFECT

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    "better": "green", "worse": "red", "(better)": "dim", "(worse)": "dim", "unclear": "dim", "equal": "dim", "severe": "bold red", "warning": "yellow",
    "note": "blue", "healthy": "green",
}  # fmt: skip
_HEADINGS = {
    "tokens": "Tokens by frequency:",
    "without_effect": WITHOUT_EFFECT,
}
_LONGEST_NAME = 40


def print_comparison(comparison: Comparison, console: "Console | None" = None) -> None:
    """Print the comparison to `console`, by default the standard output; text from the record is never markup."""
    out = Printer(console)
    out.line(comparison.verdict, "bold")
    out.gap()
    for order, (letter, diagnosis) in enumerate(zip(LETTERS, comparison.diagnoses, strict=False)):
        said = "baseline" if order == 0 else tally(comparison, order)
        out.heading(
            letter, "bold", f"{shortened(diagnosis.name, _LONGEST_NAME)}{f': {said}' if said else ''}", ""
        )
    for subject in comparison.subjects:
        _subject(out, subject)
    out.gap()
    for note in comparison.notes:
        out.line(f"Note: {note}")
    if _has_intervals(comparison):
        out.line(comparison.intervals, "dim")


def _has_intervals(comparison: Comparison) -> bool:
    measures = [
        m
        for subject in comparison.subjects
        for m in (*subject.measures, *subject.tokens, *subject.without_effect)
    ]
    return any(change is not None and change.interval is not None for m in measures for change in m.changes)


def _subject(out: Printer, subject: ComparedSubject) -> None:
    out.gap()
    sizes = lettered(subject)
    out.heading(title_of(subject), "bold underline", _sizes(sizes), "")
    for note in subject.notes:
        out.line(f"Note: {note}")
    if len(sizes) < 2:
        return  # its own report says more
    _findings(out, subject)
    for table in TABLES:
        _measures(out, subject, table)
    _bins(out, subject)


def _sizes(sides: Sequence[tuple[str, Subject]]) -> str:
    """The sizes, said once where they are the same."""
    words = {letter: f"{whole(side.n)} x {whole(side.d)}, {side.dtype}" for letter, side in sides}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{letter} {size}" for letter, size in words.items())


def _findings(out: Printer, subject: ComparedSubject) -> None:
    found = level_order(subject)
    if found:
        out.gap()
        rows = [(cause, *(level or "-" for level in levels)) for cause, levels in found]
        out.table(("finding", *LETTERS[: len(subject.sides)]), (), rows, _STYLES)


def _measures(out: Printer, subject: ComparedSubject, table: Table) -> None:
    measures: Sequence[ComparedMeasure] = getattr(subject, table)
    if not measures:
        return
    out.gap()
    if table in _HEADINGS:
        out.line(_HEADINGS[table], "bold")
    if len(subject.sides) == 2:
        _pair_table(out, subject, measures, table)
    else:
        _wide_table(out, subject, measures, table)
    for letters, words, names in grouped_remarks(subject, measures, table=table):
        out.bullet(f"{letters}: {words} [{'; '.join(names)}]")


def _pair_table(
    out: Printer, subject: ComparedSubject, measures: Sequence[ComparedMeasure], table: Table
) -> None:
    """Two diagnoses: values, difference with its interval, and the distances to the isotropic value unless that is 0."""
    apart = any(
        distance not in (None, value)
        for m in measures
        for distance, value in zip(m.distances, m.values, strict=True)
    )
    numbers = ("A", "B", "B - A", "A off", "B off")
    columns = ("measure", "A", "B", "B - A", "", "A off", "B off")[: 7 if apart else 5]
    rows = [_pair_row(subject, measure, table)[: len(columns)] for measure in measures]
    out.table(columns, numbers, rows, _STYLES | {"B - A": "bold"})
    off = "Off: the value less what an isotropic cloud of the same size has. " if apart else ""
    out.line(f"{off}{LITTLE}", "dim")


def _pair_row(subject: ComparedSubject, measure: ComparedMeasure, table: Table) -> tuple[str, ...]:
    limits = limits_of(subject.readings(measure.name, table=table))
    change = measure.changes[1]
    difference = "-" if change is None else difference_words(change, ",")
    if change is not None and change.interval is not None:
        low, high = (signed(end, ",") for end in change.interval)
        difference += f" ({low} to {high})"
    values = (_optional(value, limits) for value in measure.values)
    distances = ("-" if distance is None else signed(distance, ",") for distance in measure.distances)
    return (measure_title(measure.name, table), *values, difference, change_words(change), *distances)


def _wide_table(
    out: Printer, subject: ComparedSubject, measures: Sequence[ComparedMeasure], table: Table
) -> None:
    """More than two: values, each with a mark for its direction against A."""
    columns = LETTERS[: len(subject.sides)]
    rows = []
    for measure in measures:
        readings = subject.readings(measure.name, table=table)
        marks = [MARKS.get(change_words(change), "") for change in measure.changes]
        cells = [_optional(value, limits_of(readings)) for value in measure.values]
        reference = next((reading.reference for reading in readings if reading is not None), None)
        shown = [
            f"{cell} {mark}".rstrip() if mark else f"{cell}  "
            for cell, mark in zip(cells, marks, strict=True)
        ]
        rows.append(
            (
                measure_title(measure.name, table),
                "-" if reference is None else number(reference, separator=","),
                *shown,
            )
        )
    out.table(
        ("measure", f"isotropic, {lettered(subject)[0][0]}", *columns),
        (*columns, f"isotropic, {lettered(subject)[0][0]}"),
        rows,
    )
    out.line("Against A: + better, - worse; no mark: little, unclear, or under a caution.", "dim")


def _optional(value: float | None, limits: tuple[float | None, float | None]) -> str:
    return "-" if value is None else number(value, limits=limits, separator=",")


def _bins(out: Printer, subject: ComparedSubject) -> None:
    """One line of bars for each reading and diagnosis, all of a reading on one scale."""
    sides = lettered(subject)
    grouped = [
        (letter, side.groups.bins) for letter, side in sides if side.groups is not None and side.groups.bins
    ]
    if len(grouped) < 2:
        return
    first = grouped[0][1]
    out.gap()
    out.line(
        f"By row id, from {whole(first[0].start)} to {whole(first[-1].stop - 1)}, one scale for each reading:",
        "bold",
    )
    for label, field in READINGS:
        _lines(out, label, [(letter, [getattr(group, field) for group in bins]) for letter, bins in grouped])


def _lines(out: Printer, label: str, lines: Sequence[tuple[str, Sequence[float | None]]]) -> None:
    known = [value for _, values in lines for value in values if value is not None]
    if not known:
        return
    for letter, values in lines:
        of_line = [value for value in values if value is not None]
        if of_line:
            low, high = (number(value, separator=",") for value in (min(of_line), max(of_line)))
            out.line(
                f"{label:<20}{letter}  {sparkline(values, out.bars, (min(known), max(known)))}  {low} to {high}"
            )
            label = ""
