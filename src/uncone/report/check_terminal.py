"""A check in a terminal: one sentence, and one line a bar."""

from typing import TYPE_CHECKING

from uncone.records import Bar, Check
from uncone.records.text import number
from uncone.report.printer import Printer

if TYPE_CHECKING:
    from rich.console import Console

_KINDS = {"max": "at most", "min": "at least"}
_STYLES = {"ok": "green", "BEYOND": "bold red"}


def print_check(check: Check, console: "Console | None" = None) -> None:
    """Print the check to `console`, by default the standard output; no number is rounded onto a bar it did not reach."""
    out = Printer(console)
    out.line(summary(check), "bold")
    out.table(("", "number", "value", "bar"), ("value",), [_row(bar) for bar in check.bars], _STYLES)


def summary(check: Check) -> str:
    """The result in one sentence."""
    beyond = [bar.name for bar in check.bars if not bar.ok]
    total = len(check.bars)
    if not beyond:
        return f"{check.name} is within {'its bar' if total == 1 else f'all {total} bars'}."
    others = "" if len(beyond) < total else "its bar" if total == 1 else f"all {total} bars"
    return f"{check.name} is beyond {others or f'{len(beyond)} of {total} bars'}: {', '.join(dict.fromkeys(beyond))}."


def _row(bar: Bar) -> tuple[str, str, str, str]:
    value = number(bar.value, limits=(bar.bar, None), separator="")
    return "ok" if bar.ok else "BEYOND", bar.name, value, f"{_KINDS[bar.kind]} {bar.bar!r}"
