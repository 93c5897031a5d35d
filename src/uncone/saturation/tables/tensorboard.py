"""Scalars of TensorBoard event files, without TensorBoard: records with checksums, each a message of a few fields.

Format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/{util/event,framework/summary}.proto.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.memory import check_memory
from uncone.records.text import counted
from uncone.rows.bytes import LocalFile
from uncone.saturation.tables.tables import Table, of_rows

_LARGEST_SCALAR = 2**16  # bytes: larger records are pictures or graphs
_CUT = "is cut or still being written"


def _crc(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_CRC = [_crc(value) for value in range(256)]


def checksum(data: bytes) -> int:
    """The masked CRC-32C of the record format."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_events(name: str) -> bool:
    return "tfevents" in name


def read_events(files: list[Path], folder: Path) -> Table:
    """A folder of event files, the older first, is one run. The last value of a step counts."""
    size = sum(map(os.path.getsize, files))
    # a scalar takes 15 bytes of memory per byte of its file
    check_memory(15 * size, f"event files of {size / 1e9:.1f} GB", "give fewer runs")
    rows, notes, again = dict[tuple[Any, ...], dict[str, Any]](), list[str](), 0
    for file in files:
        run = os.path.relpath(file.parent, folder)
        model = folder.resolve().name if run == "." else run
        try:
            for tag, step, value in _scalars(LocalFile(file)):
                task, _, metric = tag.rpartition("/")
                again += (key := (model, tag, step)) in rows
                rows[key] = {"model": model, "task": task, "metric": metric, "step": step, "value": value}
        except _DamagedError as error:
            notes.append(f"{file.name} {error}: the part before was read.")
    if not rows:
        came = f"got none{': ' + notes[0] if notes else ''}"
        raise InputError(f"expected scalars in the event files of {folder}, {came}: log some with add_scalar")
    if again:
        came = f"{counted(again, 'value')} at a step that has another, as after a restart"
        notes.append(f"{came}: the last written value counts.")
    return of_rows(rows.values(), str(folder), notes, logged=True)


class _DamagedError(Exception):
    """A record that cannot be read; earlier records can."""


def _records(file: LocalFile) -> Iterator[bytes]:
    """The contents of small records, checked against their checksums and the size of the file."""
    at = 0
    while at < file.size:
        if file.size - at < 12:
            raise _DamagedError(_CUT)
        head = file.read(at, 12)
        length, expected = struct.unpack("<QI", head)
        if checksum(head[:8]) != expected:
            raise _DamagedError(f"is damaged at byte {at}")
        if length > file.size - at - 16:
            raise _DamagedError(_CUT)
        if length <= _LARGEST_SCALAR:
            content = file.read(at + 12, length + 4)
            if checksum(content[:-4]) != int.from_bytes(content[-4:], "little"):
                raise _DamagedError(f"is damaged at byte {at}")
            yield content[:-4]
        at += length + 16


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise _DamagedError("holds a number that does not end")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The number and the content of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind, length = key & 7, {1: 8, 5: 4}.get(key & 7, 0)
        if kind not in (0, 1, 2, 5):
            raise _DamagedError(f"holds a field of the unknown kind {kind}")
        if kind in (0, 2):
            length, at = _varint(data, at)
        if kind == 0:
            yield key >> 3, length
            continue
        if length > len(data) - at:
            raise _DamagedError("holds a field that is longer than its record")
        yield key >> 3, data[at : at + length]
        at += length


def _scalars(file: LocalFile) -> Iterator[tuple[str, int, float]]:
    for record in _records(file):
        fields = list(_fields(record))
        step = next((content for number, content in fields if number == 2 and isinstance(content, int)), 0)
        for number, summary in fields:
            for _, value in _fields(summary) if number == 5 and isinstance(summary, bytes) else ():
                scalar = _scalar(value) if isinstance(value, bytes) else None
                if scalar is not None and step < 2**63:
                    yield scalar[0], step, scalar[1]


def _scalar(data: bytes) -> tuple[str, float] | None:
    """(tag, value) of a Summary.Value: its `simple_value`, or its tensor of one float or double."""
    tag, value = "", None
    for number, content in _fields(data):
        if isinstance(content, bytes):
            if number == 1:
                tag = content.decode("utf-8", "replace")
            elif number == 2 and len(content) == 4:
                value = struct.unpack("<f", content)[0]
            elif number == 8:
                value = _of_tensor(content)
    return None if value is None else (tag, value)


def _of_tensor(data: bytes) -> float | None:
    """The one number of a TensorProto of floats (dtype 1) or doubles (2), packed or as raw bytes."""
    fields = dict(_fields(data))
    number, form = {1: (5, "<f"), 2: (6, "<d")}.get(fields.get(1, 0), (0, ""))
    content = (fields.get(4) or fields.get(number)) if form else None
    if not isinstance(content, bytes) or len(content) != struct.calcsize(form):
        return None
    value: float = struct.unpack(form, content)[0]
    return value
