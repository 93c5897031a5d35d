"""From a saved record to something to read: one self-contained HTML file, or the terminal. Never sees a tensor or a model."""

from typing import TYPE_CHECKING

from uncone.report.html import to_html, write_html

if TYPE_CHECKING:
    from uncone.report.terminal import print_diagnosis

__all__ = ["print_diagnosis", "to_html", "write_html"]


def __getattr__(name: str) -> object:
    if name == "print_diagnosis":  # rich is loaded only by those who print
        from uncone.report.terminal import print_diagnosis

        return print_diagnosis
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
