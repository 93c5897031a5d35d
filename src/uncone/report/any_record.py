"""Any saved record, to the terminal or to a page."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from uncone.errors import InputError
from uncone.records import (
    Calibration,
    Check,
    Comparison,
    Diagnosis,
    Evaluation,
    HeadEdit,
    Record,
    Repaired,
    Selection,
    TokenEdit,
)
from uncone.report.calibration_html import write_calibration_html
from uncone.report.comparison_html import write_comparison_html
from uncone.report.html import write_html

if TYPE_CHECKING:
    from rich.console import Console

_PAGELESS: tuple[tuple[type[Record], str], ...] = (
    (Check, "a check"),
    (Evaluation, "an evaluation"),
    (Selection, "a selection"),
    (Repaired, "a repair"),
    (HeadEdit, "an edit of a head"),
    (TokenEdit, "an edit of tokens"),
)


def print_record(record: Record, console: "Console | None" = None) -> None:
    """Print any saved record to `console`, by default the standard output."""
    from uncone.report.calibration_terminal import print_calibration
    from uncone.report.check_terminal import print_check
    from uncone.report.comparison_terminal import print_comparison
    from uncone.report.edit_terminal import print_head_edit, print_token_edit
    from uncone.report.evaluation_terminal import print_evaluation
    from uncone.report.repair_terminal import print_repaired
    from uncone.report.selection_terminal import print_selection
    from uncone.report.terminal import print_diagnosis

    printers: tuple[tuple[type[Record], Callable[..., None]], ...] = (
        (Check, print_check),
        (Comparison, print_comparison),
        (Evaluation, print_evaluation),
        (Calibration, print_calibration),
        (Selection, print_selection),
        (Repaired, print_repaired),
        (HeadEdit, print_head_edit),
        (TokenEdit, print_token_edit),
        (Diagnosis, print_diagnosis),
    )
    next(show for kind, show in printers if isinstance(record, kind))(record, console)


def write_record_html(record: Record, path: str | os.PathLike[str]) -> None:
    """Write a diagnosis, a comparison or a calibration as one HTML page to `path`, atomically.

    Raises:
        InputError: the record is of another kind, which has no page; or `path` cannot be written.
    """
    what = next((what for kind, what in _PAGELESS if isinstance(record, kind)), None)
    if what is not None:
        raise InputError(
            f"expected a diagnosis, a comparison or a calibration to draw, got {what}, which has no page: print it instead"
        )
    if isinstance(record, Comparison):
        write_comparison_html(record, path)
    elif isinstance(record, Calibration):
        write_calibration_html(record, path)
    elif isinstance(record, Diagnosis):
        write_html(record, path)
