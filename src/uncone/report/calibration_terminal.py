"""A calibration in a terminal: the answer, what was asked, thresholds, and how random pairs score."""

from typing import TYPE_CHECKING

from uncone.records import Calibration
from uncone.records import calibration_words as words
from uncone.records.text import number
from uncone.report.printer import Printer, sparkline

if TYPE_CHECKING:
    from rich.console import Console

_BARS = 40
_DRIFTS = {"none": "bold green", "small": "bold yellow", "large": "bold red", "unclear": "bold blue"}


def print_calibration(calibration: Calibration, console: "Console | None" = None) -> None:
    """Print the calibration to `console`, by default the standard output."""
    out = Printer(console)
    out.line(calibration.verdict, "bold")
    for fact in words.facts(calibration):
        out.line(fact, "dim")
    _drift(out, calibration)
    if calibration.meanings:
        out.gap()
        _table(out, words.meanings_table(calibration))
    out.gap()
    thresholds = words.thresholds_table(calibration)
    if thresholds.rows:
        _table(out, thresholds)
    for reason in words.reasons(calibration):
        out.line(reason)
    if calibration.labelled is not None:
        for line in words.labelled_lines(calibration.labelled):
            out.line(line)
    _histogram(out, calibration)
    for note in calibration.notes:
        out.line(f"Note: {note}")
    if calibration.function:
        out.gap()
        out.line("To paste:", "bold")
        for line in calibration.function.rstrip("\n").splitlines():
            out.code(line)


def _drift(out: Printer, calibration: Calibration) -> None:
    drift = calibration.drift
    if drift is None:
        return
    out.gap()
    out.heading(words.DRIFTS[drift.level].upper(), _DRIFTS[drift.level], f"against {drift.against}", "")
    for line in words.drift_lines(drift):
        out.line(line, indent=2)
    _table(out, words.drift_table(drift))


def _table(out: Printer, cells: words.Cells) -> None:
    out.table(cells.columns, cells.numbers, cells.rows, {"threshold": "bold"})


def _histogram(out: Printer, calibration: Calibration) -> None:
    """Two lines of bars over all scores: pairs, and the logarithm of pairs, in which the tail can be seen."""
    bins = calibration.histogram
    size = -(-len(bins.counts) // _BARS)
    counts = [sum(bins.counts[start : start + size]) for start in range(0, len(bins.counts), size)]
    logs = [None if count == 0 else float(count.bit_length()) for count in counts]
    low, high = number(bins.low), number(bins.edge(len(bins.counts)))
    out.gap()
    out.line(f"Random pairs by score, {low} to {high}:", "bold")
    out.line(
        f"{'pairs':<20}{sparkline([float(count) for count in counts], out.bars, (0.0, float(max(counts))))}"
    )
    out.line(f"{'logarithm of pairs':<20}{sparkline(logs, out.bars)}")
