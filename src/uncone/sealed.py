"""Records with checksums, from which a stopped run goes on."""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from uncone.errors import InputError
from uncone.regular import LONGEST_LINE, open_regular
from uncone.roles import Path_


def checksum(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def sealed_line(form: str, record: dict[str, Any]) -> str:
    """A line of JSON: the name of its form, the checksum of both, and the record."""
    text = json.dumps(record, allow_nan=False)
    return f'{_begin(form)}{checksum((form.encode(), text.encode()))}", "record": {text}}}'


def sealed_records(path: Path_, form: str, *, what: str, how: str) -> Iterator[Any]:
    """The records of lines of `sealed_line`; a last line that was cut, as by a kill, is left out. InputError: a line is
    not `what`, or was changed; `how` is the way to go on."""
    begin = _begin(form).encode()
    with open_regular(path, how=how) as file:
        for number in itertools.count(1):
            line = file.readline(LONGEST_LINE + 1)
            record, is_ours = _record(form, line.removesuffix(b"\n").removesuffix(b"\r")), line.startswith(begin)
            is_part = is_ours or (number > 1 and begin.startswith(line))
            if record is not None:
                yield record
            elif not line or (is_part and not line.endswith(b"\n") and len(line) <= LONGEST_LINE):
                return
            else:
                where = f"in line {number} of {os.fspath(path)}"
                got = "a changed record" if is_ours else repr(line[:40].decode("utf-8", "replace"))
                raise InputError(f"expected {what} as this version of uncone writes it {where}, got {got}: {how}")


def _begin(form: str) -> str:
    return f'{{"form": "{form}", "sha256": "'


def _record(form: str, line: bytes) -> Any:
    parts = re.fullmatch(re.escape(_begin(form)).encode() + rb'([0-9a-f]{64})", "record": (.*)}', line, re.DOTALL)
    if parts is None or parts[1].decode() != checksum((form.encode(), parts[2])):
        return None
    return json.loads(parts[2])
