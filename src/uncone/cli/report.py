"""`uncone report`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from uncone.cli.files import check_targets, tell
from uncone.records import Diagnosis


def report(
    diagnosis: Path,
    /,
    *,
    html: Annotated[
        Path | None, Parameter(help="Write the report with pictures to this file; without it, print to the terminal.")
    ] = None,
) -> None:
    """Turn a saved diagnosis into a report again, without the model.

    Parameters
    ----------
    diagnosis
        A file written by `uncone diagnose SPEC --json FILE`.
    """
    from uncone import report as reports

    check_targets(html, read=(diagnosis,))
    loaded = Diagnosis.load(diagnosis)
    if html is None:
        reports.print_diagnosis(loaded)
        return
    reports.write_html(loaded, html)
    tell(html)
