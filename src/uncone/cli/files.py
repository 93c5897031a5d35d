"""The files of a command: what it may write, the saved records it reads, and what it hands over."""

import sys
from pathlib import Path

from uncone.errors import InputError, UnconeError
from uncone.records import Diagnosis, Record


def check_targets(*paths: Path | None, read: tuple[Path, ...] = ()) -> None:
    """Targets that cannot be written, or would replace a file that is to be `read`, are said before the work, not after it."""
    from uncone.atomic import resolved, writable

    targets = [writable(path) for path in paths if path is not None]
    if len(set(targets)) < len(targets):
        raise InputError(f"expected two files to write, got {targets[0].name} twice: the second would replace the first")
    for source in read:
        if targets and resolved(source) in targets:
            raise InputError(
                f"expected another file to write than those to read, got {source}: it would be replaced; give another name"
            )


def load_diagnosis(path: Path) -> Diagnosis:
    """The diagnosis in the file; where it holds none, which file of several that is."""
    try:
        return Diagnosis.load(path)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error


def hand_over(record: Record, *, json: Path | None = None, html: Path | None = None, shown: Record | None = None) -> None:
    """Write the record to the files that were asked for, print it (or `shown`), and name them. What cannot be printed is raised here, not at exit.

    What was found took minutes: a file that cannot be written is said only after it was printed, and what cannot be printed stands in the file.
    """
    from uncone import report

    failed, written = None, list[Path]()
    try:
        if json is not None:
            record.save(json)
            written.append(json)
        if html is not None:
            report.write_record_html(record, html)
            written.append(html)
    except (OSError, UnconeError) as error:
        failed = error
    report.print_record(record if shown is None else shown)
    tell(*written)
    if sys.stdout is not None:
        sys.stdout.flush()
    if failed is not None:
        raise failed


def tell(*written: Path | None) -> None:
    """Name the files that were written; a name may hold anything, also what no terminal should get."""
    from uncone.report.text import visible

    for path in written:
        if path is not None:
            print(f"wrote {visible(str(path))}")  # noqa: T201 - the command's answer
