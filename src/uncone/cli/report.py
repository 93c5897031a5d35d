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
        Path | None, Parameter(help="Write a page to this file, of a diagnosis, a comparison or a calibration; else print.")
    ] = None,
) -> None:
    """Print any saved record again, or draw its page, without the model.

    Parameters
    ----------
    record
        A file that a command wrote with `--json FILE`: diagnose, compare, check, repair, evaluate or calibrate.
    """
    from uncone import report as reports

    check_targets(html, read=(record,))
    loaded = load_record(record)
    if html is None:
        hand_over(loaded)
        return
    reports.write_record_html(loaded, html)
    tell(html)
