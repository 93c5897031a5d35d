"""A selection in a terminal: the verdict, and what each repair did on the development split."""

from typing import TYPE_CHECKING

from uncone.records import Interval, Selection
from uncone.records.text import count, number
from uncone.report.printer import Printer

if TYPE_CHECKING:
    from rich.console import Console


def print_selection(selection: Selection, console: "Console | None" = None) -> None:
    """Print the selection to `console`, by default the standard output."""
    out = Printer(console)
    s = selection
    label, style = ("LEAVE IT", "bold yellow") if s.leaves_it else ("REPAIR IT", "bold green")
    out.heading(label, style, s.verdict, "bold")
    out.line(
        f"{s.task}, {s.measure}: {number(s.development_original)} as it is, over {count(s.development_n)} items",
        "dim",
    )
    if s.splits:
        out.line(s.splits, "dim")
    out.gap()
    order = sorted(s.development, key=lambda name: -s.development[name].difference)
    rows = [(f"{name} *" if name == s.candidate else name, *_cells(s.development[name])) for name in order]
    out.table(
        ("development split", "difference", "interval"),
        ("difference", "interval"),
        rows,
        {"difference": "bold"},
    )
    if s.test is not None:
        out.gap()
        rows = [(str(s.candidate), *_cells(s.test))]
        out.table(
            (f"test split, {count(s.test_n)} items", "difference", "interval"),
            ("difference", "interval"),
            rows,
            {"difference": "bold"},
        )
    for note in s.notes:
        out.bullet(note)


def _cells(interval: Interval) -> tuple[str, str]:
    return _signed(interval.difference), f"{_signed(interval.low)} to {_signed(interval.high)}"


def _signed(value: float) -> str:
    return number(value) if value <= 0 else f"+{number(value)}"
