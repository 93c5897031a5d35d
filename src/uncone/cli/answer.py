import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from uncone.cli.failures import NotWrittenError, nobody_reads
from uncone.errors import InputError
from uncone.records.record import Record
from uncone.roles import DOWNLOADING, Progress

PROGRESS_AFTER_S, LINE_EVERY_S = 2.0, 30.0
_REDRAWN_AFTER_S, _IDLE = 1.0, 4  # seconds between reads, and how many times as long as a read
Path_ = str | Path | None
_File = Path | None


def judge(record: Record, json: _File, html: _File, *, beyond: bool, brief: bool = False) -> None:
    """Hand over a record, and end with status 2 if it is beyond its bar, even if it cannot be written."""
    failed = _handed_over(record, json, html, shown=record, brief=brief)
    if not beyond:
        raise_first(failed)
    elif failed:
        raise NotWrittenError(2) from failed[0]
    else:
        raise SystemExit(2)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A bar after two seconds of work; a line every half a minute if standard error is not a terminal."""
    if sys.stderr is None or sys.stderr.closed:
        yield None
        return
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            of_bytes = task.description.endswith(DOWNLOADING)
            return Text(f"{task.speed / 1e6:,.1f} MB/s" if of_bytes and task.speed else "")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    tasks = dict[str, Any]()

    def update(what: str, done: int, total: int) -> None:
        if what not in tasks:
            for task in tasks.values():
                bar.update(task, visible=False)
            tasks[what] = bar.add_task(what, total=total or None)
        bar.update(tasks[what], completed=done)

    starting = threading.Timer(PROGRESS_AFTER_S, bar.start)  # a single step that reports nothing may take longer
    starting.daemon = True
    starting.start()
    try:
        yield update
    finally:
        starting.cancel()
        starting.join()
        bar.stop()


def _lines() -> Progress:
    from uncone.records.text import visible

    began = said = time.monotonic()

    def update(what: str, done: int, total: int) -> None:
        nonlocal said
        if (now := time.monotonic()) - said >= LINE_EVERY_S:
            said, of = now, f", {done:,} of {total:,}" * bool(total)
            with suppress(OSError, ValueError):  # nobody reads it
                print(f"uncone: {visible(what)}{of}, after {now - began:.0f} s", file=sys.stderr, flush=True)  # noqa: T201

    return update


def follow(read: Callable[[], Any]) -> Any:
    """Draw what `read` returns again and again, until Ctrl-C; return the last. Waits for a file that is gone or being
    replaced."""
    from uncone.report.terminal import redraw

    latest = [read()]

    def documents() -> Iterator[Any]:
        trouble = ""
        while True:
            yield latest[0].live(time.time(), trouble)
            begun, trouble = time.monotonic(), ""
            try:
                latest[0] = read()
            except InputError as error:
                trouble = str(error)
            time.sleep(max(_REDRAWN_AFTER_S, _IDLE * (time.monotonic() - begun)))

    redraw(documents())
    return latest[0]


def hand_over(
    record: Record, *files: _File, shown: Record | None = None, written: Iterable[Path_] = (), brief: bool = False
) -> None:
    """Do each step even if others fail, and raise the first failure at the end."""
    raise_first(_handed_over(record, *files, shown=shown or record, written=written, brief=brief))


def _handed_over(
    record: Record,
    json: _File = None,
    html: _File = None,
    *,
    shown: Record,
    written: Iterable[Path_] = (),
    brief: bool = False,
) -> list[BaseException]:
    from uncone import report

    failed = list[BaseException]()
    saved = json is not None and attempt(failed, record.save, json)
    attempt(failed, partial(report.print_record, brief=brief), shown)
    attempt(failed, tell, json if saved else None)
    draw(failed, partial(report.write_html, record), html)
    attempt(failed, tell, *written)
    if sys.stdout is not None:
        attempt(failed, sys.stdout.flush)
    return failed


def draw(failed: list[BaseException], write: Callable[[Path], object], path: _File) -> None:
    if path is not None and attempt(failed, write, path):
        attempt(failed, tell, path)


def attempt(failed: list[BaseException], step: Callable[..., object], *arguments: object) -> bool:
    """Whether the step was done; else its error is in `failed`."""
    try:
        step(*arguments)
    except (Exception, SystemExit) as error:  # rich leaves the program at a closed pipe
        failed.append(error)
        return False
    return True


def raise_first(failed: Iterable[BaseException]) -> None:
    for error in failed:
        if not nobody_reads(error):
            raise error


def tell(*paths: Path_, did: str = "wrote") -> None:
    from uncone.records.text import visible

    for path in paths:
        if path is not None:
            print(f"{did} {visible(str(path))}")  # noqa: T201 - the command's answer
