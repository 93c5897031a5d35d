"""How a command answers: a progress bar while it works, then its result, printed and written."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uncone.cli.failures import UntoldError
from uncone.errors import UnconeError
from uncone.records import Record

PROGRESS_AFTER_S = 2.0
BEYOND = 2
"""The exit status of a result that is beyond its bar."""
Path_ = str | Path | None


def answer(work: Callable[..., Record], json: Path | None, html: Path | None, *written: Path_) -> None:
    """Do the work under a progress bar, hand over its result, and name what else it wrote."""
    with progress_bar() as progress:
        record = work(progress=progress)
    hand_over(record, json, html)
    tell(*written)


def judge(record: Record, json: Path | None, html: Path | None, *, beyond: bool) -> None:
    """Hand over a record, and end with status 2 if it is beyond its bar, also where it cannot be written."""
    try:
        hand_over(record, json, html)
    except (OSError, UnconeError, SystemExit) as error:  # rich leaves the program at a closed pipe
        if not beyond:
            raise
        raise UntoldError(BEYOND) from error
    if beyond:
        raise SystemExit(BEYOND)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar on standard error after two seconds of work; None if standard error is no terminal."""
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    words = TextColumn("{task.description}", markup=False)
    bar = Progress(words, *columns, console=Console(stderr=True), transient=True)
    tasks = dict[str, Any]()

    def update(what: str, done: int, total: int) -> None:
        if what not in tasks:
            for task in tasks.values():
                bar.update(task, visible=False)
            tasks[what] = bar.add_task(what, total=total or None)
        bar.update(tasks[what], completed=done)

    # A timer, because a single step that tells nothing meanwhile may take longer than that.
    starting = threading.Timer(PROGRESS_AFTER_S, bar.start)
    starting.daemon = True
    starting.start()
    try:
        yield update
    finally:
        starting.cancel()
        starting.join()
        bar.stop()


def hand_over(
    record: Record, json: Path | None = None, html: Path | None = None, *, shown: Record | None = None
) -> None:
    """Write the record to its files, print it (or `shown`), and name the files. The work took minutes: a file
    that cannot be written is reported after the print, and a record that cannot be printed is in its file."""
    from uncone import report

    failed, written = None, list[Path]()
    try:
        if json is not None:
            record.save(json)
            written.append(json)
        if html is not None:
            report.write_html(record, html)
            written.append(html)
    except (OSError, UnconeError) as error:
        failed = error
    report.print_record(shown or record)
    tell(*written)
    if sys.stdout is not None:
        sys.stdout.flush()
    if failed is not None:
        raise failed


def tell_unwritten(out: Path_) -> None:
    """Say that a command that was to write `out` left it out, and why it did is printed above."""
    from uncone.records.text import visible

    print(f"nothing was written to {visible(str(out))}")  # noqa: T201 - the command's answer


def tell(*written: Path_) -> None:
    """Name the files that were written; a name may hold anything, also what no terminal should get."""
    from uncone.records.text import visible

    for path in written:
        if path is not None:
            print(f"wrote {visible(str(path))}")  # noqa: T201 - the command's answer
