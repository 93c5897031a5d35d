"""The files of a command: what it may write, the saved records it reads, and what it hands over."""

import sys
from enum import Enum
from inspect import BoundArguments, Parameter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter as Option

from uncone.atomic import check_apart, writable
from uncone.errors import InputError, UnconeError
from uncone.records import Diagnosis, Record


class Role(Enum):
    """What a command does with what an option names; it stands in the option's annotation."""

    SPEC = "reads rows or a model"
    READ = "reads a file or a folder"
    WRITE = "writes a file"
    OUT = "writes a file, or a part of one, or a new folder"
    KEEP = "reads and writes files in a folder"


Json = Annotated[Path | None, Role.WRITE, Option(help="Write the whole result to this file, for machines.")]
Html = Annotated[Path | None, Role.WRITE, Option(help="Write a page with pictures to this file, for people.")]
SkipNonfinite = Annotated[
    bool, Option(negative="", help="Leave out rows with NaN or inf instead of refusing them.")
]


def check_files(bound: BoundArguments) -> None:
    """Refuse a command that would write over what it reads, or could not write its files. It knows from the roles in the annotations.

    Raises:
        InputError: see `atomic.check_apart` and `atomic.writable`.
    """
    files = [Path(name) for name in _given(bound, Role.WRITE)]
    out = [Path(name) for name in _given(bound, Role.OUT)]
    targets, kept = (
        [*files, *(_whole(name) for name in out)],
        [Path(name) for name in _given(bound, Role.KEEP)],
    )
    if not targets and not kept:
        return
    specs, sources = _given(bound, Role.SPEC), [_whole(Path(name)) for name in _given(bound, Role.READ)]
    if specs:
        from uncone.model.reads import check_targets_apart

        check_targets_apart([*targets, *kept], specs, sources)
    else:
        check_apart([*targets, *kept], sources)
    check_apart(targets, kept)
    for file in files:
        writable(file)


def role_of(parameter: Parameter) -> Role | None:
    """The role of a command's parameter."""
    return next(
        (mark for mark in getattr(parameter.annotation, "__metadata__", ()) if isinstance(mark, Role)), None
    )


def _given(bound: BoundArguments, role: Role) -> list[Any]:
    """What the arguments of this role name."""
    values = [
        value for name, value in bound.arguments.items() if role_of(bound.signature.parameters[name]) is role
    ]
    return [
        one
        for value in values
        for one in (value if isinstance(value, tuple | list) else [value])
        if one is not None
    ]


def _whole(out: Path) -> Path:
    """The file of FILE#PART."""
    return out if out.exists() else out.with_name(out.name.partition("#")[0] or out.name)


def load_diagnosis(path: Path) -> Diagnosis:
    """The diagnosis in the file; where it holds none, which file of several that is."""
    try:
        return Diagnosis.load(path)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error


def hand_over(
    record: Record, *, json: Path | None = None, html: Path | None = None, shown: Record | None = None
) -> None:
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
            report.write_html(record, html)
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
    from uncone.records.text import visible

    for path in written:
        if path is not None:
            print(f"wrote {visible(str(path))}")  # noqa: T201 - the command's answer
