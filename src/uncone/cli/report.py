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
    html: Annotated[Path | None, Role.WRITE, Parameter(help="Write a page to this file; else print.")] = None,
    markdown: Annotated[
        Path | None, Role.WRITE, Parameter(help="Write Markdown to this file; else print.")
    ] = None,
) -> None:
    """Print any saved record again, or write its page or its Markdown, without the model.

    Parameters
    ----------
    record
        A file that a command wrote with `--json FILE`: diagnose, compare, check, repair, evaluate or calibrate.
    """
    from uncone import report as reports

    loaded = load_record(record)
    if html is None and markdown is None:
        hand_over(loaded)
        return
    if html is not None:
        reports.write_html(loaded, html)
    if markdown is not None:
        reports.write_markdown(loaded, markdown)
    tell(html, markdown)
