"""Text files of data sets, plain or compressed, read line by line."""

import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from uncone.errors import InputError
from uncone.regular import open_unpacked

Found = TypeVar("Found")
SUFFIXES = ("", ".xz", ".gz")
_LONGEST_LINE = 1 << 26


def find_file(directory: Path, *names: str) -> Path | None:
    """The first of `names` in the directory, plain or with .xz or .gz behind it; None where there is none."""
    candidates = (directory / f"{name}{suffix}" for name in names for suffix in SUFFIXES)
    return next((file for file in candidates if file.is_file()), None)


def found_sets(
    directory: str | os.PathLike[str],
    known: Sequence[str],
    asked: Sequence[str] | None,
    find: Callable[[Path, str], Found | None],
    *,
    what: str,
    looked_for: Callable[[Sequence[str]], str],
) -> dict[str, Found]:
    """The sets that lie in `directory`, by their names; with `asked` those, each of which must be there.

    Args:
        directory: where to look.
        known: names of all sets, in their order.
        asked: names out of `known`; None for those that are there.
        find: a set of that name in a folder, or where it lies; None where it is not there.
        what: the sets, in words.
        looked_for: the files of the named sets, in words.

    Raises:
        InputError: no directory, an unknown name, one that was asked for and is not there, or no set at all.
    """
    root = Path(directory)
    if not root.is_dir():
        raise InputError(
            f"expected a directory of {what}, got {root}: name the one that holds {looked_for(known)}"
        )
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        raise InputError(f"expected sets out of {', '.join(known)}, got {', '.join(unknown)}: leave them out")
    found = {name: find(root, name) for name in asked or known}
    missing = [name for name, one in found.items() if one is None]
    if missing and (asked is not None or len(missing) == len(found)):
        raise InputError(
            f"expected {', '.join(missing)} in {root}, got no file of them: looked for {looked_for(missing)}; put it there, or name its directory"
        )
    return {name: one for name, one in found.items() if one is not None}


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end), of a file in UTF-8.

    Raises:
        InputError: unreadable, damaged, not UTF-8, or a line of more than 64 MiB.
    """
    try:
        with open_unpacked(file, how="give a text file in UTF-8, plain or packed as .gz or .xz") as handle:
            number = 0
            while line := handle.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    raise InputError(
                        f"expected lines of text in {file}, got one of more than 64 MiB at line {number}: is it text?"
                    )
                yield (
                    number,
                    line.decode("utf-8")
                    .removesuffix("\n")
                    .removesuffix("\r")
                    .removeprefix("\ufeff" if number == 1 else ""),
                )
    except UnicodeDecodeError as error:
        raise InputError(f"expected text in UTF-8, got {file} which is not: convert it") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot read {file}: {reason}: copy it again") from error


def table_of(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line number, the fields called `columns`) of a tab-separated file with a header; quotes mean nothing.

    Raises:
        InputError: a column is missing, or a line has another number of fields than the header.
    """
    lines = lines_of(file)
    header = next(lines, (0, ""))[1].split("\t")
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            f"expected a header with {', '.join(columns)} between tabs in {file}, got {' '.join(header)[:120]!r}"
        )
    places = [header.index(name) for name in columns]
    for number, line in lines:
        if not line:
            continue
        fields = line.split("\t")
        if len(fields) != len(header):
            raise InputError(
                f"expected {len(header)} fields in line {number} of {file}, got {len(fields)}: it was cut or edited"
            )
        yield number, [fields[place] for place in places]
