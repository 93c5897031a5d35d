"""`uncone report`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from uncone.cli.files import Role, hand_over, tell
from uncone.records import load_record


def report(
    record: Annotated[Path, Role.READ],
    /,
    *,
    html: Annotated[
        Path | None,
        Role.WRITE,
        Parameter(
            help="Write a page to this file, of a diagnosis, a comparison or a calibration; else print."
        ),
    ] = None,
) -> None:
    """Print any saved record again, or draw its page, without the model.

    Parameters
    ----------
    record
        A file that a command wrote with `--json FILE`: diagnose, compare, check, repair, evaluate or calibrate.
    """
    from uncone import report as reports

    loaded = load_record(record)
    if html is None:
        hand_over(loaded)
        return
    reports.write_record_html(loaded, html)
    tell(html)
