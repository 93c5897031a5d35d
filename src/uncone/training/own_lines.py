"""Lines of JSON that an earlier run wrote, one for each step: what a log goes on with."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.regular import open_regular

_BEGIN = '{"step": '


def own_lines(path: Path, fields: Collection[str], what: str) -> tuple[list[dict[str, Any]], str]:
    """The records, which all have these fields; and of a last line that a kill cut the text.

    Raises:
        InputError: a line of another program; the message has its number.
    """
    with open_regular(path) as file:
        *lines, rest = file.read().decode("utf-8", "replace").split("\n")
    records = [_record(line, fields) for line in lines]
    if rest and not (rest.startswith(_BEGIN) or (records and _BEGIN.startswith(rest))):
        records.append(None)
    if None in records:
        raise InputError(
            f"expected {what} in each line of {path.name}, got another in line {records.index(None) + 1}: "
            "name a new file"
        )
    return [record for record in records if record is not None], rest


def _record(line: str, fields: Collection[str]) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
        is_own = type(record["step"]) is int and all(name in record for name in fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return record if is_own else None
