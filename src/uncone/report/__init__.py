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
    from uncone.report.edit_terminal import print_head_edit, print_token_edit
    from uncone.report.evaluation_terminal import print_evaluation
    from uncone.report.repair_terminal import print_repaired
    from uncone.report.selection_terminal import print_selection
    from uncone.report.terminal import print_diagnosis

__all__ = [
    "calibration_to_html",
    "comparison_to_html",
    "print_calibration",
    "print_check",
    "print_comparison",
    "print_diagnosis",
    "print_evaluation",
    "print_head_edit",
    "print_record",
    "print_repaired",
    "print_selection",
    "print_token_edit",
    "to_html",
    "write_calibration_html",
    "write_comparison_html",
    "write_html",
    "write_record_html",
]

# rich is loaded only by those who print
_PRINTERS = {
    "print_token_edit": "edit_terminal",
    "print_selection": "selection_terminal",
    "print_repaired": "repair_terminal",
    "print_head_edit": "edit_terminal",
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
