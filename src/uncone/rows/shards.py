"""Rows in the files that a glob or a folder names, here or in a store, and which files cannot be read."""

import glob
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from uncone.errors import InputError, first_line
from uncone.rows.base import Rows
from uncone.rows.parts import Engine, InThisProcess, JoinedRows, Part, Task
from uncone.rows.remote.address import Address, address_of, is_remote

_AT_ONCE = 16  # requests for headers
_GLOB = set("*?[")
Faults = tuple[tuple[int, str], ...]  # (the place of a part, why it cannot be read)


def is_glob(text: str) -> bool:
    return bool(_GLOB & set(text.partition("?")[0] if is_remote(text) else text))


def is_npy_folder(path: Path) -> bool:
    return path.is_dir() and not (path / "config.json").exists() and any(path.glob("[!_.]*.npy"))


def named_files(text: str) -> list[str]:
    """The files that a glob names, sorted; for a store, with its scheme. InputError: there are none."""
    if is_remote(text):
        address = address_of(text)
        if address.is_http and not address.of_hub:
            raise InputError(
                f"expected a store that lists files for {address.name}, got http: name the files, or use hf:// or s3://"
            )
        found = _in_store(address, text)
    else:
        found = sorted(
            name for name in glob.glob(text, recursive=True) if not os.path.basename(name).startswith(("_", "."))
        )
    if not found:
        shown = address_of(text).name if is_remote(text) else text
        raise InputError(
            f"expected files that {shown!r} matches, got none: check the folder, and quote the pattern in a shell"
        )
    return found


def _in_store(address: Address, text: str) -> list[str]:
    from uncone.rows.remote.store import asked, store_of

    store, path = store_of(Address(text, address.name))
    names = asked(address, lambda: store.glob(path))
    return sorted(store.unstrip_protocol(name) for name in names)


def joined(
    specs: Iterable[str], name: str, open_rows: Callable[[str], Rows], engine: Engine | None, *, skip_damaged: bool
) -> JoinedRows:
    """The rows of files. Each file is opened now for its header, and again where it is read. With `skip_damaged`, files
    that cannot be read are left out, which costs one pass. `notes` of the result name them."""

    def part_of(spec: str) -> Part | str:
        try:
            rows = open_rows(spec)
        except InputError as error:
            if not skip_damaged:
                raise
            return f"{_shown(spec)} ({first_line(error)})"
        return Part(partial(open_rows, spec), rows.name, rows.shape, rows.dtype)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(part_of, specs))
    parts, damaged = [one for one in found if isinstance(one, Part)], [one for one in found if isinstance(one, str)]
    if skip_damaged and parts:
        tasks = [Task(_faults, (part,), place) for place, part in enumerate(parts)]
        faults: Faults = (engine or InThisProcess()).fold(tasks, _both, lambda _: None)
        damaged += [f"{parts[place].name} ({why})" for place, why in faults]
        parts = [part for place, part in enumerate(parts) if place not in dict(faults)]
    if not parts:
        raise InputError(f"expected a readable shard of {name}, got none of {len(damaged)}: {damaged[0]}")
    rows = JoinedRows(parts, name, engine)
    if damaged:
        shown = "; ".join(damaged[:3]) + (f"; and {len(damaged) - 3} more" if len(damaged) > 3 else "")
        rows.notes = (f"{len(damaged):,} of {len(found):,} shards were left out because they cannot be read: {shown}.",)
    return rows


def _shown(spec: str) -> str:
    return address_of(spec).name if is_remote(spec) else spec


def _faults(rows: Rows, place: int) -> Faults:
    try:
        for block in rows.blocks():
            del block
    except InputError as error:
        return ((place, first_line(error)),)
    return ()


def _both(one: Faults, other: Faults) -> Faults:
    return one + other
