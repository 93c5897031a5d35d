"""The progress bar."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PROGRESS_AFTER_S = 2.0


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar on standard error, shown once the work has taken two seconds; None where nobody would see it."""
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
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
