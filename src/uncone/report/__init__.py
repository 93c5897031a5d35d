"""From a saved record to something to read: one self-contained HTML file, or the terminal. Never sees a tensor or a model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from uncone.report.any_record import print_record, write_record_html
from uncone.report.calibration_html import calibration_to_html, write_calibration_html
from uncone.report.comparison_html import comparison_to_html, write_comparison_html
from uncone.report.html import to_html, write_html

if TYPE_CHECKING:
    from uncone.report.calibration_terminal import print_calibration
    from uncone.report.check_terminal import print_check
    from uncone.report.comparison_terminal import print_comparison
    from uncone.report.evaluation_terminal import print_evaluation
    from uncone.report.terminal import print_diagnosis

__all__ = [
    "calibration_to_html",
    "comparison_to_html",
    "print_calibration",
    "print_check",
    "print_comparison",
    "print_diagnosis",
    "print_evaluation",
    "print_record",
    "to_html",
    "write_calibration_html",
    "write_comparison_html",
    "write_html",
    "write_record_html",
]

# rich is loaded only by those who print
_PRINTERS = {
    "print_calibration": "calibration_terminal",
    "print_check": "check_terminal",
    "print_comparison": "comparison_terminal",
    "print_diagnosis": "terminal",
    "print_evaluation": "evaluation_terminal",
}


def __getattr__(name: str) -> Any:
    if name in _PRINTERS:
        return getattr(import_module(f"uncone.report.{_PRINTERS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
