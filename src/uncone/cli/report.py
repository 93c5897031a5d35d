"""`uncone report`."""

from pathlib import Path
from typing import Annotated

from uncone.cli.answer import hand_over, tell
from uncone.cli.files import Role, Write
from uncone.records import load_record


def report(record: Annotated[Path, Role.READ], /, *, html: Write = None, markdown: Write = None) -> None:
    """Print any saved record again, or write its page or its Markdown, without the model.

    Args:
        record: A JSON file that diagnose, compare, check, repair, evaluate or calibrate wrote.
        html: Write a page to this file; else print.
        markdown: Write Markdown to this file; else print.
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
