"""Any saved record, to the terminal or to a page."""

import os
from typing import TYPE_CHECKING

from uncone.errors import InputError
from uncone.records import Calibration, Check, Comparison, Evaluation, Record
from uncone.report.calibration_html import write_calibration_html
from uncone.report.comparison_html import write_comparison_html
from uncone.report.html import write_html

if TYPE_CHECKING:
    from rich.console import Console


def print_record(record: Record, console: "Console | None" = None) -> None:
    """Print a diagnosis, a comparison, a check, an evaluation or a calibration to `console`, by default the standard output."""
    from uncone.report.calibration_terminal import print_calibration
    from uncone.report.check_terminal import print_check
    from uncone.report.comparison_terminal import print_comparison
    from uncone.report.evaluation_terminal import print_evaluation
    from uncone.report.terminal import print_diagnosis

    if isinstance(record, Check):
        print_check(record, console)
    elif isinstance(record, Comparison):
        print_comparison(record, console)
    elif isinstance(record, Evaluation):
        print_evaluation(record, console)
    elif isinstance(record, Calibration):
        print_calibration(record, console)
    else:
        print_diagnosis(record, console)


def write_record_html(record: Record, path: str | os.PathLike[str]) -> None:
    """Write a diagnosis, a comparison or a calibration as one HTML page to `path`, atomically.

    Raises:
        InputError: the record is a check or an evaluation, which have no page; or `path` cannot be written.
    """
    if isinstance(record, Check | Evaluation):
        what = "a check" if isinstance(record, Check) else "an evaluation"
        raise InputError(f"expected a diagnosis, a comparison or a calibration to draw, got {what}, which has no page: print it instead")
    if isinstance(record, Comparison):
        write_comparison_html(record, path)
    elif isinstance(record, Calibration):
        write_calibration_html(record, path)
    else:
        write_html(record, path)
