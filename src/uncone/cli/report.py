from functools import partial
from pathlib import Path
from typing import Annotated

from uncone.cli.answer import draw, hand_over, raise_first
from uncone.records.load import load_record
from uncone.roles import Role
from uncone.watching.watch import is_run, watch

Write = Annotated[Path | None, Role.WRITE]


def report(
    record: Annotated[Path, Role.READ], /, *, html: Write = None, markdown: Write = None, brief: bool = False
) -> None:
    """Print any saved record or a run again, or write its page or its Markdown, without the model.

    Args:
        record: A JSON file that diagnose, compare, check, repair, evaluate or calibrate wrote, or a run's file.
        html: Write a page to this file instead of printing.
        markdown: Write Markdown to this file instead of printing.
        brief: Print only the verdict, the findings and what to do (of a calibration, its thresholds too).
    """
    from uncone import report as reports

    loaded = watch(record) if is_run(record) else load_record(record)
    if html is None and markdown is None:
        hand_over(loaded, brief=brief)
        return
    failed = list[BaseException]()
    draw(failed, partial(reports.write_html, loaded), html)
    draw(failed, partial(reports.write_markdown, loaded), markdown)
    raise_first(failed)
