"""A repair in a terminal: the sentence, both sides of the measures, what it was fitted on, and what is to be known of it."""

from typing import TYPE_CHECKING

from uncone.records import Measurement, Repaired
from uncone.records.text import better, count, number, title
from uncone.records.wording import plural
from uncone.report.printer import Printer
from uncone.report.selection_terminal import print_selection

if TYPE_CHECKING:
    from rich.console import Console

_SHORT = 12
_GAINS = {
    True: ("BETTER", "bold green"),
    False: ("LEAVE IT", "bold yellow"),
    None: ("NOT MEASURED", "bold blue"),
}


def print_repaired(repaired: Repaired, console: "Console | None" = None) -> None:
    """Print the repair to `console`, by default the standard output; first what chose it, where a task did."""
    out = Printer(console)
    if repaired.selection is not None:
        print_selection(repaired.selection, out.console)
        out.gap()
    label, style = _GAINS[repaired.gains]
    out.heading(label, style, repaired.verdict, "bold")
    for fact in _facts(repaired):
        out.line(fact, "dim")
    if repaired.before:
        out.gap()
        rows = [_row(before, after) for before, after in zip(repaired.before, repaired.after, strict=True)]
        out.table(
            ("measure", "before", "after", "isotropic", "better"),
            ("before", "after", "isotropic"),
            rows,
            {"after": "bold"},
        )
    if repaired.notes:
        out.gap()
    for note in repaired.notes:
        out.bullet(note)


def _facts(repaired: Repaired) -> list[str]:
    """What was written, and what the transformation was fitted on."""
    r = repaired
    what = (
        f"{count(r.n)} {plural(r.n, 'row')} of {count(r.k)} {plural(r.k, 'column')}, {r.dtype}"
        if r.kind == "vectors"
        else "an encoder that loads without uncone"
    )
    facts = [f"{r.out}: {what}"]
    if r.fitted is not None:
        digest = "" if r.fitted.sha256 is None else f", sha256 {r.fitted.sha256[:_SHORT]}..."
        weighted = "" if r.fitted.weights is None else ", weighted"
        facts.append(
            f"{r.method}, fitted on {r.fitted.name} ({count(r.fitted.n)} x {count(r.fitted.d)}{weighted}{digest})"
        )
    if r.before:
        facts.append(
            f"measured on {count(r.measured)} {plural(r.measured, 'row' if r.kind == 'vectors' else 'sentence')}, before and after"
        )
    return facts


def _row(before: Measurement, after: Measurement) -> tuple[str, str, str, str, str]:
    reference = "" if after.reference is None else number(after.reference, limits=after.range)
    return title(before.name), _value(before), _value(after), reference, better(before.better)


def _value(measurement: Measurement) -> str:
    return "undefined" if measurement.value is None else number(measurement.value, limits=measurement.range)
