"""Apply a fitted transformation to many files, each to a file of the same name in a folder, whole or not at all."""

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from uncone.atomic import writable
from uncone.errors import InputError, UnconeError
from uncone.roles import Path_, Ticks
from uncone.rows import Rows
from uncone.rows.open import split_part
from uncone.rows.parts import Engine, InThisProcess, JoinedRows, Task
from uncone.transforms.apply import Applied, check_out, repair_rows
from uncone.transforms.normalized import Repair


def check_folder(out: Path_, specs: Sequence[str], *, overwrite: bool) -> list[Path]:
    """The file in `out` for each shard. Raises InputError: names that occur twice, a folder that is read, that is a
    file, or that already has one of the files (unless `overwrite`)."""
    folder = Path(out)
    names = [os.path.basename(split_part(spec, names=True)[0].partition("?")[0]) for spec in specs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"expected shards with different names to write to {folder}, got {twice} twice: repair one folder at a time"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"expected a folder to write shards to, got the file {folder}: name a folder")
    if any(Path(spec).parent.resolve() == folder.resolve() for spec in specs if os.path.exists(spec)):
        raise InputError(
            f"expected another folder to write an output file other than the input, got {folder}: give a new name"
        )
    targets = [folder / name for name in names]
    there = [path for path in targets if path.exists()]
    if there and not overwrite:
        raise InputError(
            f"expected new files, got {there[0]} and {len(there) - 1} more that exist: name another folder, or say --overwrite"
        )
    writable(targets[0] if folder.exists() else folder)
    return targets


def repair_shards(
    rows: JoinedRows, targets: Sequence[Path], transformation: Repair, *, overwrite: bool, progress: Ticks = None
) -> Applied:
    """Write the transformed rows of each part of `rows` to its target, with the engine of these rows. If a target
    cannot be written, the others stay, and the error gives their number."""
    began = time.perf_counter()
    if len(rows.parts) < len(targets):
        got = f"got {len(targets) - len(rows.parts)} shards without finite rows: leave these files out"
        raise InputError(f"expected finite rows in each shard of {rows.name}, {got}")
    targets[0].parent.mkdir(parents=True, exist_ok=True)
    work = partial(_written, transformation, tuple(targets), overwrite)
    tasks = [Task(work, (part,), place) for place, part in enumerate(rows.parts)]
    engine: Engine = rows.engine or InThisProcess()
    try:
        done = engine.fold(tasks, _both, progress or (lambda _: None))
    except UnconeError as error:
        made = sum(path.exists() for path in targets)
        raise type(error)(f"{error}. {made} of {len(targets)} shards are written in {targets[0].parent}") from error
    first = done[0]
    whole = (sum(one.shape[0] for one in done), first.shape[1])
    return Applied(
        **vars(first)
        | {
            "path": first.path.parent,
            "shape": whole,
            "notes": tuple(dict.fromkeys(note for one in done for note in one.notes)),
            "seconds": time.perf_counter() - began,
            "zero_rows": sum(one.zero_rows for one in done),
        }
    )


def _written(
    transformation: Repair, targets: tuple[Path, ...], overwrite: bool, rows: Rows, place: int
) -> tuple[Applied, ...]:
    check_out(targets[place], rows, overwrite=overwrite, k=transformation.transform(rows).shape[1])
    return (repair_rows(rows, transformation, targets[place], overwrite=overwrite),)


def _both(one: tuple[Applied, ...], other: tuple[Applied, ...]) -> tuple[Applied, ...]:
    return one + other
