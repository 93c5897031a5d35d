"""`uncone report`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from uncone.cli.files import check_targets, hand_over, tell
from uncone.records import load_record


def report(
    record: Path,
    /,
    *,
    html: Annotated[
        Path | None, Parameter(help="Write the report with pictures to this file; without it, print to the terminal.")
    ] = None,
) -> None:
    """Turn a saved diagnosis or comparison into a report again, without the model.

    Parameters
    ----------
    record
        A file written by `uncone diagnose`, `uncone compare` or `uncone check` with `--json FILE`.
    """
    from uncone import report as reports

    check_targets(html, read=(record,))
    loaded = load_record(record)
    if html is None:
        hand_over(loaded)
        return
    reports.write_record_html(loaded, html)
    tell(html)
