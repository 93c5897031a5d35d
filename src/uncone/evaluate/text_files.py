"""Text files of data sets, plain or compressed, read line by line."""

import gzip
import lzma
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from uncone.errors import InputError

SUFFIXES = ("", ".xz", ".gz")
_LONGEST_LINE = 1 << 26
_OPENERS = {".xz": lzma.open, ".gz": gzip.open}


def find_file(directory: Path, *names: str) -> Path | None:
    """The first of `names` in the directory, plain or with .xz or .gz behind it; None where there is none."""
    candidates = (directory / f"{name}{suffix}" for name in names for suffix in SUFFIXES)
    return next((file for file in candidates if file.is_file()), None)


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end), of a file in UTF-8.

    Raises:
        InputError: unreadable, damaged, not UTF-8, or a line of more than 64 MiB.
    """
    try:
        with _OPENERS.get(file.suffix, open)(file, "rb") as handle:  # type: ignore[operator]
            number = 0
            while line := handle.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    raise InputError(
                        f"expected lines of text in {file}, got one of more than 64 MiB at line {number}: is it text?"
                    )
                yield (
                    number,
                    line.decode("utf-8").removesuffix("\n").removesuffix("\r").removeprefix("\ufeff" if number == 1 else ""),
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
        raise InputError(f"expected a header with {', '.join(columns)} between tabs in {file}, got {' '.join(header)[:120]!r}")
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
